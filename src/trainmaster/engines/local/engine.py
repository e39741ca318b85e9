"""The local engine: agents as processes of this machine. Files find them again, and the process table proves them gone."""

import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Sequence

from trainmaster import troubles
from trainmaster.engines.local import removing, render
from trainmaster.engines.local.attempts import Attempts, Identity
from trainmaster.engines.local.cgroups import Cgroups
from trainmaster.engines.local.inventory import Machine
from trainmaster.engines.local.observing import Observer
from trainmaster.engines.local.settings import LocalSettings
from trainmaster.engines.local.starting import Starter
from trainmaster.engines.local.stopping import Stopper
from trainmaster.engines.local.watch import Watcher
from trainmaster.errors import DiskFullError, OperationError
from trainmaster.home import Home
from trainmaster.model.ids import AgentKey
from trainmaster.model.nodes import Node
from trainmaster.ports.engine import Capabilities, Observation, Phase, Submission

_starting = threading.Lock()  # per process: launches are written one at a time
_TRIES_MAX = 3  # failed starts of one key
_NAMED_MAX = 5
_log = logging.getLogger(__name__)


class LocalEngine:
    """Implements `trainmaster.ports.engine.Engine` on one machine.

    `wake` is called from a thread of the engine as soon as an agent ends. Only one process at a time uses the engine of a
    home. A new engine object after a crash reads all state from files. Linux only (pidfd, `/proc`).
    """

    name = "local"
    capabilities = Capabilities(places=True, proves_gone=True, shares_files=True)

    def __init__(self, home: Home, settings: LocalSettings, wake: Callable[[], None]) -> None:
        self._home = home
        self._attempts = Attempts(home)
        self._machine = Machine(home, settings, self._attempts.home_id)
        self._cgroups = Cgroups(home.root)
        self._watcher = Watcher(wake)
        self._observer = Observer(self._attempts, self._cgroups, self._watcher)
        self._stopper = Stopper(self._attempts, self._observer, self._cgroups)
        self._starter = Starter(home)
        self._tries: dict[AgentKey, int] = {}
        self._foreign: dict[AgentKey, Identity] | None = None  # None: not examined yet

    def render(self, submission: Submission) -> str:
        """The agent's launch as JSON, without the credential."""
        return render.render(submission, self._machine.site())

    def submit(self, submission: Submission) -> None:
        """Start the agent of this key, unless it was ever started or stopped.

        Raises: OperationError if no agent can be started; the message contains the output of the last try.
        """
        key = submission.key
        with _starting:
            if self._taken(key):
                return
            tries = self._tries.get(key, 0)
            if tries >= _TRIES_MAX:
                said = self._attempts.log(key)[-500:].strip() or "no output"
                where = f"look at {self._attempts.directory(key)}"
                raise OperationError(f"the agent of {key} did not come up in {tries} tries: {said}", where)
            self._tries[key] = tries + 1
            made = self._cgroups.make(key, render.memory_bytes(submission.job.spec, key.node_index))
            doing, hint = "written", f"check the disk that holds {self._home.root}"
            try:
                directory = self._attempts.create(key, render.launch(submission, self._machine.site(), made))
                doing, hint = "started", "check that the server has descriptors left, and that its code is complete"
                started = self._starter.start(directory)
            except OSError as error:
                raise OperationError(f"the launch of {key} could not be {doing}: {error}", hint) from error
            if started is not None:
                self._watcher.watch(key, started)

    def _taken(self, key: AgentKey) -> bool:
        """Whether the key was ever used, or is being used now. Raises: OperationError if that is unknown."""
        try:
            if self._attempts.is_foreign(key):
                return False  # the directory is moved aside, unless an agent runs there
            used = self._attempts.was_used(key) or self._watcher.watching(key)
            return used or self._attempts.lock_holder(key) is not None
        except OSError as error:
            hint = f"check the disk that holds {self._home.root}, and that the server has descriptors left"
            raise OperationError(f"it is unknown whether {key} was started before: {error}", hint) from error

    def observe(self, keys: Sequence[AgentKey] | None) -> dict[AgentKey, Observation]:
        """The phases of these keys, or of all that were started and are not known to have ended."""
        seen = self._observer.observe(self._observer.due(keys))
        if keys is None:
            self._cgroups.tidy()
        for key, observation in seen.items():
            if observation.phase in (Phase.ENDED, Phase.GONE):
                self._over(key)
            elif observation.phase is Phase.RUNNING:
                self._tries.pop(key, None)
                if observation.evidence:  # it has written its exit record and left processes behind
                    with contextlib.suppress(OSError):  # retried at the next observation
                        self._stopper.sweep(key, self._attempts.tombstone(key))
        return seen if keys is None else {key: seen[key] for key in keys}

    def stop(self, key: AgentKey, grace_s: float) -> None:
        """Order the stop durably, then carry it out. Call it again until the key is gone or ended: each call escalates.

        Raises: DiskFullError, OperationError if the order cannot be written.
        """
        try:
            self._stopper.stop(key, grace_s)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            kind = DiskFullError if full else OperationError
            raise kind(f"the stop of {key} could not be written: {error}", f"check {self._home.root}") from error

    def clear(self, job: str, kind: str) -> int:
        """Remove work directories, attempt directories, or their early part. Raises: OSError."""
        return removing.clear(self._home, job, kind)

    def logs(self, key: AgentKey) -> str:
        """The agent's log; empty if there is none."""
        return self._attempts.log(key)

    def inventory(self) -> list[Node]:
        """This machine, or the virtual nodes; determined once."""
        self._tell_foreign()
        return self._machine.nodes()

    def close(self) -> None:
        """Release the thread and descriptors; agents continue."""
        self._watcher.close()

    def _tell_foreign(self) -> None:
        """Report running agents of another log. They may be legitimate, so they are not stopped."""
        if self._foreign == {}:
            return
        self._foreign = self._attempts.foreign()
        if self._foreign:
            named = ", ".join(f"{key} (process {agent.pid})" for key, agent in list(self._foreign.items())[:_NAMED_MAX])
            told = f"agents of another log run on this machine, and their resources are not accounted for: {named}"
            troubles.say("foreign agents", told)
        else:
            troubles.clear("foreign agents")

    def _over(self, key: AgentKey) -> None:
        try:
            self._attempts.forget(key)
        except OSError as error:
            _log.warning("%s is over but stays on the index: %s", key, error)
        self._cgroups.remove(key)
        self._stopper.forget(key)
        self._tries.pop(key, None)
