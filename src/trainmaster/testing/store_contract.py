"""Contract suites for `trainmaster.ports.store`: subclass them once per store.

A subclass provides the fixtures named in each suite. An opener that is called again opens the same store, as another process
would; it must work in a forked child. The suites kill real processes and fill real disks.
"""

import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainmaster.errors import DiskFullError, TrainmasterError
from trainmaster.model.commands import AgentReport, CancelJob, Command, HoldJob, ReleaseJob, SetNodeState, SubmitJob
from trainmaster.model.events import EVENTS, Event, Released, Submitted, Waited
from trainmaster.model.job import Attempt, Job, NodeRun, State
from trainmaster.model.nodes import Allocation, Node, NodeShare, NodeState
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.ports.store import EventStore, Inbox, InboxRow, JobQuery, Live, NewEvent, NewRow, Recorded

KILLS = 4
_examples = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))

Full = Callable[[Any], AbstractContextManager[None]]
OpenEvents = Callable[..., EventStore]
OpenInbox = Callable[..., Inbox]


def some_job(seq: int, state: State = State.QUEUED, **changes: Any) -> Job:
    """Job `<experiment>-<seq>`; `project`, `experiment` and `name` are fields of its spec."""
    named = {name: changes.pop(name) for name in ("project", "experiment", "name") if name in changes}
    spec = replace(JobSpec(command="python train.py"), **named)
    job = Job(f"{spec.experiment}-{seq}", seq, spec, Origin(user="ada"), CodeCopy(), 10.0 + seq, state, "because", 10.0 + seq)
    return replace(job, **changes)


def some_attempt(number: int) -> Attempt:
    """An attempt on one node."""
    return Attempt(number, Allocation((NodeShare("n1", "127.0.0.1", 1.0),)), 20.0, (NodeRun(),))


def some_node(name: str) -> Node:
    """A node of this machine."""
    return Node(name, "local", "here", "127.0.0.1", 2.0, 2**30)


def submission(key: str, experiment: str = "digits") -> NewRow:
    """A submission to accept."""
    spec = JobSpec(command="python train.py", experiment=experiment)
    return NewRow(key, SubmitJob("", spec, Origin(), CodeCopy()), 1.0, experiment)


def report(key: str, agent: str, received_s: float = 1.0) -> NewRow:
    """An agent's report to accept."""
    return NewRow(key, AgentReport(agent, {"kind": "started", "n": 1}), received_s)


def submit_all(store: EventStore, jobs: Sequence[Job]) -> None:
    """Append submissions of all `jobs` in one transaction."""
    news = [NewEvent(job.id, None, Submitted(job.seq, job.spec, job.origin, job.code, job.created_s)) for job in jobs]
    store.append(1.0, news, {job.id: job for job in jobs}, [], 0)


