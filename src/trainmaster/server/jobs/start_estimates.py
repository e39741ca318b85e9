"""Keeps the start estimates of long queues' pages: they simulate the queue many times, so they serve for a while."""

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

from starlette.requests import Request

from trainmaster.scheduling.explanation.forecast import Waits
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.server.jobs import forecasting
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.views.resources import View

_CHEAP_S = 0.02  # of processor time: estimates that took less serve once
_REST = 20.0  # others serve for so many times the processor time that they took
_PAGES = 32  # that are kept


@dataclass(frozen=True, slots=True)
class _Estimated:
    waits: dict[str, Waits]
    past: forecasting.History
    at_s: float  # of the snapshot
    until_s: float  # on the monotonic clock


class StartEstimates:
    """The last start estimates of each page of the queue."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._pages: dict[bytes, _Estimated] = {}

    def views(self, api: Runtime, page: bytes, seen: Snapshot, policy: Policy, ids: Collection[str]) -> dict[str, View | None]:
        """For each job of a page, when it will start, in seconds from `seen.now_s`; None while nothing is known.

        Of a long queue, a job that joined the page since the last estimates has none until the next ones.
        """
        known = self._pages.get(page)
        if _is_old(known) and self._turn.acquire(blocking=known is None):  # meanwhile others get what is known
            try:
                known = self._pages.get(page)  # another request may have made it
                if known is None or _is_old(known):
                    known = _estimate(api, seen, policy, ids)
                    self._keep(page, known)
            finally:
                self._turn.release()
        assert known is not None
        age_s = max(0.0, seen.now_s - known.at_s)
        aged = {id: _aged(known.waits[id], age_s) if id in known.waits else None for id in ids}
        return {id: forecasting.waits_view(waits, known.past) for id, waits in aged.items()}


    def _keep(self, page: bytes, known: _Estimated) -> None:
        self._pages.pop(page, None)
        self._pages[page] = known
        if len(self._pages) > _PAGES:
            del self._pages[next(iter(self._pages))]


def _is_old(known: _Estimated | None) -> bool:
    return known is None or time.monotonic() >= known.until_s


def _estimate(api: Runtime, seen: Snapshot, policy: Policy, ids: Collection[str]) -> _Estimated:
    began_s = time.thread_time()
    past = forecasting.history(api)
    waits = forecasting.estimates(seen, policy, past, ids)
    took_s = time.thread_time() - began_s
    return _Estimated(waits, past, seen.now_s, time.monotonic() + (_REST * took_s if took_s > _CHEAP_S else 0.0))


def _aged(waits: Waits, age_s: float) -> Waits:
    return Waits(*(max(0.0, one - age_s) for one in waits))


def estimates_of(request: Request) -> StartEstimates:
    """The estimates of the application that serves this request."""
    kept = request.app.state.start_estimates
    assert isinstance(kept, StartEstimates)
    return kept
