"""The local address that a script's own `mlflow` calls: claimed before the ranks start, served on the first call.

It costs almost nothing for a job that never calls: only the socket is bound. The server (`http_server`) is imported at
the first connection.
"""

from __future__ import annotations

import _socket  # not `socket`: importing that takes as long as the rest of the start
import os
import time
from collections import deque

from trainmaster.agent.transport.master_port import LOOPBACK
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from trainmaster.agent.metrics.progress import Progress
    from trainmaster.agent.transport.outbox import Outbox
    from trainmaster.wire.launch import Launch, RunIdentity

_BACKLOG = 64
_FIRST_TELL_S = 0.2  # parameters come in bursts: one report per burst
_TELL_EVERY_S = 5.0  # a tag that changes at every step must not create an event per step
_NAMED_MAX = 5
_VALUE_MAX = 80  # characters
_SAMPLED = frozenset((  # what MLflow measures itself
    "cpu_utilization_percentage", "system_memory_usage_megabytes", "system_memory_usage_percentage", "disk_usage_percentage",
    "disk_usage_megabytes", "disk_available_megabytes", "network_receive_megabytes", "network_transmit_megabytes",
))  # fmt: skip
_OF_GPU = frozenset((  # likewise, behind `gpu_0_`
    "utilization_percentage", "memory_usage_percentage", "memory_usage_megabytes", "memory_usage_gigabytes",
    "power_usage_watts", "power_usage_percentage",
))  # fmt: skip
_ARTIFACTS = "mlflow"  # below the attempt's directory
_NEVER_SHOWN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")  # they would take precedence over our token


def logged_elsewhere(launch: Launch, since_s: float) -> str:
    """A warning if `mlflow` wrote into the work directory: from a rank without our address, or where the script says so."""
    if launch["run"] is None or (launch["node_index"] == 0 and launch["ranks"] == 1):
        return ""
    for name in ("mlruns", "mlflow.db"):
        path = os.path.join(launch["work"], name)
        if os.path.exists(path) and os.stat(path).st_mtime >= since_s:
            there = f"mlflow wrote into {name} of the work directory, which is not in this record"
            why = "ranks other than rank 0 have no other place, unless the script names it itself"
            return f"{there}: {why}; log from rank 0 alone, or set {names.ENV_TRACKER} in environment.variables"
    return ""


