"""The MLflow server of `tm up --mlflow`: a separate process on loopback that is started, restarted and announced.

It has one worker, no job execution and no telemetry. Its database and artifacts are in the home. It outlives the mirror that
started it: the next mirror adopts it, and `tm down` ends it.
"""

import importlib.util
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trainmaster.errors import OperationError, UsageError
from trainmaster.home import Home, write_atomic
from trainmaster.termination import end_group
from trainmaster.wire.processes import boot_id, same_process, start_ticks

_HOST = "127.0.0.1"
_LOOK_S = 1.0
_RETRY_S, _RETRY_MAX_S = 2.0, 60.0
_OUT_MAX_BYTES = 1024 * 1024
_INSTALL = "install it in the environment of tm: pip install mlflow"

_log = logging.getLogger("trainmaster.mirror")


class MlflowServer:
    """The MLflow server of a home. `enter(identity, url)` writes it into `server.json`. Raises: UsageError if unavailable."""

    def __init__(self, home: Home, port: int | None, enter: Callable[[dict[str, Any], str], None]) -> None:
        if any(importlib.util.find_spec(name) is None for name in ("mlflow", "flask")):
            raise UsageError("an MLflow server was requested, but mlflow is not installed", _INSTALL)
        self._home = home
        self._enter = enter
        self._child: subprocess.Popen[bytes] | None = None
        home.mlflow.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = home.read_json(home.mlflow / "process.json") or {}
        self._identity: dict[str, Any] = known
        if _lives(known) and port in (None, known["port"]):
            self.port = int(known["port"])
        else:
            self.port = _free_port(port or int(known.get("port", 0)), bool(port))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{_HOST}:{self.port}"

    def start(self) -> None:
        """Adopt the running server, or start one; it answers some seconds later. Raises: OperationError."""
        if not _lives(self._identity):
            self._spawn()
        self._enter(self._identity, self.url)

    def watch(self, over: Callable[[], bool]) -> None:
        """Restart the server whenever it is gone, on a daemon thread, until `over`."""
        threading.Thread(target=self._keep, args=(over,), name="mlflow-server", daemon=True).start()

    def _keep(self, over: Callable[[], bool]) -> None:
        resting, retry_s = threading.Event(), _RETRY_S
        while not over():
            resting.wait(_LOOK_S)
            if self._child is not None:
                self._child.poll()  # reaps it, so that no zombie is left
            if _lives(self._identity) or over():
                retry_s = max(_RETRY_S, retry_s / 2)
                continue
            _log.warning("the MLflow server is gone and is restarted; see %s", self._out)
            with suppress(OperationError, OSError):
                self.start()
            resting.wait(retry_s)
            retry_s = min(2 * retry_s, _RETRY_MAX_S)

    @property
    def _out(self) -> str:
        return os.fspath(self._home.logs / "mlflow.out")

    def _spawn(self) -> None:
        place = self._home.mlflow
        if self._identity and self._identity["boot_id"] == boot_id():
            end_group(int(self._identity["pid"]))  # its worker may still run and hold the port
        argv = [
            sys.executable, "-P", "-m", "mlflow", "server", "--host", _HOST, "--port", str(self.port), "--workers", "1",
            "--backend-store-uri", f"sqlite:///{place / 'mlflow.db'}", "--artifacts-destination", str(place / "artifacts"),
            "--uvicorn-opts", "--log-level warning",
        ]  # fmt: skip
        ours = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        settings = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
        out = os.open(self._out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.fstat(out).st_size > _OUT_MAX_BYTES:
                os.ftruncate(out, 0)
            self._child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd=place,
                env={**ours, **settings},
            )  # fmt: skip
        except OSError as error:
            raise OperationError(f"the MLflow server could not be started: {error}") from error
        finally:
            os.close(out)
        ticks = start_ticks(self._child.pid)
        self._identity = {"pid": self._child.pid, "start_ticks": ticks, "boot_id": boot_id(), "port": self.port}
        write_atomic(place / "process.json", json.dumps(self._identity).encode())


def _lives(identity: dict[str, Any]) -> bool:
    return bool(identity) and same_process(int(identity["pid"]), int(identity["start_ticks"] or 0), str(identity["boot_id"]))


def _free_port(wanted: int, named: bool) -> int:
    """The wanted port if it is free, else any. A port that a person named must be free. Raises: UsageError."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
                return int(probe.getsockname()[1])
            except (OSError, OverflowError) as error:
                if named:
                    hint = "choose another with --mlflow-port"
                    raise UsageError(f"port {port} for MLflow cannot be used: {error}", hint) from error
    raise UsageError("no port is free for MLflow")
