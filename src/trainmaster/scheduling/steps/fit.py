"""Which jobs are worth a look: those whose request may still fit, as one decision goes on."""

from collections.abc import Callable, Mapping

import numpy as np

from trainmaster.scheduling.admission.quota import closed
from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.jobs import Kind, Task
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.model.snapshot import Refusal, Snapshot
from trainmaster.scheduling.reservation.backfill import Later
from trainmaster.scheduling.reservation.reserved import Reserved
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.scheduling.state.figures import REQUEST, SAID_S, Mask
from trainmaster.scheduling.state.queue import Line

_AGAIN = 16  # jobs that were looked at in vain: then all requests are looked at at once


class Fitting:
    """By its line whether a job may fit (`Requests`): all may until enough was tried in vain, then fewer and fewer."""

    def __init__(self, snapshot: Snapshot, state: ClusterState, reserved: Reserved) -> None:
        self._snapshot, self._state, self._reserved = snapshot, state, reserved
        self._mask: Mask | None = None  # by request
        self._lines: list[bool] | None = None
        self._missed = 0
        self.all_may = False  # windows, promises or elastic jobs: a job may wait for reasons of its own, so each is looked at
        self.lost: set[Ask] = set()  # what does not fit, though it is not clear from the columns
        self.held_off: dict[Ask, float] = {}  # what fits and is kept for others: for whom would end after that

    def may(self, task: Task, line: Line, holds_s: Callable[[Task], float]) -> bool:
        """Whether to look at a job: room may be kept for it, it may still start, or it waits for reasons of its own."""
        if not self._reserved.full or self.all_may or task.not_before_s > self._snapshot.now_s:
            return True
        if not line.plain:
            return True  # it would take something else, too
        if self._missed >= _AGAIN:
            self._look()
        if self._lines is not None and not self._lines[line.at]:
            return False
        ask = task.kind.ask
        if ask in self.lost:
            return False
        return ask not in self.held_off or self._snapshot.now_s + holds_s(task) <= self.held_off[ask]

    def missed(self, ask: Ask) -> None:
        """It does not fit, as was found out by trying."""
        self.lost.add(ask)
        self._missed += 1

    def hold_off(self, ask: Ask, until_s: float) -> None:
        """It fits only where it would be in somebody's way who ends after that."""
        self.held_off[ask] = min(until_s, self.held_off.get(ask, FOREVER))
        self._missed += 1

    def freed(self) -> None:
        """Something has come back."""
        self._mask, self._lines, self._missed = None, None, 0
        self.lost.clear()
        self.held_off.clear()

    def reasons(self) -> "Reasons":
        """Why those wait of whom nothing else is known."""
        return Reasons(self._state, self._counts())

    def _look(self) -> None:
        """Find out which lines may."""
        requests, rows = self._state.requests, self._state.queue.rows.array
        self._missed, mask = 0, requests.fits(self._counts(), self._mask)
        asked = rows[:, REQUEST].astype(np.intp)
        lines, end_s = mask[asked], self._snapshot.now_s + rows[:, SAID_S]
        for one in self._reserved.kept:
            if one.nodes is None:
                beside = requests.fits_beside(one.shape, one.spare, self._then(one.then), mask)
                lines &= beside[asked] | (end_s <= one.at_s)
        self._mask, self._lines = mask, lines.tolist()

    def _then(self, later: Later) -> dict[tuple[int, int], int]:
        """How many open nodes are in which cell now, and in which then."""
        space = self._state.space
        found = {(number, number): len(nodes) for number, nodes in space.nodes.items()}
        for node, number in later.cells():
            now = space.of[node]
            if now != number and space.sites[node].open:
                found[now, now] -= 1
                found[now, number] = found.get((now, number), 0) + 1
        return found

    def _counts(self) -> dict[int, int]:
        return {number: len(nodes) for number, nodes in self._state.space.nodes.items()}


class Reasons:
    """Why jobs wait of whom a decision says nothing else: what it did not have to look at. Found out when somebody asks."""

    def __init__(self, state: ClusterState, counts: Mapping[int, int]) -> None:
        """`counts`: how many open nodes were left in each cell."""
        self._state, self._counts = state, counts
        self._may: Mask | None = None
        self._told: dict[Kind, Refusal] = {}

    def reason(self, kind: Kind) -> Refusal:
        """It never fits, quota bars it, it does not fit now, or it does and what is free is kept for others."""
        found = self._told.get(kind)
        if found is None:
            found = self._told[kind] = self._reason(kind)
        return found

    def _reason(self, kind: Kind) -> Refusal:
        inventory, requests = self._state.inventory, self._state.requests
        if self._may is None:
            self._may = requests.fits(self._counts)
        busy = None if self._may[requests.row(kind.ask)] else inventory.busy(kind.ask)
        if busy is not None and busy.kind == "impossible":
            return busy
        tally = self._state.tally
        shut = tally.shut(kind) if busy is None else None
        return tally.barrier(kind) or busy or (closed(kind, shut) if shut else inventory.kept_back(kind.ask))
