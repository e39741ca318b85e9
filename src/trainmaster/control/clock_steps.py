"""Following a step of the machine's clock: every date that still matters moves along, in one transaction."""

import logging
import time
from pathlib import Path
from typing import Protocol

from trainmaster import troubles
from trainmaster.control.world import Batch, World
from trainmaster.model.events import ClockSet
from trainmaster.ports.store import EventStore, Unread

TOLD_S = 3600.0  # how long a step is shown
_TOPIC = "clock"
_log = logging.getLogger("trainmaster.control")


class Steps(Protocol):
    """How the machine's clock is set: `control.clock.SteadyClock`."""

    def stepped_s(self) -> float: ...

    def begin(self, by_s: float, after: int) -> None: ...

    def follow(self, by_s: float) -> None: ...


def moved(world: World, events: EventStore, by_s: float, now_s: float) -> Batch:
    """What is recorded of a step by `by_s` seconds; `now_s` is the time after it.

    Jobs that are not over move, so that no wait, limit or back-off changes. Of those that are over only the ones move that
    ended in the stretch that a clock set back takes back: their dates would lie in the future.
    """
    batch = Batch(world, now_s, on_record=events.job)
    batch.record_cluster(ClockSet(by_s))
    late = set(events.dated_after(now_s)) - set(world.jobs) if by_s < 0 else set[str]()
    for id in (*world.jobs, *sorted(late)):
        job = batch.known(id)
        if job is not None and (not job.state.ended or (job.ended_s or 0.0) > now_s):
            batch.recall(id)
            batch.record(id, ClockSet(by_s))
    return batch


def is_recorded(events: EventStore, after: int, by_s: float) -> bool:
    """Whether the first event behind number `after` is a step by so much.

    One that cannot be decoded is known by its type: at this place nothing else was about to be recorded.
    """
    for recorded in events.told(after, 1):
        if isinstance(recorded, Unread):
            return recorded.type == ClockSet.__name__
        return recorded.event == ClockSet(by_s)
    return False


def tell(by_s: float) -> None:
    """Say it where the server's trouble is shown; `settle` takes it back."""
    way = "forward" if by_s > 0 else "back"
    _say(f"the machine's clock was set {way} by {_span(abs(by_s))}: dates moved along, no wait is longer or shorter for it")


def tell_unknown(place: Path) -> None:
    """Likewise, that nobody can say whether the clock was set before this start."""
    _say(f"{place} is damaged: whether the machine's clock was set while the server was down is not known")


def _say(text: str) -> None:
    _log.warning("%s", text)
    troubles.say(_TOPIC, text)
    _told_s[:] = [time.monotonic()]


def settle() -> None:
    """A step is news for an hour."""
    if _told_s and time.monotonic() - _told_s[0] > TOLD_S:
        _told_s.clear()
        troubles.clear(_TOPIC)


_told_s: list[float] = []


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
