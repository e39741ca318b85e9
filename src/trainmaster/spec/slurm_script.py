"""Reads a batch script of Slurm: its `#SBATCH` lines as options of a submit, and what in it means something else here.

As `sbatch` does, only lines before the first command count, and the last of several equal options wins. An option without an
equivalent is refused if the job would be another one without it, and named otherwise.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from trainmaster.errors import UsageError
from trainmaster.spec import slurm_start
from trainmaster.spec import slurm_words as words
from trainmaster.spec.fields.values import valid_name

_LINE_MAX = 4096
_TIME = re.compile(r"(?:(?P<days>\d{1,5})-)?(?P<parts>\d{1,9}(?::\d{1,9}){0,2})\Z", re.ASCII)
_SIZE = re.compile(r"(?P<number>\d{1,12})(?P<unit>[KMGT]?)B?\Z", re.ASCII | re.IGNORECASE)
_NODES = re.compile(r"(?P<least>\d{1,6})(?:-(?P<most>\d{1,6}))?\Z", re.ASCII)
_VARIABLE = re.compile(r"\$\{?(SLURM_[A-Z_]+)")


class Given(NamedTuple):
    """One option of a `#SBATCH` line."""

    line: int
    name: str
    value: str


class Script(NamedTuple):
    """A batch script: the interpreter of its first line, options of a submit and `hold`, and what to say at the submit."""

    interpreter: list[str]
    options: dict[str, Any]
    notes: list[str]


class _Reader:
    """One script while it is read. `faults` and `notes` are (line, text)."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.lines = [line.removesuffix("\r") for line in text.split("\n")]
        self.faults: list[tuple[int, str]] = []
        self.notes: list[tuple[int, str]] = []
        self.given: dict[str, Given] = {}
        self.options: dict[str, Any] = {}

    def fault(self, one: Given | int, text: str) -> None:
        """Record what makes the script impossible."""
        line, option = (one, "") if isinstance(one, int) else (one.line, f"--{one.name}: ")
        self.faults.append((line, f"{option}{text}"))

    def number(self, name: str) -> int | None:
        """The whole number of an option, from 1; None if it is not given."""
        one = self.given.get(name)
        if one is None:
            return None
        if one.value.isdecimal() and 0 < len(one.value) <= 6 and int(one.value):
            return int(one.value)
        self.fault(one, "expected a whole number from 1")
        return None


def read(name: str, text: str) -> Script:
    """The options of a script, whose first line begins with `#!`. Raises: UsageError that lists all faults by line."""
    reader = _Reader(name, text)
    if "\r\n" in text:
        reader.fault(1, "its lines end as in Windows, so bash would not understand them, as with sbatch; convert it: dos2unix")
    body = len(reader.lines) + 1
    for number, line in enumerate(reader.lines, 1):
        if line.startswith("#SBATCH") and line[7:8] in (" ", "\t", ""):
            for one in _given(reader, number, line[7:]):
                _sort(reader, one)
        elif line.strip() and not line.lstrip().startswith("#"):
            body = number
            break
    _look_at_body(reader, body)
    _convert(reader)
    if reader.faults:
        told = "\n".join(f"{name}:{line}: {fault}" for line, fault in sorted(reader.faults))
        raise UsageError(told, "remove the line, or describe the job with options: tm submit --help")
    return Script(reader.lines[0][2:].split() or ["/bin/sh"], reader.options, _merged(name, reader.notes))


def _given(reader: _Reader, number: int, rest: str) -> Iterator[Given]:
    """The options of one line."""
    if len(rest) > _LINE_MAX:
        reader.fault(number, f"a line of more than {_LINE_MAX} characters")
        return
    try:
        left = shlex.split(rest, comments=True)
    except ValueError as error:
        reader.fault(number, f"{error}: the quotes of this line do not match")
        return
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif word.startswith("-") and word[1:2] in words.SHORT:
            name, value = words.SHORT[word[1]], word[2:].removeprefix("=")
            equals = value
        else:
            reader.fault(number, words.REFUSED.get(word, f"expected an option, got {word!r}"))
            return
        if not equals and name not in words.FLAGS and left:
            value = left.pop(0)
        yield Given(number, name, value)


def _sort(reader: _Reader, one: Given) -> None:
    """Keep an option that has an equivalent; report any other."""
    if one.name in words.MAPPED:
        reader.given[one.name] = one
    elif one.name in words.NOTED:
        reader.notes.append((one.line, f"--{one.name}: {words.NOTED[one.name]}"))
    else:
        reader.fault(one, words.REFUSED.get(one.name, "there is no equivalent"))


