"""Runs effects against the engine and the blob store. Each effect is idempotent under its key.

An effect may wait for a disk or another process, so worker threads run it. A later tick records the result.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from trainmaster.control.removals import Removals
from trainmaster.control.workers import Lane, Workers
from trainmaster.control.world import World
from trainmaster.errors import DiskFullError, OperationError
from trainmaster.lifecycle.effects import Clear, DeleteCheckpoint, Effect, Launch, Stop
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import State
from trainmaster.ports.blobs import Blobs
from trainmaster.ports.engine import Engine, Observation, Submission
from trainmaster.reserve import nothing, persistently
from trainmaster.wire.failpoint import passing

_log = logging.getLogger("trainmaster.control")
Devices = frozenset[tuple[str, int]]  # node and number


@dataclass(slots=True)
class _Stopping:
    """A stop in progress. `then` is the stop that was requested for the same key meanwhile."""

    future: "Future[None]"
    effect: Stop
    devices: Devices
    then: Stop | None = None


class EffectRunner:
    """Hands effects to workers and collects their results for the next tick.

    Laws: for one key at most one launch and one stop are in progress. A stop cancels a launch that has not begun. A launch
    waits for every stop on its devices. Only one worker at a time deletes a checkpoint.

    `release` frees some reserved space on a full disk, so that a stop can be written.
    """

    def __init__(
        self,
        engine: Engine,
        blobs: Blobs,
        credential: Callable[[AgentKey], str],
        workers: Workers,
        release: Callable[[], bool] = nothing,
    ) -> None:
        self.engine, self._credential, self._workers, self._release = engine, credential, workers, release
        self.removals = Removals(engine, blobs, workers)
        self.failed_launches: list[tuple[AgentKey, str]] = []
        self.launched: set[AgentKey] = set()  # launched, or in progress, since the current observation began
        self._launching: dict[AgentKey, Future[str | None]] = {}
        self._stopping: dict[AgentKey, _Stopping] = {}

    def run(self, effects: list[Effect], world: World) -> None:
        """Start the effects. Stops come first: they free the devices that launches need."""
        for effect in dict.fromkeys(effects):
            if isinstance(effect, Stop):
                self._stop(effect, _devices(effect.key, world))
        needed = world.forked() if any(isinstance(effect, DeleteCheckpoint) for effect in effects) else set()
        for effect in dict.fromkeys(effects):
            match effect:
                case Launch(key):
                    self._launch(key, world)
                case DeleteCheckpoint():
                    if (effect.job, effect.checkpoint) not in needed:  # else the next beat requests it again from state
                        self.removals.start(effect)
                case Clear():
                    self.removals.start(effect)
                case Stop():
                    pass
        self.collect()

    def look(self, keys: Sequence[AgentKey]) -> "Future[dict[AgentKey, Observation]]":
        """Start an observation by the engine. The result for a key in `launched` may be older than its launch."""
        self.launched = set(self._launching)
        return self._workers.submit(Lane.LOOK, lambda: self.engine.observe(keys))

    def collect(self) -> None:
        """Collect the results of finished workers. Raises: any unexpected error of a worker."""
        for key, launching in list(self._launching.items()):
            if launching.done():
                del self._launching[key]
                why = None if launching.cancelled() else launching.result()
                if why is not None:
                    self.failed_launches.append((key, why))
        for key, stopping in list(self._stopping.items()):
            if stopping.future.done():
                del self._stopping[key]
                stopping.future.result()
                if stopping.then is not None:
                    self._stop(stopping.then, stopping.devices)
        self.removals.collect()

    def has_results(self) -> bool:
        """Whether results wait to be recorded."""
        return bool(self.failed_launches or self.removals.deleted or self.removals.cleared)

    def forget_results(self) -> None:
        """Drop the results: they are on record."""
        self.failed_launches, self.removals.deleted, self.removals.cleared = [], [], []

    def _stop(self, effect: Stop, devices: Devices) -> None:
        """Order a stop. A launch of the same key that has not begun is cancelled."""
        launching = self._launching.get(effect.key)
        if launching is not None:
            launching.cancel()
        there = self._stopping.get(effect.key)
        if there is None:
            future = self._workers.submit(Lane.STOP, lambda: self._order(effect))
            self._stopping[effect.key] = _Stopping(future, effect, devices)
        elif effect != there.effect:
            there.then = effect

    def _order(self, effect: Stop) -> None:
        """Run by a worker. On a full disk, the next beat requests the stop again from state."""
        passing("engine.stop.before")
        try:
            persistently(lambda: self.engine.stop(effect.key, effect.grace_s), self._release)
        except (OperationError, DiskFullError) as error:
            _log.error("%s %s", error.message, error.hint)
        passing("engine.stop.after")

    def _launch(self, key: AgentKey, world: World) -> None:
        job = world.jobs.get(key.job)
        if job is None or job.attempt is None or job.attempt.number != key.attempt or job.state is not State.STARTING:
            return  # stopped within the same tick
        devices = _devices(key, world)
        if key in self._launching or any(devices & one.devices for one in self._stopping.values() if not one.future.done()):
            return  # the next beat requests it again from state
        self.launched.add(key)
        submission = Submission(key, job, self._credential(key))
        self._launching[key] = self._workers.submit(Lane.LAUNCH, lambda: self._start(submission))

    def _start(self, submission: Submission) -> str | None:
        """Run by a worker. Returns the reason if the agent is certain not to start."""
        passing("engine.submit.before")
        why = None
        try:
            self.engine.submit(submission)
        except (OperationError, DiskFullError) as error:
            why = self._abandon(submission.key, f"{error.message} {error.hint}".strip())
        passing("engine.submit.after")
        return why

    def _abandon(self, key: AgentKey, why: str) -> str | None:
        """Stop the key so that a late start is impossible, and only then report the failure."""
        try:
            persistently(lambda: self.engine.stop(key, 0.0), self._release)
        except (OperationError, DiskFullError) as error:  # the next beat requests the launch again from state
            _log.error("%s; %s %s", why, error.message, error.hint)
            return None
        return why


def _devices(key: AgentKey, world: World) -> Devices:
    """Devices that an agent's attempt holds on its node; none if the attempt is not the job's current one."""
    job = world.jobs.get(key.job)
    if job is None or job.attempt is None or job.attempt.number != key.attempt:
        return frozenset()
    shares = job.attempt.allocation.shares
    if key.node_index >= len(shares):
        return frozenset()
    share = shares[key.node_index]
    return frozenset((share.node, device) for device in share.devices)
