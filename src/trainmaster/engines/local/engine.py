"""The local engine: agents as processes of this machine, found again by their files, proven gone by the process table."""

import logging
import os
import pwd
import tempfile
import threading
from collections.abc import Callable, Sequence

from trainmaster.engines.local import inventory, render
from trainmaster.engines.local.attempts import Attempts
from trainmaster.engines.local.cgroups import Cgroups
from trainmaster.engines.local.observing import Observer
from trainmaster.engines.local.settings import LocalSettings, Site
from trainmaster.engines.local.starting import Starter
from trainmaster.engines.local.stopping import Stopper
from trainmaster.engines.local.watch import Watcher
from trainmaster.errors import OperationError
from trainmaster.home import Home
from trainmaster.model.ids import AgentKey
from trainmaster.model.nodes import Node
from trainmaster.ports.engine import Capabilities, Observation, Phase, Submission

_starting = threading.Lock()  # of the process: launches are written one at a time
_TRIES_MAX = 3  # starts of one key that no agent came of
_log = logging.getLogger(__name__)


class LocalEngine:
    """Implements `trainmaster.ports.engine.Engine` on one machine.

    `wake` is called from a thread of the engine's as soon as an agent ends. One process at a time drives an engine of a
    home; a fresh one, made after a crash, knows everything from the files. Linux (pidfd, `/proc`).
    """

    name = "local"
    capabilities = Capabilities(places=True, proves_gone=True, shares_files=True)

    def __init__(self, home: Home, settings: LocalSettings, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._nodes: list[Node] | None = None
        self._site_made: Site | None = None
        self._home = home
        self._attempts = Attempts(home)
        self._cgroups = Cgroups()
        self._watcher = Watcher(wake)
        self._observer = Observer(self._attempts, self._cgroups, self._watcher)
        self._stopper = Stopper(self._attempts, self._observer, self._cgroups)
        self._starter = Starter(home)
        self._tries: dict[AgentKey, int] = {}

    def render(self, submission: Submission) -> str:
        """The agent's launch as JSON, the credential not shown."""
        return render.render(submission, self._site())

    def submit(self, submission: Submission) -> None:
        """Start the agent of this key unless it was ever started or stopped.

        Raises: OperationError when no agent can be started; what the last try said is in the message.
        """
        key = submission.key
        with _starting:
            if self._attempts.was_used(key) or self._watcher.watching(key) or self._attempts.lock_holder(key) is not None:
                return
            tries = self._tries.get(key, 0)
            if tries >= _TRIES_MAX:
                said = self._attempts.log(key)[-500:].strip() or "it said nothing"
                where = f"look at {self._attempts.directory(key)}"
                raise OperationError(f"the agent of {key} did not come up in {tries} tries: {said}", where)
            self._tries[key] = tries + 1
            cgroup = self._cgroups.make(key, render.memory_bytes(submission.job.spec, key.node_index))
            doing, hint = "written", f"check the disk that holds {self._home.root}"
            try:
                directory = self._attempts.create(key, render.launch(submission, self._site(), cgroup))
                doing, hint = "started", "check that the server has descriptors left, and that its code is whole"
                started = self._starter.start(directory)
            except OSError as error:
                raise OperationError(f"the launch of {key} could not be {doing}: {error}", hint) from error
            if started is not None:
                self._watcher.watch(key, started)

    def observe(self, keys: Sequence[AgentKey] | None) -> dict[AgentKey, Observation]:
        """The phases of these keys, or of all that were started and are not known to have ended."""
        seen = self._observer.observe(list(self._attempts.live()) if keys is None else keys)
        for key, observation in seen.items():
            if observation.phase in (Phase.ENDED, Phase.GONE):
                self._over(key)
            elif observation.phase is Phase.RUNNING:
                self._tries.pop(key, None)
                if observation.evidence:  # it said its last word and left processes behind
                    self._stopper.sweep(key, self._attempts.tombstone(key))
        return seen

    def stop(self, key: AgentKey, grace_s: float) -> None:
        """Durable before anything else; call it again until the key is seen gone or ended, and it escalates.

        Raises: OperationError when the order cannot be written down.
        """
        try:
            self._stopper.stop(key, grace_s)
        except OSError as error:
            raise OperationError(f"the stop of {key} could not be written: {error}", f"check {self._home.root}") from error

    def logs(self, key: AgentKey) -> str:
        """What the agent said; empty when it said nothing."""
        return self._attempts.log(key)

    def inventory(self) -> list[Node]:
        """This machine, or the virtual nodes; looked up once."""
        if self._nodes is None:
            self._nodes = inventory.nodes(self._settings, self._home.root)
        return list(self._nodes)

    def memory_words(self) -> str:
        """How memory limits are kept here, in a sentence."""
        return self._cgroups.words()

    def close(self) -> None:
        """Let go of the thread and descriptors; agents live on."""
        self._watcher.close()

    def _over(self, key: AgentKey) -> None:
        try:
            self._attempts.forget(key)
        except OSError as error:
            _log.warning("%s is over but stays on the index: %s", key, error)
        self._cgroups.remove(key)
        self._stopper.forget(key)
        self._tries.pop(key, None)

    def _site(self) -> Site:
        if self._site_made is None:
            real = any(not device.stand_in for node in self.inventory() for device in node.devices)
            self._site_made = Site(self._home, self._settings, _basics(), real or bool(inventory.real_devices()))
        return self._site_made


def _basics() -> dict[str, str]:
    """What every program expects of an environment, from the server's user and not from its shell."""
    user = pwd.getpwuid(os.getuid()) if _known_user() else None
    home = user.pw_dir if user else os.environ.get("HOME", "/")
    name = user.pw_name if user else str(os.getuid())
    return {"HOME": home, "USER": name, "LOGNAME": name, "SHELL": (user and user.pw_shell) or "/bin/sh",
            "TMPDIR": tempfile.gettempdir()}  # fmt: skip


def _known_user() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True
