"""Prepares and starts the ranks. This is the agent's hot path, so only light modules are imported here."""

from __future__ import annotations

import time

from trainmaster.agent.launch import ranks
from trainmaster.agent.launch.attempt_directory import AttemptDirectory
from trainmaster.agent.launch.contact import Contact
from trainmaster.agent.launch.preparation import Preparation, advice
from trainmaster.agent.processes.spawn import LaunchError, MachineError
from trainmaster.agent.processes.wakeup import Stopped
from trainmaster.agent.transport.master_port import NoPortError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence

    from trainmaster.agent.processes.rank import Rank
    from trainmaster.agent.processes.wakeup import Wake
    from trainmaster.wire.launch import Launch


class Failure:
    """Why the ranks do not run. `lines`: output of the program that failed.

    Law: a failure of the machine, a disk, the store or the network is `of_machine`. Any other one is of the program or the
    spec: a retry would repeat it.
    """

    def __init__(self, text: str, of_machine: bool, lines: Sequence[str] = ()) -> None:
        self.text = text
        self.of_machine = of_machine
        self.lines = list(lines)


class Startup:
    """The start of one agent. Afterwards `ranks` run, or `failure` says why not. If neither, it was stopped."""

    def __init__(self, directory: str, launch: Launch, wake: Wake) -> None:
        self.directory = AttemptDirectory(directory)
        self.launch = launch
        self.wake = wake
        self.began_s = time.monotonic()
        self.ranks_began_s: Optional[float] = None
        self.ranks: list[Rank] = []
        self.roles: list[Rank] = []
        self.failure: Optional[Failure] = None
        self.contact = Contact(launch, self.directory, wake)
        self.prepared = Preparation(launch, self.directory, self.contact)

    @property
    def runs_since_s(self) -> float:
        """When the start of the ranks began; if it did not, when the agent began."""
        return self.ranks_began_s or self.began_s

    def make(self) -> None:
        """Lay out the code, restore, rendezvous, start. A failure is put into `failure`."""
        doing = "lay out the code copy"
        try:
            with self.wake.interruptible():
                self.contact.check_stopped()
                self.prepared.lay_out()
            doing = "make the environment"
            self.prepared.make_environment()
            with self.wake.interruptible():
                self.contact.check_stopped()
                doing = "restore the last good checkpoint"
                self.prepared.restore()
                doing = "look for checkpoints"
                self.prepared.prime()
                doing = "meet the other nodes"
                self.prepared.meet(self.wake)
                self.contact.check_stopped()
            doing = "start the ranks"
            self._start_ranks()
        except Stopped:
            return
        except LaunchError as error:
            self.failure = Failure(str(error), isinstance(error, MachineError), error.lines)
        except NoPortError as error:
            self.failure = Failure(str(error), of_machine=True)
        except OSError as error:
            todo = advice(error)
            self.failure = Failure(f"could not {doing}: {error}" + (f"; {todo}" if todo else ""), of_machine=True)
        except (ValueError, KeyError) as error:
            text = str(error) if isinstance(error, ValueError) else repr(error)
            self.failure = Failure(f"could not {doing} on this node: {text}; see the agent's log", of_machine=False)

    def _start_ranks(self) -> None:
        """Raises: LaunchError, OSError, wake.Stopped."""
        self.directory.create_flags()
        began_s = self.ranks_began_s = time.monotonic()
        started = ranks.start_all(self.prepared.plan(), lambda label: self.contact.wait_for(label, began_s))
        self.ranks = [rank for rank in started if rank.role is None]
        self.roles = [rank for rank in started if rank.role is not None]
