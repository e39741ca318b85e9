"""Where a job would like to run, besides what it must have: which nodes it prefers, and how long it waits for better ones."""

from typing import NamedTuple

from trainmaster.scheduling.ask import Ask, confined
from trainmaster.scheduling.domains import BOTH, wider


class Wish(NamedTuple):
    """What a spec says under `placement` that a job can do without.

    `strategy` is how nodes are chosen, in place of the policy's own way. `prefer` is a level (`domains`) in one domain of which
    it would be: for `prefer_s` seconds in the queue it waits for that, and then takes the narrowest that there is. `group` and
    `near` are names: nodes close to jobs of that group, or to that data, are taken first.
    """

    strategy: str | None = None
    prefer: str | None = None
    prefer_s: float = 0.0
    group: str | None = None
    near: str | None = None

    def levels(self, ask: Ask) -> tuple[str, ...]:
        """What is to be tried before the request as it is: the level that it prefers, then wider ones; within that of `ask`."""
        if self.prefer is None or ask.nodes == 1:
            return ()
        found = wider(self.prefer)
        if ask.within is None:
            return found
        if BOTH in ask.within:
            return ()
        narrower = found[: found.index(ask.within)] if ask.within in found else found
        return tuple(f"{ask.within}{BOTH}{level}" for level in narrower)

    def best(self, ask: Ask) -> Ask:
        """The request, in one domain of the level that it prefers."""
        return next((confined(ask, level) for level in self.levels(ask)), ask)

    def patient(self, since_s: float, now_s: float) -> bool:
        """Whether one that has been in the queue since then would still wait for that."""
        return self.prefer is not None and now_s < since_s + self.prefer_s


ANYWHERE = Wish()
