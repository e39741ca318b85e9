"""Prepares and starts the ranks. This is the agent's hot path, so only light modules are imported here."""

from __future__ import annotations

import errno
import os
import time

from trainmaster.agent.checkpoints import restore
from trainmaster.agent.launch import ranks, work_directory
from trainmaster.agent.mlflow.listener import MlflowListener
from trainmaster.agent.processes.spawn import LaunchError, MachineError
from trainmaster.agent.processes.wakeup import Stopped
from trainmaster.agent.transport import master_port
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.checkpoints.collect import Collector
    from trainmaster.agent.launch import venvs
    from trainmaster.agent.processes.rank import Rank
    from trainmaster.agent.processes.wakeup import Wake
    from trainmaster.agent.transport.sync import Sync
    from trainmaster.wire.launch import Launch


_SLOW_S = 5.0  # a rank that has not called exec after so long is reported


def _opened(directory: str) -> int:
    """A descriptor of the directory, open while this process lives; -1 if it cannot be opened."""
    try:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1


class Startup:
    """The start of one agent. Afterwards `ranks` run, or `error` or `machine_error` says why not. If neither, it was stopped.

    Law: a failure of the machine, a disk, the store or the network is a `machine_error`. Only a failure that a retry
    would repeat is an `error`.
    """

    def __init__(self, directory: str, launch: Launch, wake: Wake) -> None:
        self.directory = directory
        self.place = _opened(directory)  # the directory itself: later another one may have its name
        self.launch = launch
        self.wake = wake
        self.began_s = time.monotonic()
        self.ranks_began_s: Optional[float] = None
        self.ranks: list[Rank] = []
        self.roles: list[Rank] = []
        self.restored: Optional[restore.Restored] = None
        self.collector: Optional[Collector] = None
        self.rendezvous: Optional[tuple[str, int]] = None
        self.mlflow: Optional[MlflowListener] = None  # on node 0, unless the job names its own tracking server
        self.sync: Optional[Sync] = None  # created early only if the start needs the server
        self.error: Optional[str] = None  # the program or the spec cannot be started
        self.machine_error: Optional[str] = None  # this machine could not start it
        self.error_lines: list[str] = []  # output of the program that failed
        self.terminated = False  # SIGTERM or SIGINT came without an order to stop
        self._slow: set[str] = set()  # labels of children that were reported as slow
        self._claim: Optional[master_port.Claim] = None
        self._venv: Optional[venvs.Venv] = None

    def make(self) -> None:
        """Lay out the code, restore, rendezvous, start. Failures are put into `error` or `machine_error`."""
        doing = "lay out the code copy"
        try:
            with self.wake.interruptible():
                self._check_stopped()
                self._lay_out()
            doing = "make the environment"
            self._make_environment()
            with self.wake.interruptible():
                self._check_stopped()
                doing = "restore the last good checkpoint"
                self.restored = restore.Restored()
                restore.restore(self.launch, self.restored, self._report_preparing)
                doing = "look for checkpoints"
                self._prime()
                doing = "meet the other nodes"
                self.rendezvous = self._rendezvous()
                self._check_stopped()
            doing = "start the ranks"
            self._flags()
            self.ranks_began_s = time.monotonic()
            plan = ranks.Plan(self.launch, self.directory, self.restored, self.rendezvous)
            plan.first = self._mlflow_variables()
            started = ranks.start_all(plan, self.wait_for)
            self.ranks = [rank for rank in started if rank.role is None]
            self.roles = [rank for rank in started if rank.role is not None]
        except Stopped:
            if self.wake.terminated:
                self.note_signal()
        except MachineError as error:
            self.machine_error, self.error_lines = str(error), error.lines
        except LaunchError as error:
            self.error, self.error_lines = str(error), error.lines
        except master_port.NoPortError as error:
            self.machine_error = str(error)
        except OSError as error:
            advice = _advice(error)
            self.machine_error = f"could not {doing}: {error}" + (f"; {advice}" if advice else "")
        except (ValueError, KeyError) as error:
            text = str(error) if isinstance(error, ValueError) else repr(error)
            self.error = f"could not {doing} on this node: {text}; see the agent's log"

    def _lay_out(self) -> None:
        """Lay out the code copy in the work directory; with a remote store, first download it into this node's cache."""
        if self.launch.get("remote") and self.launch["code"] is not None and not work_directory.laid_out(self.launch):
            from trainmaster.agent.transport import download  # noqa: PLC0415 - HTTP: only for a remote store

            download.code(self.launch)
        work_directory.lay_out(self.launch)

    def _mlflow_variables(self) -> dict[str, str]:
        """Variables of rank 0 that other ranks do not get."""
        if self.launch["run"] is None or self.launch["node_index"] > 0:
            return {}
        self.mlflow = MlflowListener(self.launch["run"], self.launch["attempt"])
        return self.mlflow.variables(self.launch["environment"])

    def note_signal(self) -> None:
        """SIGTERM or SIGINT came: not from us if there is no order to stop. One that cannot be examined may be there."""
        try:
            os.stat(os.path.join(self.directory, names.STOP))
        except FileNotFoundError:
            self.terminated = True
        except OSError:
            return

    @property
    def flags_path(self) -> str:
        """The file that the SDK polls."""
        return os.path.join(self.directory, names.SDK_FLAGS)

    def talk(self) -> Sync:
        """The connection to the server, created by the first step of the start that needs it."""
        if self.sync is None:
            from trainmaster.agent.transport.outbox import Outbox  # noqa: PLC0415 - JSON, HTTP, threads: few starts need them
            from trainmaster.agent.transport.sync import Sync  # noqa: PLC0415 - as above

            self.sync = Sync(self.launch, Outbox(os.path.join(self.directory, names.SPOOL), self.launch["points"]), self.wake)
        return self.sync

    def _make_environment(self) -> None:
        """Provide the virtual environment of the job's requirements, if it has any; ranks and roles run in it."""
        if self.launch["requirements"] is None:
            return
        from trainmaster.agent.launch import venvs  # noqa: PLC0415 - as above

        self._venv = venvs.provide(self.launch, self.directory, self._check_everything, self._report_preparing)
        if self._venv is not None:
            self.launch["environment"] = self._venv.environment(self.launch["environment"])
            self._record_environment()

    def _record_environment(self) -> None:
        """Record what is installed in it before the ranks run: a short job may be over before the usual record."""
        from trainmaster.agent.environment.detect import EnvironmentRecorder  # noqa: PLC0415 - as above

        recorder = EnvironmentRecorder(self.launch)
        try:
            if recorder.digest is None:
                recorder.record()
        except OSError as error:  # the run continues without this record
            self.talk().outbox.warn("environment", f"what is installed could not be recorded: {error}; {_advice(error)}")

    def _report_preparing(self, doing: str) -> None:
        sync = self.talk()
        sync.outbox.report("preparing", doing=doing)
        sync.start_sender()
        sync.start_poller()

    def _check_everything(self) -> None:
        """Raises: wake.Stopped. Orders other than stop stay queued."""
        self._check_stopped()
        if self.sync is not None and any(order.get("order") == "stop" for order in list(self.sync.orders)):
            raise Stopped

    def wait_for(self, label: str) -> None:
        """A child has not called exec yet: report it after a while. Raises: wake.Stopped."""
        self._check_everything()
        assert self.ranks_began_s is not None
        if time.monotonic() > self.ranks_began_s + _SLOW_S and label not in self._slow:
            self._slow.add(label)
            where = f"the command's file, the work directory {self.launch['work']} or its cgroup does not answer"
            self._report_preparing(f"{label} could not begin its command yet: {where}")

    def release(self) -> None:
        """Release the port and the virtual environment."""
        if self._venv is not None:
            self._venv.release()
        if self._claim is not None:
            self._claim.release()

    def _prime(self) -> None:
        if self.launch["checkpoint_path"]:
            from trainmaster.agent.checkpoints.collect import Collector  # noqa: PLC0415 - only for a job with a checkpoint path

            self.collector = Collector(self.launch)
            self.collector.prime()

    def _rendezvous(self) -> tuple[str, int]:
        """The rendezvous address: claimed here on node 0, else received from node 0."""
        if self.launch["node_index"] > 0:
            from trainmaster.agent.launch.rendezvous import wait_for_rendezvous  # noqa: PLC0415 - JSON, HTTP, threads: only gangs

            return wait_for_rendezvous(self.talk(), self.wake, self.directory)
        self._claim = master_port.claim()
        alone = self.launch["nodes"] == 1 or self.launch["address_shared"]
        return (master_port.LOOPBACK if alone else self.launch["address"]), self._claim.port

    def _flags(self) -> None:
        descriptor = os.open(self.flags_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(descriptor, b"0\0")
        os.close(descriptor)

    def _check_stopped(self) -> None:
        if os.path.exists(os.path.join(self.directory, names.STOP)):
            self.wake.terminated = True
        self.wake.raise_if_stopped()


def _advice(error: OSError) -> str:
    """What the user can do; empty if the error itself says it."""
    if getattr(error, "advised", False):
        return ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some disk space there"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "give the user that runs this server the right to it"
    if error.errno == errno.ENOENT:
        return "check that the path is there and its file system is mounted"
    return "see the agent's log"
