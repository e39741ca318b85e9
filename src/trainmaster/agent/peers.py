"""The other agents of a gang, as far as they run on this machine: what the processes of their ranks hold open for writing."""

from __future__ import annotations

import json
import os

from trainmaster.agent.tree import descendants, open_for_writing
from trainmaster.wire import names
from trainmaster.wire.processes import same_process, start_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainmaster.agent.ranks import Rank
    from trainmaster.wire.launch import Launch


class Peers:
    """Asked by the agent of node 0 where its gang writes into one directory."""

    def __init__(self, directory: str, launch: Launch) -> None:
        shared = launch["in_place"] or os.path.isabs(launch["checkpoint_path"] or "")
        others = range(launch["nodes"]) if shared else ()
        gang = os.path.dirname(directory)
        self._directories = [os.path.join(gang, f"n{index}") for index in others if index != launch["node_index"]]

    def open(self) -> tuple[set[tuple[int, int]], bool]:
        """((device, inode) of what they have open for writing, whether that is all of it).

        It is not where one runs on another machine, or where a rank is dead: what a dead one had open looks closed.
        """
        found: set[tuple[int, int]] = set()
        complete = True
        for directory in self._directories:
            try:
                found |= _open(directory)
            except (OSError, ValueError, KeyError, TypeError):
                complete = False
        return found, complete


def record(directory: str, ranks: list[Rank]) -> None:
    """Say which processes are the ranks here. Whoever does not find it knows less, and waits longer."""
    lines = "".join(f"{rank.pid} {start_ticks(rank.pid)}\n" for rank in ranks)
    path = os.path.join(directory, names.RANKS)
    try:
        with open(f"{path}.part", "w") as file:
            file.write(lines)
        os.rename(f"{path}.part", path)
    except OSError:
        return


def _open(directory: str) -> set[tuple[int, int]]:
    """What one agent's ranks have open. Raises: OSError or ValueError where not all of it is known, KeyError, TypeError."""
    with open(os.path.join(directory, names.AGENT)) as file:
        agent = json.load(file)
    with open(os.path.join(directory, names.RANKS)) as file:
        ranks = [line.split() for line in file]
    found = open_for_writing(descendants(int(agent["pid"])))
    # After the look: what a rank that died meanwhile had open would be missing in it.
    alive = all(start_ticks(int(pid)) == int(ticks) for pid, ticks in ranks)
    if not alive or not same_process(int(agent["pid"]), int(agent["start_ticks"]), str(agent["boot_id"])):
        raise ValueError(f"not every rank of {directory} runs here")
    return found
