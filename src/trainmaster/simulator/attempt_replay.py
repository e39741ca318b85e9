"""Replays recorded attempts: the production life cycle and restart policy decide about a job that failed or was restarted.

Assumptions. A failure happens after the run time on record, wherever the attempt runs; a preemption only splits the attempt.
The next attempt runs as long as it did, repeated work included. The restart policy decides whether there is a next attempt,
and its back-off, not the record: a job that may now be restarted more often ends with its last recorded attempt. One agent
stands for the whole gang. Delays between a decision and its effect are not replayed.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from trainmaster.lifecycle.machine import apply, submit
from trainmaster.model.events import AttemptEnded, CancelRequested, NodeEnded, NodeStarted, Placed, StopOrdered, Submitted
from trainmaster.model.job import Action, Cause, Job, Outcome, RankEnd, State, StopFor
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.recovery.restart_policy import verdict_of
from trainmaster.simulator.trace import Arrival, Try

_STOPPED = Outcome((RankEnd(0, signal=15, stopped_by_us=True),))
_TERM, _KILL, _SEGV = 15, 9, 11


class AttemptReplay:
    """One job from its submission to its end. `rng` only spreads back-offs."""

    def __init__(self, arrival: Arrival, seq: int, rng: Random) -> None:
        spec = JobSpec("-", project=arrival.project, restarts=arrival.restarts, time_limit_s=arrival.limit_s)
        submitted = Submitted(seq, spec, Origin(arrival.member), CodeCopy(), arrival.submit_s)
        self.job: Job = submit(arrival.id, submitted, arrival.submit_s)
        self.tries, self._at, self._rng = arrival.tries, 0, rng

    def placed(self, node: str, now_s: float) -> None:
        """Start the next attempt."""
        number = 1 + (self.job.attempt.number if self.job.attempt is not None else 0)
        self._apply(Placed(number, Allocation((NodeShare(node, "", 0.0),))), now_s)
        self._apply(NodeStarted(number, 0), now_s)

    def evicted(self, now_s: float) -> None:
        """Preempt the job. The rest of its attempt is still to come."""
        self._apply(StopOrdered(StopFor.EVICT, "it was preempted by another job"), now_s)
        self._over(_STOPPED, now_s)

    def ended(self, now_s: float) -> float | None:
        """End the attempt as recorded. Returns the run time of the next one, in seconds; None: the job is over."""
        attempt = self.tries[self._at]
        if attempt.cause is Cause.CANCELLED:
            self._apply(CancelRequested("its owner"), now_s)
        elif attempt.cause is Cause.TIME_LIMIT:
            self._apply(StopOrdered(StopFor.LIMIT, "its time limit"), now_s)
        elif attempt.cause is Cause.START_LIMIT:
            self._apply(StopOrdered(StopFor.START, "its limit for starting"), now_s)
        action = self._over(replace(outcome(attempt, self._furthest()), ran_s=attempt.ran_s), now_s)
        self._at += 1
        if action is not Action.RESTART or self._at == len(self.tries):
            return None
        return self.tries[self._at].ran_s

    @property
    def well(self) -> bool:
        """Whether it succeeded."""
        return self.job.state is State.SUCCEEDED

    def _furthest(self) -> int:
        """The step of this attempt: one more for each attempt with progress."""
        return sum(one.progressed for one in self.tries[: self._at + 1])

    def _over(self, how: Outcome, now_s: float) -> Action:
        assert self.job.attempt is not None
        number = self.job.attempt.number
        self._apply(NodeEnded(number, 0, how), now_s)
        verdict = verdict_of(self.job, self._rng)
        self._apply(AttemptEnded(number, verdict), now_s)
        return verdict.action

    def _apply(
        self, event: Placed | NodeStarted | StopOrdered | CancelRequested | NodeEnded | AttemptEnded, now_s: float
    ) -> None:
        self.job, _ = apply(self.job, self.job.id, event, now_s)


def outcome(attempt: Try, furthest: int) -> Outcome:
    """The outcome that an agent would report for a recorded attempt; `recovery.classify` derives the cause from it."""
    step = furthest or None
    match attempt.cause:
        case None:
            return Outcome((RankEnd(0, exit_code=0),), last_step=step)
        case Cause.OUT_OF_MEMORY:
            return Outcome((RankEnd(0, signal=_KILL),), over_memory=True, last_step=step)
        case Cause.AGENT_LOST | Cause.NODE_LOST:
            return Outcome(lost=True, last_step=step)
        case Cause.LAUNCH:
            return Outcome(launch_error="as on record", last_step=step)
        case Cause.MACHINE:
            return Outcome(machine_error="as on record", last_step=step)
        case Cause.RENDEZVOUS:
            return Outcome((RankEnd(0, exit_code=attempt.exit_code or 1),), port_in_use=True)
        case Cause.CRASH:
            return Outcome((RankEnd(0, signal=attempt.signal or _SEGV),), last_step=step)
        case Cause.KILLED:
            return Outcome((RankEnd(0, signal=attempt.signal or _KILL),), last_step=step)
        case Cause.PROGRAM:
            return Outcome((RankEnd(0, exit_code=attempt.exit_code or 1),), last_step=step)
        case Cause.TIME_LIMIT | Cause.START_LIMIT | Cause.EVICTED | Cause.SHRUNK | Cause.CANCELLED:
            return Outcome((RankEnd(0, signal=_TERM, stopped_by_us=True),), last_step=step)


def attempt_replays(arrivals: Sequence[Arrival], seed: int) -> dict[str, AttemptReplay]:
    """Replays of the jobs with recorded attempts."""
    rng = Random(seed)
    return {one.id: AttemptReplay(one, seq, rng) for seq, one in enumerate(arrivals) if one.tries}