class MlflowListener:
    """The listener of one attempt, open until its agent ends. `told` queues what the script logged, for the main loop."""

    def __init__(self, identity: RunIdentity) -> None:
        self._identity = identity
        self._token = os.urandom(24).hex()
        self._socket = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        self._socket.bind((LOOPBACK, 0))
        self._socket.listen(_BACKLOG)
        self._port = int(self._socket.getsockname()[1])
        self._opened = False
        self._texts = _Texts()
        self.told: deque[tuple[Any, ...]] = deque()

    def variables(self, environment: dict[str, str]) -> dict[str, str]:
        """Additional variables of rank 0. An empty text hides a variable that it must not have."""
        ours = {
            names.ENV_TRACKER: f"http://{LOOPBACK}:{self._port}",
            "MLFLOW_TRACKING_TOKEN": self._token,
            "MLFLOW_RUN_ID": self._identity["id"],
            "MLFLOW_EXPERIMENT_ID": self._identity["experiment_id"],
            **dict.fromkeys((variable for variable in _NEVER_SHOWN if variable in environment), ""),
        }
        quiet = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
        return {**ours, **{variable: value for variable, value in quiet.items() if variable not in environment}}

    def open(self, directory: str, resumed_step: Optional[int]) -> None:
        """Start to answer. `resumed_step`: of the restored checkpoint."""
        if self._opened:
            return
        import threading  # noqa: PLC0415 - the ranks run by now

        self._opened = True
        threading.Thread(target=self._wait, args=(directory, resumed_step or 0), name="mlflow", daemon=True).start()

    def _wait(self, directory: str, base_step: int) -> None:
        """Wait for the first connection, then serve."""
        import select  # noqa: PLC0415 - likewise

        select.select([self._socket], [], [])
        from trainmaster.agent.mlflow.http_server import Server  # noqa: PLC0415 - an HTTP server: only for scripts that call
        from trainmaster.agent.mlflow.run_api import Runs  # noqa: PLC0415 - likewise

        runs = Runs(self._identity, base_step, self.told)
        Server(self._socket.detach(), runs, self._token, os.path.join(directory, _ARTIFACTS)).serve_forever()

    def pass_on(self, progress: Progress, keep: Callable[[int, dict[str, str]], None], outbox: Outbox) -> set[str]:
        """Forward what the script logged. Returns the names of its metrics. `keep` gets artifacts as SDK messages of rank 0.

        Parameters and tags are reported after a delay; `finish` reports the rest.
        """
        measured: set[str] = set()
        while self.told:
            kind, *what = self.told.popleft()
            if kind == "point":
                step, values, counts, named = what
                samples = {name: value for name, value in values.items() if _is_sample(name)}
                if samples:
                    outbox.point(0, None, samples)
                logged = {name: value for name, value in values.items() if name not in samples}
                if logged:
                    of_training = {name for name in logged if not _of_machine(name)}
                    measured.update(of_training)
                    progress.logged(step, logged, counts and bool(of_training), named)
            elif kind == "artifact":
                keep(0, {"t": "a", "path": what[0], "name": what[1]})
            elif kind == "kept":
                self._texts.warn_kept(outbox, *what)
            elif kind == "clash":
                self._texts.warn_clash(outbox, *what)
            elif kind == "mixed":
                self._texts.warn_mixed(outbox, *what)
            else:
                self._texts.take(kind, *what)
        self._texts.report_if_due(outbox)
        return measured

    def finish(self, outbox: Outbox) -> None:
        """Report the parameters and tags that are not reported yet."""
        self._texts.report(outbox)

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The reports of parameters and tags so far."""
        return self._texts.reports


def _of_machine(name: str) -> bool:
    """Whether it is about the machine and not of the training. A further run has such values, too."""
    return f"/{names.SYSTEM}" in f"/{name}"


def _is_sample(name: str) -> bool:
    """Whether MLflow measured it itself. It counts its samples from 0 in each attempt.

    So they are recorded without a step: else those of a restart replace those of the attempt before. A program's own
    `system/cache_percentage` keeps its steps.
    """
    measured = name.rpartition("/")[2]
    gpu, _, of_gpu = measured.removeprefix("gpu_").partition("_")
    of_gpus = measured.startswith("gpu_") and gpu.isdecimal() and of_gpu in _OF_GPU
    return _of_machine(name) and (of_gpus or measured in _SAMPLED)


def _first(told: list[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(told) - _NAMED_MAX} more" if len(told) > _NAMED_MAX else ""
    return ", ".join(told[:_NAMED_MAX]) + more


def _whole(value: str) -> str:
    """The value, or its length: of a part of a credential, nobody could tell that it is one."""
    return value if len(value) <= _VALUE_MAX else f"a text of {len(value)} characters"


class _Texts:
    """Parameters, tags and prefixes that are not reported yet."""

    def __init__(self) -> None:
        self._params: dict[str, str] = {}
        self._tags: dict[str, Optional[str]] = {}
        self._prefixes: dict[str, str] = {}
        self._due_s: Optional[float] = None  # since the first one
        self._kept: dict[str, tuple[str, str]] = {}  # parameters that the record has with another value than the program logged
        self._clashes: list[str] = []
        self._mixed: list[str] = []
        self.reports: list[dict[str, Any]] = []

    def take(self, kind: str, name: str, value: Any) -> None:
        """A parameter, a tag (None: it was deleted), or a prefix of names."""
        kinds: dict[str, dict[str, Any]] = {"param": self._params, "tag": self._tags, "prefix": self._prefixes}
        kinds[kind][name] = value
        if self._due_s is None:
            self._due_s = time.monotonic() + _FIRST_TELL_S

    def warn_kept(self, outbox: Outbox, name: str, differing: tuple[str, str]) -> None:
        """The program logged another value than the record keeps."""
        self._kept[name] = differing
        told = [f"{one}={_whole(logged)} (the record keeps {one}={_whole(kept)})" for one, (kept, logged) in self._kept.items()]
        given = "the spec or an earlier attempt gave other values"
        outbox.warn("parameters", f"the program logged {_first(told)}: {given}")

    def warn_clash(self, outbox: Outbox, name: str) -> None:
        """The job's own run logged what looks like a value of a further run."""
        self._clashes.append(name)
        words = "have the name of a nested run before the slash: the record does not tell them from those of that run"
        outbox.warn("names", f"values of the job's own run {words}: {_first(self._clashes)}")

    def warn_mixed(self, outbox: Outbox, name: str) -> None:
        """The job's own run stored a file where those of a further run or a model are."""
        self._mixed.append(name)
        words = "are in the directory of a nested run or a model, and replace its files of the same names"
        outbox.warn("files", f"files of the job's own run {words}: {_first(self._mixed)}")

    def report_if_due(self, outbox: Outbox) -> None:
        """Report them, unless the last report was a short time ago."""
        if self._due_s is not None and time.monotonic() >= self._due_s and (self._params or self._tags or self._prefixes):
            self.report(outbox)
            self._due_s = time.monotonic() + _TELL_EVERY_S

    def report(self, outbox: Outbox) -> None:
        """Report them now."""
        if self._params or self._tags or self._prefixes:
            self.reports.append(outbox.report("run", params=self._params, tags=self._tags, prefixes=self._prefixes))
            self._params, self._tags, self._prefixes = {}, {}, {}
