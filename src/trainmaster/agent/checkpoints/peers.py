"""The other agents of the gang on this machine: whether they still run, and which files their ranks have open for writing."""

from __future__ import annotations

import os

from trainmaster.agent.files.fast_json import read_json
from trainmaster.agent.processes.process_tree import descendants, open_for_writing
from trainmaster.wire import names
from trainmaster.wire.processes import same_process, start_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainmaster.agent.processes.process_tree import File, Process
    from trainmaster.agent.processes.rank import Rank
    from trainmaster.wire.launch import Launch


class Peers:
    """Peers of node 0, if the gang writes into one directory: only node 0 collects there. Other agents have no peers."""

    def __init__(self, directory: str, launch: Launch) -> None:
        shared = launch["in_place"] or os.path.isabs(launch["checkpoint_path"] or "")
        others = range(1, launch["nodes"]) if shared and launch["node_index"] == 0 else ()
        gang = os.path.dirname(directory)
        self._directories = [os.path.join(gang, f"n{index}") for index in others]

    def open(self) -> tuple[dict[File, set[Process]], bool]:
        """(files that the processes of peers have open for writing, as `open_for_writing`; whether the list is complete).

        It is incomplete if a peer runs on another machine, or if a rank is dead: the files of a dead rank look closed. A
        peer whose ranks have all succeeded has closed everything.
        """
        found: dict[File, set[Process]] = {}
        complete = True
        for directory in self._directories:
            if _ended_well(directory):
                continue
            try:
                found.update(_open(directory))
            except (OSError, ValueError, KeyError, TypeError):
                complete = False
        return found, complete

    @property
    def run(self) -> bool:
        """Whether a peer on this machine has not recorded its end and is not proven dead."""
        return any(map(_runs, self._directories))

    @property
    def ended_well(self) -> bool:
        """Whether every peer has recorded that all its ranks succeeded."""
        return all(map(_ended_well, self._directories))


def record(directory: str, ranks: list[Rank]) -> None:
    """Record which processes are the ranks of this node. A peer that does not find the record waits longer."""
    lines = "".join(f"{rank.pid} {start_ticks(rank.pid)}\n" for rank in ranks)
    path = os.path.join(directory, names.RANKS)
    try:
        with open(f"{path}.part", "w") as file:
            file.write(lines)
        os.rename(f"{path}.part", path)
    except OSError:
        return


def _open(directory: str) -> dict[File, set[Process]]:
    """Files that one agent's ranks have open. Raises: OSError or ValueError if the list is incomplete, KeyError, TypeError."""
    agent = read_json(os.path.join(directory, names.AGENT))
    with open(os.path.join(directory, names.RANKS)) as file:
        ranks = [line.split() for line in file]
    found = open_for_writing(descendants(int(agent["pid"])), {int(pid) for pid, _ in ranks})
    # Checked after the list was taken: the files of a rank that died meanwhile would be missing in it.
    alive = all(start_ticks(int(pid)) == int(ticks) for pid, ticks in ranks)
    if not alive or not same_process(int(agent["pid"]), int(agent["start_ticks"]), str(agent["boot_id"])):
        raise ValueError(f"not every rank of {directory} runs here")
    return found


def _runs(directory: str) -> bool:
    if not os.path.exists(os.path.join(directory, names.LAUNCH)) or os.path.exists(os.path.join(directory, names.EXIT)):
        return False
    try:
        agent = read_json(os.path.join(directory, names.AGENT))
        return same_process(int(agent["pid"]), int(agent["start_ticks"]), str(agent["boot_id"]))
    except (OSError, ValueError, KeyError, TypeError):
        return True  # it is about to start, or its state is unknown: the server ends an attempt that waits in vain


def _ended_well(directory: str) -> bool:
    try:
        ranks = read_json(os.path.join(directory, names.EXIT))["ranks"]
        return bool(ranks) and all(rank["exit_code"] == 0 and not rank["stopped_by_us"] for rank in ranks)
    except (OSError, ValueError, KeyError, TypeError):
        return False
