"""The history format, written by `tm export` and read by `tm simulate`: JSON lines, a header and then the jobs.

The header has the nodes and the cluster configuration as in `cluster.yaml`.

A job's line has its owner, its request (`spec`: only the fields that matter for scheduling), its submit time, and for each
attempt how long the ranks ran and why it ended. Of its program there is only a digest. Times are seconds, `submit_s` since the
epoch.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.errors import SpecError
from trainmaster.model.cluster import Cluster
from trainmaster.model.job import Attempt, Cause, Job, RestartBudget, State
from trainmaster.model.nodes import Device, Node, NodeState
from trainmaster.model.spec import JobSpec
from trainmaster.scheduling.model.convert import program
from trainmaster.spec.cluster import cluster_mapping, document
from trainmaster.spec.document import from_mapping
from trainmaster.spec.mapping import to_mapping

FORM, VERSION = "trainmaster-history", 1
DECIDING = ("project", "class", "priority", "resources", "elastic", "roles", "placement", "restarts", "time_limit")
_DIGITS = 16  # of a command's digest

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt: how long its ranks ran, and why it ended (None: successfully)."""

    ran_s: float
    cause: Cause | None
    exit_code: int | None
    signal: int | None
    progressed: bool  # it got further than the attempts before


@dataclass(frozen=True, slots=True)
class Record:
    """One job's line. `spec` has the fields that matter for scheduling; its command is a placeholder."""

    id: str
    seq: int  # order of submission
    user: str
    submit_s: float
    state: State
    waited_s: float | None  # time until its end, minus run time; None: not ended
    command: str  # digest
    spec: JobSpec
    attempts: tuple[Ran, ...]


def heading(nodes: Sequence[Node], rules: Cluster, now_s: float) -> Row:
    """The header line."""
    told = [
        {
            "name": node.name,
            "host": node.host,
            "state": node.state.value,
            "pool": node.pool,
            "cpus": node.cpus,
            "memory_bytes": node.memory_bytes,
            "gpus": [device.kind for device in node.devices],
            "counted": dict(node.counted),
        }
        for node in nodes
    ]
    return {"form": FORM, "version": VERSION, "exported_s": now_s, "nodes": told, "cluster": cluster_mapping.to_mapping(rules)}


def row(job: Job, attempts: Sequence[Attempt]) -> Row:
    """The line of a job with its attempts in order."""
    whole, ran = to_mapping(job.spec), [_attempt(job, attempts, at) for at in range(len(attempts))]
    spec = {name: whole[name] for name in DECIDING if name in whole}
    if "roles" in spec:
        spec["roles"] = {name: {**role, "command": "-"} for name, role in spec["roles"].items()}
    waited_s = None if job.ended_s is None else max(0.0, job.ended_s - job.created_s - sum(one["ran_s"] for one in ran))
    return {
        "id": job.id,
        "seq": job.seq,
        "user": job.owner,
        "experiment": job.spec.experiment,
        "submit_s": job.created_s,
        "state": job.state.value,
        "waited_s": waited_s,
        "command": _digest(program(job.spec)),
        "spec": spec,
        "attempts": ran,
    }


def _digest(program: str) -> str:
    """Equal for jobs whose run times the scheduler expects to be alike: what they run, without its arguments."""
    return hashlib.sha256(program.encode(errors="surrogateescape")).hexdigest()[:_DIGITS] if program else ""


def _ran_s(attempt: Attempt) -> float:
    """How long the ranks ran; if that was not measured, the time between their observed start and end."""
    if attempt.ran_s is not None or attempt.started_s is None or attempt.ended_s is None:
        return attempt.ran_s or 0.0
    return attempt.ended_s - attempt.started_s


def _attempt(job: Job, attempts: Sequence[Attempt], at: int) -> Row:
    attempt, failure = attempts[at], attempts[at].failure
    steps = [_step(one) for one in attempts[: at + 1]]
    kept = any(checkpoint.attempt == attempt.number for checkpoint in job.checkpoints)
    paid = attempt.verdict is not None and attempt.verdict.ledger is RestartBudget.PROGRAM  # only if it got further
    return {
        "ran_s": _ran_s(attempt),
        "cause": None if failure is None else failure.cause.value,
        "exit_code": None if failure is None else failure.exit_code,
        "signal": None if failure is None else failure.signal,
        "progressed": kept or paid or steps[-1] > max(steps[:-1], default=-1),
    }


