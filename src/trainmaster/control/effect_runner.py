"""Running effects against the world. Each is idempotent under its key, so running one twice is harmless.

What an effect does may wait for a disk or another process: workers do it, and what came of it is recorded by a later tick.
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
    """A stop on its way; `then` is what was asked of the same key meanwhile."""

    future: "Future[None]"
    effect: Stop
    devices: Devices
    then: Stop | None = None


@dataclass(slots=True)
class EffectRunner:
    """Has effects run; what came of them is collected here and recorded by the next tick.

    Laws: of one key at most one launch and one stop are on their way; a stop cancels a launch that has not begun; a launch
    waits for every stop on its devices; a checkpoint is deleted by one worker at a time.
    """

    engine: Engine
    blobs: Blobs
    credential: Callable[[AgentKey], str]
    workers: Workers = field(default_factory=Threads)
    release: Callable[[], bool] = nothing  # on a full disk, makes some room for an order to stop
    failed_launches: list[tuple[AgentKey, str]] = field(default_factory=list)
    deleted: list[DeleteCheckpoint] = field(default_factory=list)
    cleared: list[tuple[Clear, int]] = field(default_factory=list)  # and how many bytes it was
    launched: set[AgentKey] = field(default_factory=set)  # since the last look began, or on their way then
    _launching: dict[AgentKey, "Future[str | None]"] = field(default_factory=dict)
    _stopping: dict[AgentKey, _Stopping] = field(default_factory=dict)
    _deleting: "dict[DeleteCheckpoint, Future[Exception | None]]" = field(default_factory=dict)
    _clearing: "dict[Clear, Future[int | Exception]]" = field(default_factory=dict)
    _removals: RemovalRetries = field(default_factory=RemovalRetries)  # those that failed

    def run(self, effects: list[Effect], world: World) -> None:
        """Stops first: what is to make room makes room before anything new starts."""
        for effect in dict.fromkeys(effects):
            if isinstance(effect, Stop):
                self._stop(effect, _devices(effect.key, world))
        needed = world.forked() if any(isinstance(effect, DeleteCheckpoint) for effect in effects) else set()
        for effect in dict.fromkeys(effects):
            match effect:
                case Launch(key):
                    self._launch(key, world)
                case DeleteCheckpoint():
                    if (effect.job, effect.checkpoint) not in needed:  # else state alone calls for it again at each beat
                        self._delete(effect)
                case Clear():
                    if effect not in self._clearing and self._removals.due(effect):
                        self._clearing[effect] = self.workers.submit(Lane.DELETE, partial(self._clear, effect))
                case Stop():
                    pass
        self.collect()

    def look(self, keys: Sequence[AgentKey]) -> "Future[dict[AgentKey, Observation]]":
        """Have the engine asked. What it says of `launched` keys may be older than their launch."""
        self.launched = set(self._launching)
        return self.workers.submit(Lane.LOOK, lambda: self.engine.observe(keys))

    def collect(self) -> None:
        """Take what workers have finished. Raises: what one of them did not expect."""
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
        """By a worker; how many bytes it was. A disk that refuses is asked again."""
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
        """By a worker. A store that is away or read-only is asked again."""
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
        """One that was launched a moment ago and whose launch has not begun is never launched."""
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
        """By a worker. On a full disk state alone calls for it again at the next beat."""
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
            return  # state alone calls for it again at the next beat
        self.launched.add(key)
        submission = Submission(key, job, self.credential(key))
        self._launching[key] = self.workers.submit(Lane.LAUNCH, lambda: self._start(submission))

    def _start(self, submission: Submission) -> str | None:
        """By a worker; why it surely will not start, if so."""
        passing("engine.submit.before")
        why = None
        try:
            self.engine.submit(submission)
        except (OperationError, DiskFullError) as error:
            why = self._given_up(submission.key, f"{error.message} {error.hint}".strip())
        passing("engine.submit.after")
        return why

    def _given_up(self, key: AgentKey, why: str) -> str | None:
        """Make sure that it will not start after all, and only then say that it failed."""
        try:
            persistently(lambda: self.engine.stop(key, 0.0), self.release)
        except (OperationError, DiskFullError) as error:  # state alone calls for the launch again at the next beat
            _log.error("%s; %s %s", why, error.message, error.hint)
            return None
        return why


def _devices(key: AgentKey, world: World) -> Devices:
    """What an agent's attempt holds on its node; nothing where the attempt is not the job's last one."""
    job = world.jobs.get(key.job)
    if job is None or job.attempt is None or job.attempt.number != key.attempt:
        return frozenset()
    shares = job.attempt.allocation.shares
    if key.node_index >= len(shares):
        return frozenset()
    share = shares[key.node_index]
    return frozenset((share.node, device) for device in share.devices)
