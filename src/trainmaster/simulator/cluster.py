"""Parses clusters for a replay: an expression (`8x8:a100, 4x4:h100`), a file, or changes to an existing cluster."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainmaster.errors import SpecError, UsageError
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.request import WHOLE, milli
from trainmaster.scheduling.model.space import Site
from trainmaster.simulator.line_reader import WHOLE_MAX
from trainmaster.simulator.trace import gpu_nodes, named, processors
from trainmaster.spec.faults import Fault, describe, nearest, spec_error
from trainmaster.spec.fields.values import size_bytes
from trainmaster.spec.yaml.reader import Document, Positions, dotted, parse

ANY = "gpu"  # the kind of a GPU whose kind is not given
BARE = "cpu"  # nodes without GPUs, in `--add` and `--remove`
_GROUP = re.compile(r"(?P<nodes>\d{1,7})(?:\s*[x×]\s*(?P<gpus>\d{1,4})(?:\s*:\s*(?P<kind>[a-z][a-z0-9_.-]*))?)?\Z", re.I)
_CHANGE = re.compile(r"(?P<kind>[a-z][a-z0-9_.-]*)\s*:\s*(?P<nodes>\d{1,7})\s*(?:nodes?|[x×]\s*(?P<gpus>\d{1,4}))?\Z", re.I)
_KIND = re.compile(r"(?P<kind>[a-z][a-z0-9_.-]*):(?P<count>\d{1,4})\Z", re.I)
_FIELDS = ("name", "count", "gpus", "cpus", "memory", "pool")
_FORM = "write NODESxGPUS:KIND, as in '8x8:a100, 4x4:h100', a number of processors, or the name of a YAML file"
_CHANGE_FORM = "write KIND: N nodes or KIND: NODESxGPUS, as in 'a100: 4 nodes' or 'a100: 4x8'; nodes without GPUs are cpu"


def cluster(text: str) -> tuple[Site, ...]:
    """The nodes for a value of `--cluster`. Raises: UsageError, SpecError with line and column of a file."""
    if text.endswith((".yaml", ".yml", ".json")):
        return _of_file(Path(text))
    sites: tuple[Site, ...] = ()
    for at, group in enumerate(part.strip() for part in text.split(",")):
        match = _GROUP.match(group)
        if match is None or int(match["nodes"]) < 1 or len(sites) + int(match["nodes"]) > WHOLE_MAX:
            raise UsageError(f"--cluster: {group!r} is not a group of nodes", _FORM)
        count, gpus = int(match["nodes"]), int(match["gpus"] or 0)
        more = gpu_nodes(count, gpus, (match["kind"] or ANY).lower()) if gpus else processors(count)
        sites += tuple(site._replace(name=f"g{at}-{site.name}") for site in more)
    return sites


def _of_file(path: Path) -> tuple[Site, ...]:
    """A file with a list of nodes; equal nodes are one entry with a `count`."""
    try:
        document = parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"--cluster: {path} cannot be read: {error.strerror}", _FORM) from error
    except SpecError as error:
        raise SpecError(error.message, _HINT, error.details) from error
    faults: list[Fault] = [*document.faults]
    if not isinstance(document.value, list) or not document.value:
        got = "an empty one" if document.value == [] else describe(document.value)
        faults.append(_at(document.where, (), f"expected a list of nodes, got {got}"))
        raise spec_error(faults, _HINT)
    sites: list[Site] = []
    for at, entry in enumerate(document.value):
        found = _group(entry, at, document, faults)
        if found is not None:
            sites += found
    if faults:
        raise spec_error(faults, _HINT)
    if len({site.name for site in sites}) < len(sites):
        twice = Counter(site.name for site in sites).most_common(1)[0][0]
        raise spec_error([_at(document.where, (), f"two nodes are named {twice}; give their groups a name each")], _HINT)
    return tuple(sites)


_HINT = "one entry: {name: big, count: 4, gpus: a100:8, cpus: 64, memory: 512GiB, pool: default}; only count or gpus is needed"


def _at(where: Positions, path: tuple[str | int, ...], message: str, key: bool = False) -> Fault:
    line, column = where.key(path) if key else where.value(path)
    return Fault(dotted(path), message, file=where.file, line=line, column=column)


def _group(entry: Any, at: int, document: Document, faults: list[Fault]) -> tuple[Site, ...] | None:
    """The nodes of one entry; None if it has faults."""
    where, before = document.where, len(faults)
    if not isinstance(entry, dict):
        faults.append(_at(where, (at,), f"expected a node, got {describe(entry)}"))
        return None
    for name in entry:
        if name not in _FIELDS:
            near = nearest(str(name), _FIELDS)
            meant = f"; did you mean {near!r}?" if near else f"; known are {', '.join(_FIELDS)}"
            faults.append(_at(where, (at, name), f"there is no such field{meant}", key=True))
    values: dict[str, Any] = {}
    makers = {"count": _count, "gpus": _gpus, "cpus": _cpus, "memory": size_bytes, "pool": _word, "name": _word}
    for name, make in makers.items():
        try:
            if name in entry:
                values[name] = make(entry[name])
        except ValueError as error:
            faults.append(_at(where, (at, name), str(error)))
    if len(faults) > before:
        return None
    gpus, kind = values.get("gpus", (0, ANY))
    cpus = values.get("cpus", float(max(1, gpus)))
    cell = Cell((kind,) if gpus else (), (gpus,) if gpus else (), (), milli(cpus), values.get("memory", 0))
    pool = values.get("pool", "default")
    site = Site("", cell._replace(pool=pool), (0,) * gpus, pool=pool)
    return named(site, values.get("count", 1), values.get("name", f"g{at}-n"))


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= WHOLE_MAX:
        raise ValueError(f"expected a whole number from 1 to {WHOLE_MAX:,}, got {describe(value)}")
    return value


def _gpus(value: object) -> tuple[int, str]:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= WHOLE:
        return value, ANY
    match = _KIND.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected a number of GPUs, or KIND:NUMBER such as a100:8, got {describe(value)}")
    return int(match["count"]), match["kind"].lower()


def _cpus(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= WHOLE_MAX:
        raise ValueError(f"expected a number of CPUs, got {describe(value)}")
    return float(value)


def _word(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a name, got {describe(value)}")
    return value


def changed(sites: tuple[Site, ...], add: Sequence[str], remove: Sequence[str]) -> tuple[Site, ...]:
    """The cluster with nodes added, then removed. Raises: UsageError."""
    for at, text in enumerate(add):
        sites += _added(sites, text, f"new{at}-")
    for text in remove:
        kind, count, gpus = _change("--remove", text)
        going = [site for site in sites if _is(site, kind) and gpus in (0, len(site.devices))][-count:]
        if len(going) < count:
            raise UsageError(f"--remove {text!r}: there {_such(len(going), kind, gpus)}", _kinds(sites))
        gone = {site.name for site in going}
        sites = tuple(site for site in sites if site.name not in gone)
    if not sites:
        if not remove:
            raise UsageError("no node is up to replay it on", "tm nodes lists them; or name others: --cluster '8x8:a100'")
        raise UsageError("no node is left", "remove fewer")
    return sites


def _such(count: int, kind: str, gpus: int) -> str:
    of = f"{kind} nodes" + (f" with {gpus} GPUs" if gpus else "")
    return "is 1 such node" if count == 1 else f"are {count} {of}"


def check_changes(add: Sequence[str], remove: Sequence[str]) -> None:
    """Check how the changes are written, before a trace is read. Raises: UsageError."""
    for option, texts in (("--add", add), ("--remove", remove)):
        for text in texts:
            _change(option, text)


def _change(option: str, text: str) -> tuple[str, int, int]:
    match = _CHANGE.match(text.strip())
    if match is None or not int(match["nodes"]) or int(match["nodes"]) > WHOLE_MAX:
        raise UsageError(f"{option} {text!r} is not understood", _CHANGE_FORM)
    return match["kind"].lower(), int(match["nodes"]), int(match["gpus"] or 0)


def _added(sites: tuple[Site, ...], text: str, prefix: str) -> tuple[Site, ...]:
    """Nodes like most others of their kind, with the given number of GPUs."""
    kind, count, gpus = _change("--add", text)
    alike = Counter(_bare(site) for site in sites if _is(site, kind))
    if gpus:
        alike = Counter({site: n for site, n in alike.items() if len(site.devices) == gpus})
    if alike:
        return named(alike.most_common(1)[0][0], count, prefix)
    if kind == BARE or not gpus:
        hint = f"say how many GPUs each has: '{kind}: {count}x8'" if kind != BARE else "give a cluster file: --cluster FILE"
        raise UsageError(f"--add {text!r}: there is no node of that kind to copy", f"{hint}; {_kinds(sites)}")
    return named(_scaled(sites, kind, gpus), count, prefix)


def _scaled(sites: tuple[Site, ...], kind: str, gpus: int) -> Site:
    """A node of a new kind, with the CPUs and memory per GPU of most nodes with GPUs."""
    with_gpus = Counter(_bare(site) for site in sites if site.devices)
    if not with_gpus:
        return Site("", Cell((kind,), (gpus,), (), gpus * WHOLE, max(site.cell.memory for site in sites)), (0,) * gpus)
    like = with_gpus.most_common(1)[0][0]
    cpus, memory = (amount * gpus // len(like.devices) for amount in (like.cell.cpus, like.cell.memory))
    return like._replace(cell=like.cell._replace(kinds=(kind,), whole=(gpus,), cpus=cpus, memory=memory), devices=(0,) * gpus)


def _bare(site: Site) -> Site:
    return site._replace(name="", host="")


def _is(site: Site, kind: str) -> bool:
    return site.cell.kinds == (kind,) if kind != BARE else not site.devices


def _kinds(sites: tuple[Site, ...]) -> str:
    return f"here are {described(sites)}"


def described(sites: Sequence[Site]) -> str:
    """`8 nodes of 8 a100, 4 nodes of 4 h100`, `128 nodes of 1 CPU`."""
    groups = Counter(_words(site) for site in sites)
    return ", ".join(f"{count} node{'s' * (count != 1)} of {what}" for what, count in groups.most_common())


def _words(site: Site) -> str:
    if not site.devices:
        return f"{site.cell.cpus / WHOLE:g} CPU{'s' * (site.cell.cpus != WHOLE)}"
    counts = zip(site.cell.kinds, site.cell.whole, strict=True)
    return " and ".join(f"{count} {kind if kind != ANY else 'GPU' + 's' * (count != 1)}" for kind, count in counts)