def _step(attempt: Attempt) -> int:
    """The last step of an attempt; -1 if it reported none."""
    told = [node.outcome.last_step for node in attempt.nodes if node.outcome is not None and node.outcome.last_step is not None]
    return max(told, default=-1)


def encode(line: Row) -> bytes:
    """Encode one line of the file."""
    return json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def head(line: str) -> tuple[list[Node], Cluster]:
    """Parse the header: nodes and cluster configuration. Raises: ValueError with a readable message."""
    found = _object(line)
    if found.get("form") != FORM:
        raise ValueError(f"the header of a history has form {FORM!r}, not {found.get('form')!r}")
    if found.get("version") != VERSION:
        raise ValueError(f"version {found.get('version')!r} of the form; this is version {VERSION}")
    try:
        rules = document.from_mapping(found.get("cluster", {}))
    except SpecError as error:
        raise ValueError(f"cluster: {error.message}") from None
    return [_node(entry) for entry in _list(found, "nodes")], rules


def _node(entry: Any) -> Node:
    if not isinstance(entry, dict):
        raise ValueError(f"a node is an object, not {entry!r}")
    if not isinstance(entry.get("name"), str):
        raise ValueError("a node has no name")
    kinds = [str(kind) for kind in _list(entry, "gpus")]
    devices = tuple(Device(index, kind) for index, kind in enumerate(kinds))
    counted = entry.get("counted") or {}
    if not isinstance(counted, dict):
        raise ValueError("counted is an object of amounts by name")
    amounts = tuple(sorted((str(name), _number(counted, name)) for name in counted))
    state = NodeState(entry.get("state", "up"))
    pool, cpus = str(entry.get("pool", "default")), _number(entry, "cpus")
    memory = int(_number(entry, "memory_bytes"))
    host = str(entry.get("host") or "")
    return Node(str(entry["name"]), "", host, "", cpus, memory, devices, pool, state=state, counted=amounts)


class Records:
    """Reads job lines; equal specs are validated only once."""

    def __init__(self) -> None:
        self._specs: dict[str, JobSpec] = {}

    def read(self, line: str) -> Record:
        """Parse a job's line. Raises: ValueError with a readable message."""
        found = _object(line)
        try:
            id, user, state = str(found["id"]), str(found.get("user") or ""), State(found["state"])
        except KeyError as error:
            raise ValueError(f"it has no {error.args[0]}") from None
        attempts = tuple(_ran(one) for one in _list(found, "attempts"))
        waited_s = None if found.get("waited_s") is None else _number(found, "waited_s")
        command = str(found.get("command") or "")
        seq = int(_number(found, "seq"))
        return Record(
            id, seq, user, _number(found, "submit_s"), state, waited_s, command, self._spec(found.get("spec")), attempts
        )

    def _spec(self, mapping: Any) -> JobSpec:
        key = json.dumps(mapping, sort_keys=True)
        if key not in self._specs:
            if not isinstance(mapping, dict):
                raise ValueError("spec is an object with fields of a spec file")
            try:
                self._specs[key] = from_mapping({**mapping, "command": "-"})
            except SpecError as error:
                raise ValueError(f"spec: {error.message}") from None
        return self._specs[key]


def _ran(found: Any) -> Ran:
    if not isinstance(found, dict):
        raise ValueError(f"an attempt is an object, not {found!r}")
    cause = None if found.get("cause") is None else Cause(found["cause"])
    code, signal = found.get("exit_code"), found.get("signal")
    if not all(value is None or isinstance(value, int) for value in (code, signal)):
        raise ValueError("exit_code and signal of an attempt are whole numbers or null")
    return Ran(_number(found, "ran_s"), cause, code, signal, bool(found.get("progressed", True)))


def _object(line: str) -> Row:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("a line is a JSON object")
    return found


def _list(found: Mapping[str, Any], name: str) -> list[Any]:
    value = found.get(name)
    if not isinstance(value, list):
        raise ValueError(f"{name} is a list")
    return value


def _number(found: Mapping[str, Any], name: str) -> float:
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e300:
        raise ValueError(f"{name} is a number of 0 or more, not {value!r}")
    return float(value)
