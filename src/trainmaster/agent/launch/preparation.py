"""Prepares what the ranks need before they start. This is the agent's hot path, so only light modules are imported here."""

from __future__ import annotations

import errno

from trainmaster.agent.checkpoints import restore
from trainmaster.agent.launch import ranks, work_directory
from trainmaster.agent.mlflow.listener import MlflowListener
from trainmaster.agent.transport import master_port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.checkpoints.collect import Collector
    from trainmaster.agent.launch import venvs
    from trainmaster.agent.launch.attempt_directory import AttemptDirectory
    from trainmaster.agent.launch.contact import Contact
    from trainmaster.agent.metric_files.reader import FileReader
    from trainmaster.agent.processes.wakeup import Wake
    from trainmaster.wire.launch import Launch


class Preparation:
    """What the ranks of one agent are given: code, environment, checkpoint, rendezvous and MLflow's address.

    Each method is a step of the start. What it has made stays known if a later one fails.
    """

    def __init__(self, launch: Launch, directory: AttemptDirectory, contact: Contact) -> None:
        self._launch = launch
        self._directory = directory
        self._contact = contact
        self.restored: Optional[restore.Restored] = None
        self.collector: Optional[Collector] = None
        self.rendezvous: Optional[tuple[str, int]] = None
        self.metric_files: Optional[FileReader] = None
        self.mlflow: Optional[MlflowListener] = None  # on node 0, unless the job names its own tracking server
        self._claim: Optional[master_port.Claim] = None
        self._venv: Optional[venvs.Venv] = None

    def lay_out(self) -> None:
        """Lay out the code copy in the work directory; with a remote store, first download it into this node's cache."""
        if self._launch.get("remote") and self._launch["code"] is not None and not work_directory.laid_out(self._launch):
            from trainmaster.agent.transport import download  # noqa: PLC0415 - HTTP: only for a remote store

            download.code(self._launch)
        work_directory.lay_out(self._launch)

    def make_environment(self) -> None:
        """Provide the virtual environment of the job's requirements, if it has any; ranks and roles run in it."""
        if self._launch["requirements"] is None:
            return
        from trainmaster.agent.launch import venvs  # noqa: PLC0415 - processes, locks: few jobs have requirements

        contact = self._contact
        self._venv = venvs.provide(self._launch, self._directory.path, contact.check_everything, contact.report_preparing)
        if self._venv is not None:
            self._launch["environment"] = self._venv.environment(self._launch["environment"])
            self._record_environment()

    def _record_environment(self) -> None:
        """Record what is installed in it before the ranks run: a short job may be over before the usual record."""
        from trainmaster.agent.environment.detect import EnvironmentRecorder  # noqa: PLC0415 - as above

        recorder = EnvironmentRecorder(self._launch)
        try:
            if recorder.digest is None:
                recorder.record()
        except OSError as error:  # the run continues without this record
            words = f"what is installed could not be recorded: {error}; {advice(error)}"
            self._contact.sync().outbox.warn("environment", words)

    def restore(self) -> None:
        """Restore the last good checkpoint. `restored` says what was found even if this fails."""
        self.restored = restore.Restored()
        restore.restore(self._launch, self.restored, self._contact.report_preparing)

    def prime(self) -> None:
        """Note which checkpoints, and which rows of metrics, are there before the ranks run."""
        if self._launch["checkpoint_path"]:
            from trainmaster.agent.checkpoints.collect import Collector  # noqa: PLC0415 - only for a job with a checkpoint path

            self.collector = Collector(self._launch)
            self.collector.prime()
        if self._launch.get("metrics_files"):
            from trainmaster.agent.metric_files.reader import FileReader  # noqa: PLC0415 - CSV, globs: few jobs have such files

            self.metric_files = FileReader.of_launch(self._launch)

    def meet(self, wake: Wake) -> None:
        """Determine the rendezvous address: claimed here on node 0, else received from node 0."""
        if self._launch["node_index"] > 0:
            from trainmaster.agent.launch.rendezvous import wait_for_rendezvous  # noqa: PLC0415 - JSON, HTTP, threads: only gangs

            self.rendezvous = wait_for_rendezvous(self._contact.sync(), wake, self._directory.path)
            return
        self._claim = master_port.claim()
        alone = self._launch["nodes"] == 1 or self._launch["address_shared"]
        self.rendezvous = (master_port.LOOPBACK if alone else self._launch["address"]), self._claim.port

    def plan(self) -> ranks.Plan:
        """The input for starting the ranks. The address for MLflow is claimed here."""
        assert self.rendezvous is not None
        plan = ranks.Plan(self._launch, self._directory.path, self.restored, self.rendezvous)
        if self._launch["run"] is not None and self._launch["node_index"] == 0:
            self.mlflow = MlflowListener(self._launch["run"])
            plan.first = self.mlflow.variables(self._launch["environment"])
        return plan

    def release(self) -> None:
        """Release the port and the virtual environment."""
        if self._venv is not None:
            self._venv.release()
        if self._claim is not None:
            self._claim.release()


def advice(error: OSError) -> str:
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
