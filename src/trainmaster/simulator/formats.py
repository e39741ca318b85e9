"""Readers of the forms in which cluster traces are published; a file that ends in `.gz` is unpacked on the way.

What a line lacks or has wrong is said with its number. Sources: Standard Workload Format 2.2 (Feitelson, Parallel Workloads
Archive); Muri (Zhao et al., SIGCOMM'22); Philly (Jeon et al., ATC'19).
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TextIO

from trainmaster.errors import UsageError
from trainmaster.scheduling.ask import Shape, ask_of
from trainmaster.scheduling.space import Site
from trainmaster.simulator.rows import read, rows
from trainmaster.simulator.trace import Arrival, Trace, gang, gpu_nodes, processors

GPUS_PER_NODE = 8
MURI_NODES, PHILLY_NODES = 8, 62
_MURI = {"job_id", "num_gpu", "submit_time", "iterations", "iteration_time"}
_PHILLY = {"timestamp", "duration", "num_gpus", "cluster"}
_SWF_FIELDS = 18


def load(path: Path) -> Trace:
    """A trace from a file, whose form is found out. Raises: UsageError with the line."""
    return read(path, lambda file: _load(path, file))


def _load(path: Path, file: TextIO) -> Trace:
    first = file.readline()
    file.seek(0)
    reader = _reader(first)
    if reader is None:
        known = "SWF (lines of 18 numbers), or CSV with the columns of Muri or Philly"
        raise UsageError(f"{path}:1: no known form of a trace: {first.strip()[:60]!r}", f"known: {known}")
    return reader(path, file)


def _reader(first: str) -> Callable[[Path, TextIO], Trace] | None:
    columns = set(first.strip().split(","))
    if columns >= _MURI:
        return _muri
    if columns >= _PHILLY:
        return _philly
    return _swf if first.startswith(";") or len(first.split()) == _SWF_FIELDS else None


def _swf(path: Path, file: TextIO) -> Trace:
    """Jobs that ran; a limit below the time that its job ran is raised to it."""
    arrivals: list[Arrival] = []
    machine = 0
    for number, line in enumerate(file, 1):
        if line.startswith(";"):
            name, _, value = line[1:].partition(":")
            machine = int(value) if name.strip() == "MaxProcs" else machine
            continue
        if not line.strip():
            continue
        try:
            fields = [float(word) for word in line.split()]
            run_s, used, asked = fields[3], int(fields[4]), int(fields[7])
            count = used if used > 0 else asked
            if run_s <= 0 or count <= 0:
                continue
            limit_s = max(fields[8], run_s)
        except (ValueError, IndexError) as error:
            raise UsageError(f"{path}:{number}: expected {_SWF_FIELDS} numbers, got {line.strip()[:60]!r}") from error
        ask = ask_of(count, Shape())
        member, command = f"u{int(fields[11])}", f"x{int(fields[13])}"
        arrivals.append(Arrival(str(int(fields[0])), fields[1], run_s, ask, f"g{int(fields[12])}", member, limit_s, command))
    count = machine or max((arrival.ask.nodes for arrival in arrivals), default=0)
    return _sorted(path, arrivals, processors(count))


def _muri(path: Path, file: TextIO) -> Trace:
    """Times are milliseconds; a job runs as long as its iterations take."""
    arrivals = []
    for number, row in rows(file):
        try:
            run_s = float(row["iterations"]) * float(row["iteration_time"]) / 1000
            ask = gang(int(row["num_gpu"]), GPUS_PER_NODE)
            submit_s, command = float(row["submit_time"]) / 1000, row.get("model_name", "")
            arrivals.append(Arrival(row["job_id"], submit_s, run_s, ask, command=command))
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path}:{number}: not a job: {error}") from error
    return _sorted(path, arrivals, gpu_nodes(MURI_NODES, GPUS_PER_NODE))


def _philly(path: Path, file: TextIO) -> Trace:
    """Virtual clusters are projects; users are not told."""
    arrivals = []
    begin_s: float | None = None
    for number, row in rows(file):
        try:
            at_s = datetime.fromisoformat(row["timestamp"]).timestamp()
            run_s, gpus = float(row["duration"]), int(row["num_gpus"])
            if run_s > 0 and gpus > 0:
                begin_s = at_s if begin_s is None else min(begin_s, at_s)
                arrivals.append(Arrival(str(number - 1), at_s, run_s, gang(gpus, GPUS_PER_NODE), row["cluster"]))
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path}:{number}: not a job: {error}") from error
    moved = [arrival._replace(submit_s=arrival.submit_s - (begin_s or 0.0)) for arrival in arrivals]
    return _sorted(path, moved, gpu_nodes(PHILLY_NODES, GPUS_PER_NODE))


def _sorted(path: Path, arrivals: list[Arrival], sites: tuple[Site, ...]) -> Trace:
    if not arrivals:
        raise UsageError(f"{path}: there is no job in it that ran")
    name = path.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".swf")
    return Trace(name, tuple(sorted(arrivals, key=lambda arrival: arrival.submit_s)), sites)