def _look_at_body(reader: _Reader, body: int) -> None:
    """Report what the script's commands expect of Slurm. A launcher starts the tasks itself: `launcher` counts as an option."""
    for number, line in enumerate(reader.lines[body - 1 :], body):
        code = line.strip()
        if code.startswith("#SBATCH"):
            reader.notes.append((number, "an #SBATCH line after the first command has no effect, as with sbatch"))
        if code.startswith("#"):
            continue
        first = code.split(maxsplit=1)[0] if code else ""
        if first == "srun":
            reader.fault(number, "there is no srun: each rank runs this script, so write the command without it")
        elif first in ("sbatch", "scontrol", "scancel", "squeue"):
            reader.notes.append((number, f"{first}: commands of Slurm do not know this job"))
        elif first == "module":
            reader.notes.append((number, "module: it is a function of login shells; begin the script with #!/bin/bash -l"))
        if "launcher" not in reader.given and any(launcher in code for launcher in words.LAUNCHERS):
            reader.given["launcher"] = Given(number, "launcher", next(one for one in words.LAUNCHERS if one in code))
        for variable in dict.fromkeys(_VARIABLE.findall(code)):
            if variable == "SLURM_ARRAY_TASK_ID" and words.VARIABLES[variable] not in code:
                reader.fault(number, f"{variable} is not set, and each task would do the same; use {words.VARIABLES[variable]}")
            else:
                instead = words.VARIABLES.get(variable)
                reader.notes.append((number, f"{variable} is not set" + (f"; use {instead}" if instead else "")))


def _convert(reader: _Reader) -> None:
    """Fill `options` from the given ones."""
    for name, option in (("account", "project"), ("partition", "pool"), ("qos", "work"), ("chdir", "workdir")):
        if name in reader.given:
            reader.options[option] = reader.given[name].value
    named = reader.given.get("job-name")
    stem = reader.name.rpartition("/")[2].partition(".")[0]
    reader.options["name"] = valid_name(named.value if named is not None else stem) or "job"
    if "comment" in reader.given:
        reader.options["tags"] = (f"comment={reader.given['comment'].value}",)
    if "no-requeue" in reader.given:
        reader.options["restarts"] = {"program": 0, "infrastructure": 0}
    reader.options["hold"] = "hold" in reader.given
    for convert in (_time, _resources, _licenses, _export, _start, _mail):
        convert(reader)


def _time(reader: _Reader) -> None:
    one = reader.given.get("time")
    if one is None or one.value.lower() in ("0", "infinite", "unlimited"):
        return
    match = _TIME.match(one.value)
    parts = [int(part) for part in match["parts"].split(":")] if match else []
    if match is None:
        reader.fault(one, "expected minutes, hours:minutes:seconds or days-hours")
    elif match["days"] is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        reader.options["time_limit"] = float(int(match["days"]) * 86400 + hours * 3600 + minutes * 60 + seconds)
    elif len(parts) == 3:
        reader.options["time_limit"] = float(parts[0] * 3600 + parts[1] * 60 + parts[2])
    else:  # minutes[:seconds]
        reader.options["time_limit"] = float(parts[0] * 60 + (parts[1] if len(parts) == 2 else 0))


def _resources(reader: _Reader) -> None:
    """Nodes, and what is counted per node here and per task or in total there."""
    nodes = _nodes(reader)
    tasks = _tasks(reader, nodes)
    cpus = tasks * (reader.number("cpus-per-task") or 1)
    if cpus > 1 or "cpus-per-task" in reader.given:
        reader.options["cpus"] = float(cpus)
    kind, gpus = _gpus(reader, nodes, tasks)
    if gpus:
        reader.options["gpus"] = f"{kind}:{gpus}" if kind else gpus
    launcher = reader.given.get("launcher")
    if launcher is not None and tasks > 1:
        reader.notes.append((launcher.line, f"{launcher.value} starts the processes, so the script runs once on each node"))
    elif tasks > 1 or nodes > 1:
        line = max(reader.given[name].line for name in ("ntasks-per-node", "ntasks", "nodes") if name in reader.given)
        reader.notes.append((line, "each rank runs the whole script, as under srun"))
    workers = max(tasks, gpus)
    if launcher is not None and workers > 1:  # the one rank of a node would have the threads of all of its workers
        reader.options["env"] = (f"OMP_NUM_THREADS={max(1, cpus // workers)}",)
    if tasks > 1 or gpus > 1 or nodes > 1:
        reader.options["ranks"] = 1 if launcher is not None else tasks
    for name, count in (("mem", 1), ("mem-per-cpu", cpus), ("mem-per-gpu", gpus)):
        _memory(reader, name, count)
    if "tmp" in reader.given:
        reader.options["disk"] = _size(reader, reader.given["tmp"], 1)


def _nodes(reader: _Reader) -> int:
    one = reader.given.get("nodes")
    if one is None:
        return 1
    match = _NODES.match(one.value)
    if match is None or not int(match["least"]):
        reader.fault(one, "expected a number of nodes, or a range such as 2-4")
        return 1
    reader.options["nodes"] = int(match["least"])
    if match["most"] is not None and int(match["most"]) > int(match["least"]):
        reader.options["nodes_max"] = int(match["most"])
    return int(match["least"])


