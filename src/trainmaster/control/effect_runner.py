"""Runs effects against the engine and the blob store. Each effect is idempotent under its key.

An effect may wait for a disk or another process, so worker threads run it. A later tick records the result.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from trainmaster.control.removal_retries import RemovalRetries
from trainmaster.control.workers import Lane, Threads, Workers
from trainmaster.control.world import World
from trainmaster.errors import DiskFullError, OperationError, TrainmasterError
from trainmaster.lifecycle.effects import Clear, DeleteCheckpoint, Effect, Launch, Stop
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import State
from trainmaster.model.storage_kinds import ON_NODES
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


@dataclass(slots=True)
class EffectRunner:
    """Hands effects to workers and collects their results for the next tick.

    Laws: for one key at most one launch and one stop are in progress. A stop cancels a launch that has not begun. A launch
    waits for every stop on its devices. Only one worker at a time deletes a checkpoint.
    """

    engine: Engine
    blobs: Blobs
    credential: Callable[[AgentKey], str]
    workers: Workers = field(default_factory=Threads)
    release: Callable[[], bool] = nothing  # on a full disk, frees some reserved space so that a stop can be written
    failed_launches: list[tuple[AgentKey, str]] = field(default_factory=list)
    deleted: list[DeleteCheckpoint] = field(default_factory=list)
    cleared: list[tuple[Clear, int]] = field(default_factory=list)  # with the number of bytes removed
    launched: set[AgentKey] = field(default_factory=set)  # launched, or in progress, since the current observation began
    _launching: dict[AgentKey, "Future[str | None]"] = field(default_factory=dict)
    _stopping: dict[AgentKey, _Stopping] = field(default_factory=dict)
    _deleting: "dict[DeleteCheckpoint, Future[Exception | None]]" = field(default_factory=dict)
    _clearing: "dict[Clear, Future[int | Exception]]" = field(default_factory=dict)
    _removals: RemovalRetries = field(default_factory=RemovalRetries)

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
                        self._delete(effect)
                case Clear():
                    if effect not in self._clearing and self._removals.due(effect):
                        self._clearing[effect] = self.workers.submit(Lane.DELETE, partial(self._clear, effect))
                case Stop():
                    pass
        self.collect()

    def look(self, keys: Sequence[AgentKey]) -> "Future[dict[AgentKey, Observation]]":
        """Start an observation by the engine. The result for a key in `launched` may be older than its launch."""
        self.launched = set(self._launching)
        return self.workers.submit(Lane.LOOK, lambda: self.engine.observe(keys))

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
        for effect, deleting in list(self._deleting.items()):
            if deleting.done():
                del self._deleting[effect]
                self._deleted(effect, deleting.result())
        for clear, clearing in list(self._clearing.items()):
            if clearing.done():
                del self._clearing[clear]
                self._cleared(clear, clearing.result())

    def _clear(self, effect: Clear) -> int | Exception:
        """Run by a worker. Returns the number of bytes removed, or the error; a failed removal is retried."""
        try:
            if effect.kind in ON_NODES:
                return self.engine.clear(effect.job, effect.kind)
            self.blobs.delete_tree(f"{effect.kind}/{effect.job}")
        except (OSError, TrainmasterError) as error:
            return error
        return 0

    def _cleared(self, effect: Clear, found: int | Exception) -> None:
        self._removals.note(effect, None if isinstance(found, int) else found)
        if isinstance(found, int):
            self.cleared.append((effect, found))

    def _delete(self, effect: DeleteCheckpoint) -> None:
        if effect not in self._deleting and self._removals.due(effect):
            self._deleting[effect] = self.workers.submit(Lane.DELETE, lambda: self._remove(effect))

    def _remove(self, effect: DeleteCheckpoint) -> Exception | None:
        """Run by a worker. A store that is unavailable or read-only is retried."""
        try:
            self.blobs.delete_tree(f"checkpoints/{effect.job}/{effect.checkpoint}")
        except (OSError, TrainmasterError) as error:
            return error
        return None

    def _deleted(self, effect: DeleteCheckpoint, error: Exception | None) -> None:
        self._removals.note(effect, error)
        if error is None:
            self.deleted.append(effect)

    def _stop(self, effect: Stop, devices: Devices) -> None:
        """Order a stop. A launch of the same key that has not begun is cancelled."""
        launching = self._launching.get(effect.key)
        if launching is not None:
            launching.cancel()
        there = self._stopping.get(effect.key)
        if there is None:
            future = self.workers.submit(Lane.STOP, lambda: self._order(effect))
            self._stopping[effect.key] = _Stopping(future, effect, devices)
        elif effect != there.effect:
            there.then = effect

    def _order(self, effect: Stop) -> None:
        """Run by a worker. On a full disk, the next beat requests the stop again from state."""
        passing("engine.stop.before")
        try:
            persistently(lambda: self.engine.stop(effect.key, effect.grace_s), self.release)
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
        submission = Submission(key, job, self.credential(key))
        self._launching[key] = self.workers.submit(Lane.LAUNCH, lambda: self._start(submission))

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
            persistently(lambda: self.engine.stop(key, 0.0), self.release)
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
