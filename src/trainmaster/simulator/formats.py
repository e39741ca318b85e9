"""Reads published formats of cluster traces; files that end in `.gz` are decompressed on the way.

Errors name the line. Jobs may be in any order. A job without a run time did not run and is skipped. Sources: Standard Workload
Format 2.2 (Feitelson, Parallel Workloads Archive); Muri (Zhao et al., SIGCOMM'22); Philly (Jeon et al., ATC'19).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

from trainmaster.errors import UsageError
from trainmaster.scheduling.model.request import Shape, ask_of
from trainmaster.simulator import history
from trainmaster.simulator.line_reader import KNOWN, WHOLE_MAX, Lines, amount, checked, each, reading, rows, whole, wrong
from trainmaster.simulator.trace import Arrival, Recorded, Trace, from_zero, gang, gpu_nodes, processors

GPUS_PER_NODE = 8
MURI_NODES, PHILLY_NODES = 8, 62
_MURI = {"job_id", "num_gpu", "submit_time", "iterations", "iteration_time"}
_PHILLY = {"timestamp", "duration", "num_gpus", "cluster"}
_OPENB = {"name", "num_gpu", "gpu_milli"}
_SWF_FIELDS = 18


def load(path: Path) -> Trace:
    """Load a trace from a file, whose format is detected. Raises: UsageError with the line."""
    return reading(path, _read)


def _read(lines: Lines) -> Trace:
    first = lines.first()
    reader = _reader(first)
    if reader is None:
        columns = set(first.strip().split(","))
        if columns >= _OPENB:
            hint = f"pods of openb are placed, not replayed: tm simulate openb --nodes F --pods {lines.path}"
        else:
            hint = _lacking(columns) or KNOWN
        raise wrong(lines.path, 1, f"unknown trace format: {first.strip()[:60]!r}", hint)
    return replace(trace_of(lines.path, reader(lines)), passed=lines.passed)


def _lacking(columns: set[str]) -> str:
    """The missing columns, if the file nearly has a known format."""
    for form, need in (("Muri", _MURI), ("Philly", _PHILLY)):
        if len(columns & need) > len(need) // 2:
            return f"it lacks these columns of {form}: {', '.join(sorted(need - columns))}"
    return ""


_Reader = Callable[[Lines], Recorded]


def _reader(first: str) -> _Reader | None:
    columns = {word.strip() for word in first.split(",")}
    if columns >= _MURI:
        return _muri
    if columns >= _PHILLY:
        return _philly
    if first.startswith("{"):
        return history.read
    return _swf if first.startswith(";") or len(first.split()) == _SWF_FIELDS else None


def _swf(lines: Lines) -> Recorded:
    """Jobs that ran. A limit below a job's run time is raised to it."""
    machine = 0

    def jobs() -> Iterator[str]:
        nonlocal machine
        for line in lines:
            if line.startswith(";"):
                name, _, value = line[1:].partition(":")
                if name.strip() == "MaxProcs":
                    machine = _processors(lines, value)
            elif line.strip():
                yield line

    arrivals = each(lines, jobs(), lambda line, number: _swf_job(lines, line, number))
    count = machine or max((arrival.ask.nodes for arrival in arrivals), default=0)
    return Recorded(arrivals, processors(count) if count else ())


def _processors(lines: Lines, value: str) -> int:
    word = value.split()[0] if value.split() else ""
    if not word.isdigit() or not 0 < int(word) <= WHOLE_MAX:
        raise wrong(lines.path, lines.number, f"MaxProcs is {value.strip()!r}", f"a whole number of at most {WHOLE_MAX:,}")
    return int(word)


def _swf_job(lines: Lines, line: str, number: int) -> Arrival | None:
    words = line.split()
    try:
        fields = [float(word) for word in words]
    except ValueError:
        fields = []
    if len(fields) != _SWF_FIELDS:
        raise wrong(lines.path, number, f"expected {_SWF_FIELDS} numbers, got {line.strip()[:60]!r}")
    if not isfinite(sum(fields)):  # one check for all: a million lines have eighteen million fields
        for place, value in enumerate(fields, 1):
            checked(value, f"field {place}", value)
    run_s, used, asked = fields[3], int(fields[4]), int(fields[7])
    count = used if used > 0 else asked
    if run_s <= 0 or count <= 0:
        return None
    checked(fields[1], "the submit time (field 2)")
    if count > WHOLE_MAX:
        raise ValueError(f"{count} processors; the maximum is {WHOLE_MAX:,}")
    member, command = f"u{int(fields[11])}", f"x{int(fields[13])}"
    ask, limit_s = ask_of(count, Shape()), max(fields[8], run_s)
    group, waited_s = f"g{int(fields[12])}", fields[2] if fields[2] >= 0 else None
    return Arrival(words[0], fields[1], run_s, ask, group, member, limit_s, command, line=number, waited_s=waited_s)


def _muri(lines: Lines) -> Recorded:
    """Times are in milliseconds. A job runs as long as its iterations take."""

    def job(row: dict[str, str], number: int) -> Arrival | None:
        run_s = amount(row, "iterations") * amount(row, "iteration_time") / 1000
        ask = gang(whole(row, "num_gpu"), GPUS_PER_NODE)
        submit_s, command = amount(row, "submit_time") / 1000, row.get("model_name") or ""
        return Arrival(row["job_id"], submit_s, run_s, ask, command=command, line=number) if run_s > 0 else None

    return Recorded(each(lines, rows(lines), job), gpu_nodes(MURI_NODES, GPUS_PER_NODE))


def _philly(lines: Lines) -> Recorded:
    """Virtual clusters are projects. The format has no users."""

    def job(row: dict[str, str], number: int) -> Arrival | None:
        try:
            at_s = _instant(row["timestamp"])
        except (TypeError, ValueError):
            raise ValueError(f"timestamp is {row['timestamp']!r}, not a date and time") from None
        run_s, gpus = amount(row, "duration"), whole(row, "num_gpus", 0)
        if run_s <= 0 or gpus <= 0:
            return None
        return Arrival(str(number - 1), at_s, run_s, gang(gpus, GPUS_PER_NODE), row["cluster"] or "default", line=number)

    return Recorded(from_zero(each(lines, rows(lines), job)), gpu_nodes(PHILLY_NODES, GPUS_PER_NODE))


def _instant(text: str) -> float:
    """Seconds since the epoch. A time without a zone is taken as UTC."""
    told = datetime.fromisoformat(text)
    return (told if told.tzinfo is not None else told.replace(tzinfo=UTC)).timestamp()


def trace_of(path: Path, recorded: Recorded) -> Trace:
    """The trace of a file. Raises: UsageError if nothing ran, or an id occurs twice."""
    arrivals = recorded.arrivals
    if not arrivals:
        raise UsageError(f"{path}: it has no job that ran", "a job that never ran, or is not over, is skipped")
    seen: dict[str, int] = {}
    for arrival in arrivals:
        if arrival.id in seen:
            raise wrong(path, arrival.line, f"job {arrival.id} occurs twice", f"first in line {seen[arrival.id]}")
        seen[arrival.id] = arrival.line
    name = path.name
    for ending in (".gz", ".csv", ".swf", ".jsonl", ".json", ".txt"):
        name = name.removesuffix(ending)
    ordered = tuple(sorted(arrivals, key=lambda arrival: arrival.submit_s))
    return Trace(name or "trace", ordered, recorded.sites, recorded.rules, down=recorded.down)
