"""Under which names the runs beside the job's own are recorded, over all its attempts. No I/O."""

from __future__ import annotations

from trainmaster.agent.mlflow.fields import VALUE_MAX
from trainmaster.wire.names import FILES, MODEL, OWN, RUN, SYSTEM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

    from trainmaster.wire.launch import RunIdentity

_LONGEST = 100  # characters


class Prefixes:
    """What names in the record begin with, for each further run and model: `fold-1` of `fold-1/accuracy`."""

    def __init__(self, identity: RunIdentity) -> None:
        self.earlier = identity.get("prefixes", {})  # of earlier attempts
        self._values = {"params": identity["params"], "tags": identity["tags"]}
        self.taken = {*self.earlier, SYSTEM.rstrip("/"), *map(_first, (*identity["params"], *identity["tags"]))}
        self._kinds = dict(self.earlier)  # and of this attempt
        self._begun: dict[str, str] = {}  # of runs, in this attempt -> the name that each would have
        self._clashed: set[str] = set()

    def of_main(self, kind: str) -> dict[str, str]:
        """The params or tags that earlier attempts logged for the job's own run."""
        return {name: value for name, value in self._values[kind].items() if self.earlier.get(_first(name)) != RUN}

    def places(self) -> set[str]:
        """The directories of earlier attempts. A parameter `model/depth` is in none."""
        return {name for name, kind in self.earlier.items() if kind in (RUN, MODEL, FILES)}

    def own(self, names: Iterable[str]) -> set[str]:
        """The job's own run logs these names. Returns the prefixes that are its own from now on."""
        news = {_first(name) for name in names if "/" in name} - self.taken
        self.taken |= news
        return news

    def files(self, name: str) -> set[str]:
        """The job's own run keeps a file of this name. Returns the directory that is its own from now on."""
        first = _first(name)
        if "/" not in name or self._kinds.get(first, OWN) != OWN:
            return set()
        self.taken.add(first)
        self._kinds[first] = FILES
        return {first}

    def mixes(self, name: str) -> bool:
        """Whether a file of the job's own run is in the directory of a further run or a model. Says it once for each."""
        first = _first(name)
        if "/" not in name or self._kinds.get(first) not in (RUN, MODEL) or f"{first}/" in self._clashed:
            return False
        self._clashed.add(f"{first}/")
        return True

    def model(self, place: str) -> None:
        """A model has this directory."""
        self.taken.add(place)
        self._kinds[place] = MODEL

    def clashes(self, names: Iterable[str]) -> list[str]:
        """New ones of these names of the job's own run that look as if a further run had logged them."""
        below = [name for name in names if "/" in name]
        news = [name for name in below if _first(name) in self._begun and name not in self._clashed]
        self._clashed.update(news)
        return news

    def below(self, prefix: str, kind: str) -> dict[str, str]:
        """The params or tags that earlier attempts logged for a further run."""
        values = self._values[kind].items()
        return {name[len(prefix) + 1 :]: value for name, value in values if name.startswith(f"{prefix}/")}

    def begin(self, name: str, tags: dict[str, str], number: int) -> tuple[str, bool]:
        """The prefix of a run, and whether it is presumed to be one of an earlier attempt.

        A run with a name that earlier attempts used once, and without other tags, is presumed to be that one. Without a name,
        or if they used it several times, it may be any of them, so it is a new one. If something else has its name, that had
        it then too, and the run was `name-2`. `number`: the run's, if it has no name.
        """
        plain = "".join(one if one.isprintable() and one != "/" else "-" for one in name[:_LONGEST]).strip(" .")
        others = plain in self.taken and plain not in self._begun and self.earlier.get(plain) != RUN
        prefix, second = (f"{plain}-2", f"{plain}-3") if others else (plain, f"{plain}-2")
        once = self.earlier.get(prefix) == RUN and second not in self.earlier and prefix not in self._begun
        known = self.below(prefix, "tags")
        if once and all(known.get(tag) == value[:VALUE_MAX] for tag, value in tags.items() if not tag.startswith("mlflow.")):
            self._begun[prefix] = plain
            return prefix, True
        return self._another(plain or f"run-{number}"), False

    def part(self, prefix: str) -> str:
        """A new prefix for a run that was presumed to be this one."""
        return self._another(self._begun[prefix])

    def _another(self, base: str) -> str:
        """A prefix that nothing has yet: `base`, or `base-2`, …"""
        prefix, again = base, 1
        while prefix in self.taken:
            again += 1
            prefix = f"{base}-{again}"
        self.taken.add(prefix)
        self._begun[prefix], self._kinds[prefix] = base, RUN
        return prefix


def _first(name: str) -> str:
    return name.partition("/")[0]