def forked(body: Callable[[], None]) -> int:
    """Run `body` in a child process. Returns its pid. It exits 0 if `body` returns, 1 if it raises."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            body()
            code = 0
        finally:
            os._exit(code)  # in any case, the test runner must not continue twice
    return child


def killed_while_writing(write: Callable[[int], None], rng: random.Random) -> int:
    """Run `write(0)`, `write(1)`, … in a child, kill it at a random instant, and return how many calls had returned."""
    read_end, write_end = os.pipe()

    def body() -> None:
        for number in range(1_000_000):
            write(number)
            os.write(write_end, b".")

    child = forked(body)
    os.close(write_end)
    try:
        acknowledged = 0
        enough = rng.randrange(1, 60)
        while acknowledged < enough and (more := os.read(read_end, 1)):
            acknowledged += len(more)
        for _ in range(rng.randrange(20_000)):  # to a random point of the following call
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    while more := os.read(read_end, 4096):
        acknowledged += len(more)
    os.close(read_end)
    assert os.WTERMSIG(status) == signal.SIGKILL
    return acknowledged


class EventStoreContract:
    """Fixtures: `open_events(read_only=False)` -> EventStore; `full_disk(store)`, a context with a full disk."""

    @pytest.fixture
    def store(self, open_events: OpenEvents) -> EventStore:
        return open_events()

    def test_starts_out_empty(self, store: EventStore) -> None:
        assert store.load_live() == Live((), (), 0, 0.0, 0)
        assert (store.jobs(JobQuery()), store.nodes(), store.events(0, 10), store.attempts("x-1")) == ([], [], [], [])
        assert store.job("x-1") is None

    def test_what_was_appended_is_there_after_reopening(self, open_events: OpenEvents) -> None:
        job, node = some_job(1, State.STARTING, attempt=some_attempt(1)), some_node("n1")
        events: list[Event] = [Waited("first"), Released("ada")]
        new = [NewEvent(job.id, 1, events[0]), NewEvent(None, None, events[1])]
        assert open_events().append(5.0, new, {job.id: job}, [node], 7) == 2
        again = open_events()
        assert again.load_live() == Live((job,), (node,), 2, 5.0, 7)
        assert (again.job(job.id), again.attempts(job.id), again.nodes()) == (job, [job.attempt], [node])
        one, two = again.events(0, 10)
        assert one == Recorded(1, 5.0, job.id, 1, events[0], one.hash)
        assert two == Recorded(2, 5.0, None, None, events[1], two.hash)
        assert one.hash != two.hash

    def test_a_later_value_replaces_the_earlier(self, store: EventStore) -> None:
        submit_all(store, [some_job(1)])
        ended = some_job(1, State.SUCCEEDED, ended_s=9.0)
        down = replace(some_node("n1"), state=NodeState.LOST)
        store.append(2.0, [], {ended.id: ended}, [some_node("n1"), down], 3)
        assert (store.jobs(JobQuery()), store.nodes()) == ([ended], [down])
        assert store.load_live() == Live((), (down,), 1, 2.0, 3)

    def test_recorded_time_never_runs_backwards(self, store: EventStore) -> None:
        store.append(9.0, [], {}, [], 0)
        store.append(4.0, [], {}, [], 1)
        assert store.load_live() == Live((), (), 0, 9.0, 1)

    def test_live_is_what_is_not_over_and_what_still_deletes(self, store: EventStore) -> None:
        jobs = [some_job(seq, state) for seq, state in enumerate(State, start=1)]
        deleting = some_job(20, State.SUCCEEDED, deleting=("c1",))
        submit_all(store, [deleting, *reversed(jobs)])
        assert store.load_live().jobs == (*(job for job in jobs if not job.state.ended), deleting)
        store.append(2.0, [], {deleting.id: replace(deleting, deleting=())}, [], 0)
        assert store.load_live().jobs == tuple(job for job in jobs if not job.state.ended)

    def test_every_attempt_stays(self, store: EventStore) -> None:
        first, second = some_attempt(1), some_attempt(2)
        ended = replace(first, ended_s=30.0)
        for attempt in (first, ended, second):
            job = some_job(1, State.STARTING, attempt=attempt)
            store.append(1.0, [], {job.id: job}, [], 0)
        assert store.attempts("job-1") == [ended, second]

    def test_lists_newest_first_by_page_and_filter(self, store: EventStore) -> None:
        jobs = [
            some_job(seq, state, project=project, experiment=experiment)
            for seq, (state, project, experiment) in enumerate(
                ((s, p, e) for s in State for p in ("vision", "text") for e in ("a", "b") for _ in range(2)), start=1
            )
        ]
        submit_all(store, jobs)
        newest = jobs[::-1]
        assert store.jobs(JobQuery(limit=3)) == newest[:3]
        assert store.jobs(JobQuery(limit=3, before_seq=newest[2].seq)) == newest[3:6]
        for states in ((), (State.FAILED,), (State.RUNNING, State.HELD), (State.HELD, State.HELD)):
            for project in (None, "vision", "none"):
                for experiment in (None, "b"):
                    wanted = [
                        job
                        for job in newest
                        if (not states or job.state in states)
                        and project in (None, job.spec.project)
                        and experiment in (None, job.spec.experiment)
                    ]
                    query = JobQuery(states, project, experiment, limit=5)
                    assert store.jobs(query) == wanted[:5]
                    if len(wanted) > 5:
                        assert store.jobs(replace(query, before_seq=wanted[4].seq)) == wanted[5:10]

    def test_the_log_by_page_and_by_job(self, store: EventStore) -> None:
        new = [NewEvent(f"job-{n % 2}", None, Waited(str(n))) for n in range(6)]
        assert store.append(1.0, new, {}, [], 0) == 6
        log = store.events(0, 100)
        assert [(r.seq, r.job, r.event) for r in log] == [(n + 1, e.job, e.event) for n, e in enumerate(new)]
        assert store.events(2, 3) == log[2:5]
        assert store.events(1, 2, "job-1") == [log[1], log[3]]

    def test_a_full_disk_refuses_whole_and_is_got_over(self, store: EventStore, full_disk: Full) -> None:
        submit_all(store, [some_job(1)])
        before = (store.load_live(), store.events(0, 100))
        with full_disk(store):
            big = [NewEvent("job-1", None, Waited("x" * 10_000)) for _ in range(300)]
            with pytest.raises(DiskFullError) as refusal:
                store.append(2.0, big, {"job-2": some_job(2)}, [some_node("n1")], 9)
            assert refusal.value.hint
            assert (store.load_live(), store.events(0, 100)) == before
        assert store.append(3.0, [NewEvent("job-1", None, Waited("go on"))], {}, [], 1) == 2

    def test_reading_only_writes_nothing(self, store: EventStore, open_events: OpenEvents) -> None:
        reader = open_events(read_only=True)
        with pytest.raises(TrainmasterError):
            reader.append(1.0, [], {"job-1": some_job(1)}, [], 0)
        submit_all(store, [some_job(1)])
        assert reader.jobs(JobQuery()) == [some_job(1)]

    def test_what_was_appended_survives_kill_9(self, open_events: OpenEvents) -> None:
        rng, done = random.Random(7), 0
        for _ in range(KILLS):
            opened: list[EventStore] = []

            def write(number: int, opened: list[EventStore] = opened, done: int = done) -> None:
                store = opened[0] if opened else open_events()
                opened[:] = [store]
                seq = done + number + 1
                store.append(float(seq), [NewEvent("job-1", None, Waited(str(seq)))], {f"job-{seq}": some_job(seq)}, [], seq)

            acknowledged = done + killed_while_writing(write, rng)
            store = open_events()
            live = store.load_live()
            done = live.last_seq
            assert acknowledged <= done <= acknowledged + 1  # the one in progress may be stored, but only completely
            assert live == Live(tuple(some_job(n + 1) for n in range(done)), (), done, float(done), done)
            assert [r.event for r in store.events(0, 10_000)] == [Waited(str(n + 1)) for n in range(done)]

    def test_a_reader_elsewhere_sees_whole_transactions(self, store: EventStore, open_events: OpenEvents) -> None:
        count = 60

        def read() -> None:
            reader, live = open_events(read_only=True), Live((), (), 0, 0.0, 0)
            while live.last_seq < count:
                live = reader.load_live()
                assert (len(live.jobs), live.inbox_cursor) == (live.last_seq, live.last_seq)

        child = forked(read)
        for seq in range(1, count + 1):
            store.append(1.0, [NewEvent(None, None, Waited(""))], {f"job-{seq}": some_job(seq)}, [], seq)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    @_examples
    @given(data=st.data())
    def test_any_event_and_job_comes_back(self, store: EventStore, data: st.DataObject) -> None:
        events = data.draw(st.lists(st.one_of(*(st.from_type(cls) for cls in EVENTS.values())), max_size=4))
        last_seq = store.load_live().last_seq
        job = replace(data.draw(st.from_type(Job)), id=f"job-{last_seq}", seq=last_seq)
        if job.attempt is not None:  # a number that we assign, which fits a database integer
            job = replace(job, attempt=replace(job.attempt, number=job.attempt.number % 2**31))
        new = [NewEvent(job.id, data.draw(st.none() | st.integers(0, 99)), event) for event in events]
        assert store.append(1.5, new, {job.id: job}, [], 0) == last_seq + len(new)
        found = [(r.job, r.attempt, repr(r.event)) for r in store.events(last_seq, 10)]  # repr: NaN equals NaN
        assert found == [(n.job, n.attempt, repr(n.event)) for n in new]
        assert repr(store.job(job.id)) == repr(job)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_commands: st.SearchStrategy[Command] = st.one_of(
    *(st.from_type(cls) for cls in (CancelJob, HoldJob, ReleaseJob, SetNodeState)),
    st.builds(AgentReport, key=st.just("digits-1.2/n0"), report=st.dictionaries(st.text(), _json, max_size=3)),
)


class InboxContract:
    """Fixtures: `open_inbox(read_only=False)` -> Inbox; `full_disk(store)`, a context with a full disk."""

    @pytest.fixture
    def inbox(self, open_inbox: OpenInbox) -> Inbox:
        return open_inbox()

    def test_numbers_are_drawn_per_experiment(self, inbox: Inbox, open_inbox: OpenInbox) -> None:
        ids = inbox.accept([submission("k1"), submission("k2", "other"), submission("k3")])
        assert ids == ["digits-1", "other-1", "digits-2"]
        assert open_inbox().accept([submission("k4")]) == ["digits-3"]
        rows = inbox.drain(0, 10)
        assert [(r.key, r.job, r.command.job) for r in rows if isinstance(r.command, SubmitJob)] == [
            ("k1", "digits-1", "digits-1"),
            ("k2", "other-1", "other-1"),
            ("k3", "digits-2", "digits-2"),
            ("k4", "digits-3", "digits-3"),
        ]

    def test_the_same_key_is_the_same_row(self, inbox: Inbox) -> None:
        twice = [submission("k1"), submission("k1", "other"), submission("k2")]
        assert inbox.accept(twice) == ["digits-1", "digits-1", "digits-2"]
        assert inbox.accept([*twice, submission("k3")]) == ["digits-1", "digits-1", "digits-2", "digits-3"]
        assert [row.key for row in inbox.drain(0, 10)] == ["k1", "k2", "k3"]
        assert inbox.accept([]) == []

    def test_each_row_answers_with_its_job(self, inbox: Inbox) -> None:
        commands: list[Command] = [CancelJob("digits-7", "ada"), SetNodeState("n1", NodeState.DRAINED, "ada")]
        rows = [NewRow(f"k{n}", command, 2.0) for n, command in enumerate(commands)] + [report("r", "digits-8.1/n0", 3.0)]
        assert inbox.accept(rows) == ["digits-7", "", "digits-8"]
        assert inbox.drain(0, 10) == [
            InboxRow(1, "k0", "digits-7", 2.0, commands[0]),
            InboxRow(2, "k1", "", 2.0, commands[1]),
            InboxRow(3, "r", "digits-8", 3.0, AgentReport("digits-8.1/n0", {"kind": "started", "n": 1})),
        ]

    def test_drains_in_order_after_the_cursor(self, inbox: Inbox) -> None:
        inbox.accept([submission(f"k{n}") for n in range(6)])
        rows = inbox.drain(0, 100)
        assert [row.key for row in rows] == [f"k{n}" for n in range(6)]
        assert [row.seq for row in rows] == sorted({row.seq for row in rows})
        assert inbox.drain(rows[1].seq, 3) == rows[2:5]

    def test_pending_is_commands_not_taken_up(self, inbox: Inbox) -> None:
        cancel = NewRow("k3", CancelJob("digits-1", "x"), 1.0)
        inbox.accept([submission("k1"), report("r1", "digits-1.1/n0"), submission("k2"), cancel])
        rows = inbox.drain(0, 10)
        assert inbox.pending(0) == [rows[0], rows[2], rows[3]]
        assert inbox.pending(rows[0].seq) == [rows[2], rows[3]]
        assert inbox.pending(0, "digits-1") == [rows[0], rows[3]]

    def test_trim_forgets_what_was_taken_and_reuses_nothing(self, open_inbox: OpenInbox) -> None:
        day_s, inbox = 24 * 3600.0, open_inbox()
        new = [submission("old"), replace(submission("young"), received_s=2 * day_s), report("r1", "digits-1.1/n0")]
        inbox.accept([*new, report("r2", "digits-1.1/n0"), submission("old, not taken")])
        rows = inbox.drain(0, 10)
        inbox.trim(rows[2].seq, 8 * day_s)
        assert inbox.drain(0, 10) == [rows[1], rows[3], rows[4]]
        inbox.trim(rows[4].seq, 100 * day_s)
        assert inbox.drain(0, 10) == []
        again = open_inbox()
        assert again.accept([submission("old")]) == ["digits-4"]  # its key was forgotten, its number was not
        assert [row.seq for row in again.drain(rows[4].seq, 10)] == [rows[4].seq + 1]

    def test_keeps_ahead_of_what_was_given_out_elsewhere(self, inbox: Inbox) -> None:
        inbox.keep_ahead(100, {"digits": 14})
        inbox.keep_ahead(3, {"digits": 2, "other": 0})
        assert inbox.accept([submission("k1"), submission("k2", "other")]) == ["digits-15", "other-1"]
        assert [row.seq for row in inbox.drain(100, 10)] == [101, 102]

    def test_threads_accept_at_once(self, inbox: Inbox) -> None:
        answers: list[str] = []

        def accept(name: str) -> None:
            for n in range(40):
                answers.extend(inbox.accept([submission(f"shared-{n}"), submission(f"{name}-{n}")]))

        threads = [threading.Thread(target=accept, args=(name,)) for name in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 3 * 80
        assert set(answers) == {f"digits-{n}" for n in range(1, 40 + 3 * 40 + 1)}
        assert [row.job for row in inbox.drain(0, 1000)] == [f"digits-{n}" for n in range(1, 161)]

    def test_a_full_disk_refuses_whole_and_is_got_over(self, inbox: Inbox, full_disk: Full) -> None:
        inbox.accept([submission("k1")])
        with full_disk(inbox):
            with pytest.raises(DiskFullError):
                inbox.accept([submission(f"n{n}") for n in range(3000)])
            assert [row.key for row in inbox.drain(0, 10)] == ["k1"]
        assert inbox.accept([submission("k1"), submission("k2")]) == ["digits-1", "digits-2"]

    def test_what_was_accepted_survives_kill_9(self, open_inbox: OpenInbox) -> None:
        rng, done = random.Random(11), 0
        for _ in range(KILLS):
            opened: list[Inbox] = []

            def write(number: int, opened: list[Inbox] = opened, done: int = done) -> None:
                inbox = opened[0] if opened else open_inbox()
                opened[:] = [inbox]
                inbox.accept([submission(f"k{done + number}")])

            acknowledged = done + killed_while_writing(write, rng)
            rows = open_inbox().drain(0, 10_000)
            done = len(rows)
            assert acknowledged <= done <= acknowledged + 1
            assert [(row.key, row.job) for row in rows] == [(f"k{n}", f"digits-{n + 1}") for n in range(done)]

    @_examples
    @given(commands=st.lists(_commands, min_size=1, max_size=4))
    def test_any_command_comes_back(self, inbox: Inbox, commands: list[Command]) -> None:
        cursor = max((row.seq for row in inbox.drain(0, 10_000)), default=0)
        inbox.accept([NewRow(f"{cursor}-{n}", command, 1.0) for n, command in enumerate(commands)])
        assert [repr(row.command) for row in inbox.drain(cursor, 100)] == [repr(command) for command in commands]
