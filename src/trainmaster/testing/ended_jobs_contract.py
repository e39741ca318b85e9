"""Contract suite for ended jobs in an event store, to subclass."""

from collections.abc import Callable

import pytest

from trainmaster.model.events import Waited
from trainmaster.model.job import State
from trainmaster.ports import store as port
from trainmaster.ports.store import EventStore, NewEvent
from trainmaster.testing.store_contract import some_job, submit_all

OpenEvents = Callable[..., EventStore]


class EndedJobsContract:
    """Fixture: `open_events(read_only=False)` -> EventStore."""

    def test_those_that_are_over_are_in_the_order_of_the_log(self, open_events: OpenEvents) -> None:
        """In any order of arrival; old jobs are dropped in fixed steps."""
        jobs = {job.id: job for job in (some_job(seq, State.SUCCEEDED, ended_s=9.0) for seq in range(1, 5))}
        last, *others = jobs
        store = open_events()
        submit_all(store, list(jobs.values()))
        for ids in (others[::-1], [last]):
            store.append(9.0, [NewEvent(id, None, Waited("so"), over=True) for id in ids], {id: jobs[id] for id in ids}, [], 0)
        live, again = store.load_live(), open_events()
        assert [job.id for job in live.over] == [*others[::-1], last]
        assert (again.over_since(0), again.load_live()) == ((live.ended, list(live.over)), live)
        assert live.ended == 4
        assert [again.over_since(count)[1] for count in (3, 4)] == [[jobs[last]], []]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(port, "OVER_MAX", 2)
            assert [[job.id for job in again.over_since(count)[1]] for count in (0, 1, 3)] == [[others[0], last]] * 2 + [[last]]
