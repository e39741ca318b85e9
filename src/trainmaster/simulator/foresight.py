"""Forecasts made during a replay, held against what became of them: one for each job that has to wait, when it comes."""

import time
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from trainmaster.scheduling.forecast import Calibration, Waits, forecasts
from trainmaster.scheduling.lifetimes import Lifetimes
from trainmaster.scheduling.policy import Policy
from trainmaster.scheduling.snapshot import Snapshot


class Told(NamedTuple):
    """What was said at `at_s` of a job that then waited so long; `seconds` is the processor time that it took."""

    job: str
    at_s: float
    said: Waits
    waited_s: float
    seconds: float


@dataclass(slots=True)
class Foresight:
    """Watches a replay (`Replay.seen`): what it knows at a moment is what had happened by then.

    `every`: a forecast for each so-many-th job that has to wait.
    """

    policy: Policy
    every: int = 1
    told: list[Told] = field(default_factory=list)  # in the order of the starts
    waited: int = 0  # jobs that had to wait
    _known: set[str] = field(default_factory=set)
    _open: dict[str, tuple[float, Waits, Waits, float]] = field(default_factory=dict)
    _ended: int = 0
    _lifetimes: Lifetimes = field(default_factory=Lifetimes)
    _calibration: Calibration = field(default_factory=Calibration)

    def __call__(self, snapshot: Snapshot) -> None:
        """A decision has been carried out."""
        for past in snapshot.ended[self._ended :]:
            self._lifetimes.learn(past)
        self._ended = len(snapshot.ended)
        for id in [id for id in self._open if id not in snapshot.waiting]:
            at_s, drawn, said, seconds = self._open.pop(id)
            waited_s = snapshot.now_s - at_s
            self.told.append(Told(id, at_s, said, waited_s, seconds))
            self._calibration = self._calibration.after(drawn, waited_s)
        for id in [id for id in snapshot.waiting if id not in self._known]:
            self._known.add(id)
            self.waited += 1
            if self.waited % self.every == 0:
                self._say(snapshot, id)
        self._known.update(snapshot.running)

    def _say(self, snapshot: Snapshot, id: str) -> None:
        began_s = time.process_time()
        drawn = forecasts(snapshot, self.policy, self._lifetimes, (id,), Random(id)).get(id)
        if drawn is not None:
            said = self._calibration.corrected(drawn)
            self._open[id] = snapshot.now_s, drawn, said, time.process_time() - began_s