def _tasks(reader: _Reader, nodes: int) -> int:
    """Tasks per node."""
    each, total = reader.number("ntasks-per-node"), reader.number("ntasks")
    if each is not None or total is None:
        return each or 1
    if total % nodes:
        uneven = f"{total} tasks cannot be divided evenly between {nodes} nodes; use --ntasks-per-node"
        reader.fault(reader.given["ntasks"], uneven)
    return max(1, total // nodes)


def _gpus(reader: _Reader, nodes: int, tasks: int) -> tuple[str, int]:
    """(kind, GPUs per node)."""
    shares: tuple[tuple[str, Callable[[int], Fraction]], ...] = (
        ("gres", Fraction), ("gpus-per-node", Fraction),
        ("gpus-per-task", lambda count: Fraction(count * tasks)), ("gpus", lambda count: Fraction(count, nodes)),
    )  # fmt: skip
    found: tuple[str, int] = ("", 0)
    for name, per_node in shares:
        one = reader.given.get(name)
        if one is None:
            continue
        value = one.value
        if name == "gres":
            value = value.removeprefix("gres/")
            if value.partition(":")[0].partition("=")[0] != "gpu" or "," in value:
                reader.fault(one, "only GPUs are known: gpu:2 or gpu:h100:2; other resources: --custom NAME=N")
                continue
            value = value[3:].lstrip(":=") or "1"
        kind, _, count = value.rpartition(":")
        share = per_node(int(count)) if count.isdecimal() and len(count) <= 6 else None
        if share is None or "," in kind or ":" in kind:
            reader.fault(one, "expected a number of GPUs, or a kind and a number such as h100:2")
        elif share.denominator != 1:
            reader.fault(one, f"{count} GPUs cannot be divided evenly between {nodes} nodes; use --gpus-per-node")
        else:
            found = (kind.lower(), int(share))
    return found


def _memory(reader: _Reader, name: str, count: int) -> None:
    one = reader.given.get(name)
    if one is None:
        return
    if one.value == "0":
        reader.fault(one, "all memory of a node cannot be asked for; give an amount")
    elif not count:
        reader.fault(one, "there are no GPUs; use --mem")
    else:
        reader.options["memory"] = _size(reader, one, count)


def _size(reader: _Reader, one: Given, count: int) -> str | None:
    """A size times `count`; Slurm's unit is MiB, and its letters mean powers of 1024."""
    match = _SIZE.match(one.value)
    if match is None:
        reader.fault(one, "expected a size such as 64G")
        return None
    return f"{int(match['number']) * count}{match['unit'].upper() or 'M'}iB"


def _licenses(reader: _Reader) -> None:
    one = reader.given.get("licenses")
    if one is not None:
        pairs = [part.partition("@")[0].partition(":") for part in one.value.split(",")]
        reader.options["custom"] = tuple(f"{name}={count or 1}" for name, _, count in pairs)


def _export(reader: _Reader) -> None:
    """Variables: sbatch passes all of the shell on by default; here only those that are named."""
    one = reader.given.get("export")
    if one is None:
        return
    named = [part for part in one.value.split(",") if part]
    if "ALL" in named:
        reader.notes.append((one.line, "--export=ALL: only variables that --env names, and PATH and a few others, go along"))
    passed = [part for part in named if part not in ("ALL", "NONE", "NIL")]
    reader.options["env"] = (*reader.options.get("env", ()), *passed)


def _start(reader: _Reader) -> None:
    """What it waits for, and the indexes of an array."""
    readers: dict[tuple[str, str], Callable[[str], object]] = {
        ("dependency", "after"): slurm_start.dependencies,
        ("begin", "begin"): slurm_start.begin,
        ("array", "array"): slurm_start.array,
    }
    for (name, option), convert in readers.items():
        one = reader.given.get(name)
        if one is None:
            continue
        try:
            value = convert(one.value)
        except ValueError as error:
            reader.fault(one, str(error))
        else:
            if value is not None:
                reader.options[option] = value


def _mail(reader: _Reader) -> None:
    user, types = reader.given.get("mail-user"), reader.given.get("mail-type")
    one = types or user
    if one is not None:
        options, note = slurm_start.notified(user and user.value, types.value if types else "")
        reader.options.update(options)
        if note is not None:
            reader.notes.append((one.line, f"--{one.name}: {note}"))


def _merged(name: str, notes: list[tuple[int, str]]) -> list[str]:
    """Notes in the order of lines; equal ones are one, with all of their lines."""
    lines: dict[str, list[int]] = {}
    for line, text in sorted(notes):
        lines.setdefault(text, []).append(line)
    return [f"{name}:{','.join(map(str, dict.fromkeys(at)))}: {text}" for text, at in lines.items()]
