"""Follows a step of the machine's clock: moves every date that still matters, in one transaction."""

import logging
import time
from pathlib import Path
from typing import Protocol

from trainmaster import troubles
from trainmaster.control.world import Batch, World
from trainmaster.model.events import ClockSet
from trainmaster.ports.store import EventStore, Unread

SHOWN_S = 3600.0  # how long a step is shown as a notice
_TOPIC = "clock"
_log = logging.getLogger("trainmaster.control")


class Steps(Protocol):
    """Detects and follows steps of the machine's clock: `control.clock.SteadyClock`."""

    def stepped_s(self) -> float: ...

    def begin(self, by_s: float, after: int) -> None: ...

    def follow(self, by_s: float) -> None: ...


def step_events(world: World, events: EventStore, by_s: float, now_s: float) -> Batch:
    """The events for a step by `by_s` seconds. `now_s` is the time after it.

    The dates of jobs that are not over move, so no wait, limit or back-off changes. Of ended jobs only those move whose end
    lies in the repeated interval of a clock that was set back: otherwise they would have ended in the future.
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
    """Whether the first event after number `after` is a step of this size.

    An event that cannot be decoded is identified by its type: nothing else was about to be recorded at this position.
    """
    for recorded in events.told(after, 1):
        if isinstance(recorded, Unread):
            return recorded.type == ClockSet.__name__
        return recorded.event == ClockSet(by_s)
    return False


def notify(by_s: float) -> None:
    """Show the step among the server's notices. `expire_notice` removes it."""
    way = "forward" if by_s > 0 else "back"
    _say(f"the machine's clock was set {way} by {_span(abs(by_s))}: dates were moved with it, no wait or limit changed")


def notify_unknown(place: Path) -> None:
    """Show that it is unknown whether the clock was set before this start."""
    _say(f"{place} is damaged: it is unknown whether the machine's clock was set while the server was down")


def _say(text: str) -> None:
    _log.warning("%s", text)
    troubles.say(_TOPIC, text)
    _shown_since_s[:] = [time.monotonic()]


def expire_notice() -> None:
    """Remove the notice of a step after an hour."""
    if _shown_since_s and time.monotonic() - _shown_since_s[0] > SHOWN_S:
        _shown_since_s.clear()
        troubles.clear(_TOPIC)


_shown_since_s: list[float] = []


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
