"""Which jobs are worth trying: those whose request may still fit as the decision goes on."""

from collections.abc import Callable, Collection, Mapping

import numpy as np

from trainmaster.scheduling.admission.quota import closed
from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.jobs import Kind, Task
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.reservation.backfill import Later
from trainmaster.scheduling.reservation.reserved import Reserved
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.scheduling.state.figures import REQUEST, SAID_S, Mask
from trainmaster.scheduling.state.queue import Line

_AGAIN = 16  # failed tries after which all requests are tested at once


class Fitting:
    """Whether a job may fit, by its line and its request. At first all may; after enough failed tries, fewer and fewer."""

    def __init__(self, snapshot: Snapshot, state: ClusterState, reserved: Reserved) -> None:
        self._snapshot, self._state, self._reserved = snapshot, state, reserved
        self._mask: Mask | None = None  # by request
        self._lines: list[bool] | None = None
        self._missed = 0
        self.all_may = False  # windows or elastic jobs: a job may wait for reasons of its own, so try each
        self.settled: Collection[str] = ()  # jobs with promised nodes: passed, so that those behind them are tried
        self.lost: set[Ask] = set()  # requests that were tried and do not fit
        self.held_off: dict[Ask, float] = {}  # requests that fit only before a reservation begins: when

    def may(self, task: Task, line: Line, holds_s: Callable[[Task], float]) -> bool:
        """Whether to try a job: it may get a reservation, it may still start, or it waits for reasons of its own."""
        if not self._reserved.full or self.all_may or task.not_before_s > self._snapshot.now_s:
            return True
        if not line.plain or task.id in self.settled:
            return True  # it accepts other requests, too; or it has its nodes
        if self._missed >= _AGAIN:
            self._look()
        if self._lines is not None and not self._lines[line.at]:
            return False
        ask = task.kind.ask
        if ask in self.lost:
            return False
        return ask not in self.held_off or self._snapshot.now_s + holds_s(task) <= self.held_off[ask]

    def missed(self, ask: Ask) -> None:
        """Record that a request was tried and does not fit."""
        self.lost.add(ask)
        self._missed += 1

    def hold_off(self, ask: Ask, until_s: float) -> None:
        """Record that a job with this request that ends after `until_s` would delay a reservation."""
        self.held_off[ask] = min(until_s, self.held_off.get(ask, FOREVER))
        self._missed += 1

    def freed(self) -> None:
        """Forget all results: nodes have become free."""
        self._mask, self._lines, self._missed = None, None, 0
        self.lost.clear()
        self.held_off.clear()

    def reasons(self) -> "Reasons":
        """The reasons of all jobs that have no other."""
        return Reasons(self._state, self._counts())

    def _look(self) -> None:
        """Test which lines may fit."""
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
        """How many open nodes are in one cell now and in another then."""
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
    """Why jobs wait that the decision did not have to try. Each reason is worked out on demand."""

    def __init__(self, state: ClusterState, counts: Mapping[int, int]) -> None:
        """`counts`: how many open nodes are left in each cell."""
        self._state, self._counts = state, counts
        self._may: Mask | None = None
        self._told: dict[Kind, Refusal] = {}

    def reason(self, kind: Kind) -> Refusal:
        """It never fits, a quota bars it, it does not fit now, or it fits and the nodes are reserved."""
        found = self._told.get(kind)
        if found is None:
            found = self._told[kind] = self._reason(kind)
        return found

    def _reason(self, kind: Kind) -> Refusal:
        inventory, requests = self._state.inventory, self._state.requests
        if self._may is None:
            self._may = requests.fits(self._counts)
        busy = None if self._may[requests.row(kind.ask)] else inventory.busy(kind.ask)
        if busy is not None and busy.cause is Reason.IMPOSSIBLE:
            return busy
        tally = self._state.tally
        shut = tally.shut(kind) if busy is None else None
        return tally.barrier(kind) or busy or (closed(kind, shut) if shut else inventory.kept_back(kind.ask))
