"""Which nodes are close to each other: the domains of a level, such as the nodes of one rack.

Levels are labels that an administrator gives (`zone`, `block`, `rack`, or any other), and two that every node has: `host`, the
machine that it is a part of, and `node` itself. The block and the zone of a rack are part of its name, so racks of the same
name in two zones are two domains.
"""

from collections.abc import Collection, Iterable, Sequence

from trainmaster.model.cluster import Labels
from trainmaster.model.spec import PlacementSpec

LEVELS = ("zone", "block", "rack")  # the widest first
CHECKPOINT, DATA = "checkpoint", "data"  # what `near` may say besides the name of data; the label for data
HOST, NODE = "host", "node"
BOTH = "/"  # between levels of which a gang must be in one domain each
NOWHERE = -1  # the domain of a node that has no such label

Domain = tuple[str, ...]


def domain_of(level: str, name: str, labels: Labels, host: str) -> Domain | None:
    """The domain of a node; None: it is in none of this level. Of several levels (`zone/rack`) it must be in one of each."""
    if BOTH in level:
        several = [domain_of(one, name, labels, host) for one in level.split(BOTH)]
        return tuple(part for one in several for part in one or ()) if None not in several else None
    if level == NODE:
        return (name,)
    if level == HOST:
        return (host or name,)
    found = dict(labels)
    if level not in found:
        return None
    above = LEVELS[: LEVELS.index(level)] if level in LEVELS else ()
    return (*(found.get(one, "") for one in above), found[level])


def unlabelled(placement: PlacementSpec, labels: Iterable[Labels]) -> list[str]:
    """The names in `placement` that no node with these labels has: a sentence for each."""
    known: dict[str, set[str]] = {}
    for one in labels:
        for name, value in one:
            known.setdefault(name, set()).add(value)
    data = {name for value in known.pop(DATA, ()) for name in value.split(",")}
    found = []
    for key, level in (("within", placement.within), ("prefer", placement.prefer)):
        if level is not None and level not in (HOST, NODE, *known):
            found.append(f"placement.{key}: no node has the label {level!r}; {_known(known)}")
    if placement.near not in (None, CHECKPOINT, *data):
        found.append(f"placement.near: no node has the data {placement.near!r}; {_known(data)}")
    return found


def _known(names: Collection[str]) -> str:
    return f"known: {', '.join(sorted(names))}" if names else "there is none"


def numbered(domains: Sequence[Domain | None]) -> tuple[list[int], list[Domain]]:
    """The number of the domain of each, and the domains by number, sorted."""
    names = sorted({one for one in domains if one is not None})
    number = {name: i for i, name in enumerate(names)}
    return [NOWHERE if one is None else number[one] for one in domains], names


def wider(level: str) -> tuple[str, ...]:
    """This level and the wider ones that contain it, the narrowest first."""
    return LEVELS[LEVELS.index(level) :: -1] if level in LEVELS else (level,)
