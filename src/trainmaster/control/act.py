"""Running effects against the world. Each is idempotent under its key, so running one twice is harmless."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from trainmaster.control.world import World
from trainmaster.errors import OperationError, TrainmasterError
from trainmaster.lifecycle.effects import DeleteCheckpoint, Effect, Launch, Stop
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import State
from trainmaster.ports.blobs import Blobs
from trainmaster.ports.engine import Engine, Submission
from trainmaster.wire.failpoint import passing

_DELETERS = 2  # threads
_log = logging.getLogger("trainmaster.control")


@dataclass(slots=True)
class Actor:
    """Runs effects; what came of them is collected here and recorded by the next tick."""

    engine: Engine
    blobs: Blobs
    credential: Callable[[AgentKey], str]
    failed_launches: list[tuple[AgentKey, str]] = field(default_factory=list)
    deleted: list[DeleteCheckpoint] = field(default_factory=list)
    _undeletable: set[DeleteCheckpoint] = field(default_factory=set)  # complained about already
    _deleting: dict[DeleteCheckpoint, Future[None]] = field(default_factory=dict)  # in a store elsewhere, which takes its time
    _pool: ThreadPoolExecutor | None = None

    def run(self, effects: list[Effect], world: World) -> None:
        """Stops first: what is to make room makes room before anything new starts."""
        for effect in dict.fromkeys(effects):
            if isinstance(effect, Stop):
                self._stop(effect)
        needed = world.forked() if any(isinstance(effect, DeleteCheckpoint) for effect in effects) else set()
        for effect in dict.fromkeys(effects):
            match effect:
                case Launch(key):
                    self._launch(key, world)
                case DeleteCheckpoint():
                    if (effect.job, effect.checkpoint) not in needed:  # else state alone calls for it again at each beat
                        self._delete(effect)
                case Stop():
                    pass

    def _delete(self, effect: DeleteCheckpoint) -> None:
        """At once in a directory; elsewhere on a thread, and what came of it is seen when state calls for it again."""
        name = f"checkpoints/{effect.job}/{effect.checkpoint}"
        if self.blobs.local_path(name) is not None:
            self._deleted(effect, lambda: self.blobs.delete_tree(name))
        elif effect not in self._deleting:
            self._pool = self._pool or ThreadPoolExecutor(_DELETERS, "delete")
            self._deleting[effect] = self._pool.submit(self.blobs.delete_tree, name)
        elif self._deleting[effect].done():
            self._deleted(effect, self._deleting.pop(effect).result)

    def _deleted(self, effect: DeleteCheckpoint, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, TrainmasterError) as error:  # a store that is away or read-only: the next beat
            if effect not in self._undeletable:
                _log.error("checkpoint %s of %s cannot be removed yet: %s", effect.checkpoint, effect.job, error)
            self._undeletable.add(effect)
            return
        self._undeletable.discard(effect)
        self.deleted.append(effect)

    def _stop(self, effect: Stop) -> None:
        passing("engine.stop.before")
        try:
            self.engine.stop(effect.key, effect.grace_s)
        except OperationError as error:  # a full disk: state alone calls for it again at the next beat
            _log.error("%s %s", error.message, error.hint)
        passing("engine.stop.after")

    def _launch(self, key: AgentKey, world: World) -> None:
        job = world.jobs.get(key.job)
        if job is None or job.attempt is None or job.attempt.number != key.attempt or job.state is not State.STARTING:
            return  # stopped within the same tick
        passing("engine.submit.before")
        try:
            self.engine.submit(Submission(key, job, self.credential(key)))
        except OperationError as error:
            self._give_up(key, f"{error.message} {error.hint}".strip())
        passing("engine.submit.after")

    def _give_up(self, key: AgentKey, why: str) -> None:
        """Make sure that it will not start after all, and only then say that it failed."""
        try:
            self.engine.stop(key, 0.0)
        except OperationError as error:  # a full disk: state alone calls for the launch again at the next beat
            _log.error("%s; %s %s", why, error.message, error.hint)
            return
        self.failed_launches.append((key, why))
