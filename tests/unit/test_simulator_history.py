"""Our own history as a trace: export and import, and failed jobs under the production life cycle and restart policy."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.errors import UsageError
from trainmaster.model.cluster import Cluster, Pool, Project, Quota, Window
from trainmaster.model.job import Action, Attempt, Cause, Failure, Job, NodeRun, Outcome, RestartBudget, State, Verdict
from trainmaster.model.nodes import Device, Node, NodeState
from trainmaster.model.spec import Resources, Restarts, Role
from trainmaster.recovery.classify import classify
from trainmaster.scheduling.model.convert import kind, sites_of
from trainmaster.scheduling.model.jobs import Kind
from trainmaster.scheduling.policies.known import POLICIES, chosen
from trainmaster.simulator.attempt_replay import AttemptReplay, outcome
from trainmaster.simulator.formats import load
from trainmaster.simulator.history import joined
from trainmaster.simulator.measures import measure
from trainmaster.simulator.replay import Replay, Settings
from trainmaster.simulator.trace import Arrival, Trace, Try, gang, gpu_nodes
from trainmaster.spec.history import Ran, Records, encode, head, heading, row
from trainmaster.testing.builders import attempt, job, spec

NODES = [
    Node(
        "a", "local", "h", "127.0.0.1", 8.0, 2**34, tuple(Device(i, "a100") for i in range(8)), counted=(("custom.seat", 2.0),)
    ),
    Node("b", "local", "h", "127.0.0.1", 4.0, 2**33, state=NodeState.DRAINED),
]
RULES = Cluster(
    (Pool("big", ("a*",), policy="easy", windows=(Window(1.8e9, 1.8e9 + 86_400),)), Pool("default", policy="easy")),
    (Project("vision", weight=2.0, quotas=(("gpus", Quota(1.0, 2.0, 4.0)),)),),
)
CAUSES = [None, *Cause]
ended = st.builds(
    Try, st.floats(0.5, 1e6), st.sampled_from(CAUSES), st.none() | st.integers(1, 255), st.none() | st.just(9), st.booleans()
)
resources = st.builds(
    Resources,
    nodes=st.integers(1, 4),
    gpus=st.integers(0, 8),
    cpus=st.sampled_from([0.5, 1.0, 4.0]),
    memory_bytes=st.none() | st.integers(2**20, 2**40),
    ranks=st.integers(1, 4),
    custom=st.sampled_from([(), (("seat", 1.0),)]),
)


def over(number: int, ran_s: float, cause: Cause | None, **more: object) -> Attempt:
    """An attempt that ended."""
    failure = None if cause is None else Failure(cause, "as it was", 0, 1, None)
    return replace(attempt(number), started_s=100.0, ended_s=100.0 + ran_s, failure=failure, **more)  # type: ignore[arg-type]


def history(path: Path, *jobs: tuple[Job, list[Attempt]], machines: list[Node] = NODES, rules: Cluster = Cluster()) -> Path:  # noqa: B008
    path.write_bytes(encode(heading(machines, rules, 5.0)) + b"".join(encode(row(one, attempts)) for one, attempts in jobs))
    return path


def nameless(one: Kind) -> str:
    """What decides about a job, but for what it runs: that is told as a digest."""
    return repr(replace(one, command=""))


@given(resources, st.integers(-100, 100), st.none() | st.floats(1, 1e6), st.booleans())
def test_what_decides_about_a_job_comes_back_and_its_command_does_not(
    asked: Resources, priority: int, limit_s: float | None, roles: bool
) -> None:
    beside = {"eval": Role("python secret.py", Resources(cpus=2.0))} if roles else {}
    one = job(spec=spec("python --token=secret", resources=asked, priority=priority, time_limit_s=limit_s, roles=beside))
    line = encode(row(one, []))
    assert b"secret" not in line
    record = Records().read(line.decode())
    assert nameless(kind(replace(one, spec=record.spec))) == nameless(kind(one))
    assert (record.id, record.user, record.submit_s, record.state, record.seq) == ("train-1", "ann", 90.0, State.QUEUED, 1)
    assert record.spec.restarts == one.spec.restarts


def test_nodes_come_back() -> None:
    gone = replace(NODES[0], name="c", state=NodeState.GONE)
    back, rules = head(encode(heading([*NODES, gone], RULES, 1.0)).decode())
    assert (sites_of(back), rules) == (sites_of([*NODES, gone]), RULES)


@pytest.mark.parametrize(
    ("states", "names", "down"),
    [
        ([NodeState.UP, NodeState.DRAINED, NodeState.GONE], ["n0"], False),
        ([NodeState.DRAINED, NodeState.LOST, NodeState.GONE], ["n0", "n1"], True),
        ([NodeState.GONE, NodeState.GONE], ["n0", "n1"], True),
    ],
)
def test_where_no_node_is_up_those_are_taken_that_there_were_last(
    tmp_path: Path, states: list[NodeState], names: list[str], down: bool
) -> None:
    done = replace(job(), state=State.SUCCEEDED, ended_s=200.0)
    machines = [replace(NODES[0], name=f"n{at}", state=state) for at, state in enumerate(states)]
    trace = load(history(tmp_path / "own.jsonl", (done, [over(1, 60.0, None)]), machines=machines))
    assert ([site.name for site in trace.sites], trace.down) == (names, down)
    assert [one.ended_s for one in Replay(trace, POLICIES["fifo"]).run().values()] == [60.0]


def test_a_history_is_a_trace(tmp_path: Path) -> None:
    done = replace(job(), state=State.SUCCEEDED, ended_s=200.0)
    evicted = [over(1, 6.0, Cause.EVICTED), over(2, 4.0, Cause.SHRUNK), over(3, 20.0, Cause.KILLED), over(4, 5.0, None)]
    jobs = [
        (replace(done, id="c-1", seq=3, created_s=95.0), [over(1, 60.0, None)]),
        (replace(done, id="b-1", seq=2, created_s=95.0), evicted),
        (replace(done, id="a-1", state=State.CANCELLED), list[Attempt]()),  # never ran
        (replace(job(), id="d-1"), [replace(attempt(1), started_s=100.0)]),  # runs still
    ]
    trace = load(history(tmp_path / "own.jsonl", *jobs))
    assert (trace.name, [site.name for site in trace.sites], trace.passed) == ("own", ["a"], 2)
    assert [(one.id, one.submit_s, one.run_s, one.waited_s, one.line) for one in trace.arrivals] == [
        ("b-1", 0.0, 35.0, 70.0, 3),
        ("c-1", 0.0, 60.0, 45.0, 2),
    ]
    killed = Try(30.0, Cause.KILLED, 1, None, False)
    assert [one.tries for one in trace.arrivals] == [(killed, Try(5.0, None, None, None, False)), ()]


def test_a_history_is_replayed_under_the_rules_of_its_server(tmp_path: Path) -> None:
    one = replace(job(spec=spec(work="evaluation", priority=5)), state=State.SUCCEEDED, ended_s=200.0)
    trace = load(history(tmp_path / "own.jsonl", (one, [over(1, 60.0, None)]), rules=RULES))
    assert (chosen(trace.rules).name, trace.rules.projects, trace.sites[0].pool) == ("easy", RULES.projects, "big")
    assert trace.sites[0].cell.closes_s == float("inf")  # a window of the calendar is none of a trace's
    assert nameless(trace.arrivals[0].kind(trace.rules)) == nameless(kind(one, RULES))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"form": "other"}\n', ":1: the header of a history has form 'trainmaster-history', not 'other'"),
        ('{"form": "trainmaster-history", "version": 9}\n', ":1: version 9 of the form; this is version 1"),
        ('{"form": "trainmaster-history", "version": 1, "nodes": 3}\n', ":1: nodes is a list"),
        ("{\n", ":1: not JSON"),
        ('{"form": "trainmaster-history", "version": 1, "nodes": [{}]}\n', ":1: a node has no name"),
        ('{"form": "trainmaster-history", "version": 1, "nodes": [], "cluster": {"pool": 1}}\n', ":1: cluster: pool"),
    ],
)
def test_a_heading_that_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "h.jsonl").write_text(text)
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "h.jsonl")
    assert (said in caught.value.message, caught.value.hint) == (True, "a history is what `tm export` writes")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"submit_s": "soon"}, "submit_s is a number of 0 or more, not 'soon'"),
        ({"state": "odd"}, "'odd' is not a valid State"),
        ({"attempts": [{"ran_s": -1}]}, "ran_s is a number of 0 or more, not -1"),
        ({"attempts": [{"ran_s": 1, "cause": "magic"}]}, "'magic' is not a valid Cause"),
        ({"spec": {"resources": {"gpu": 1}}}, "spec: resources.gpu"),
        ({"id": None, "spec": 5}, "spec is an object with fields of a spec file"),
    ],
)
def test_a_line_that_is_wrong_is_refused_with_its_number(tmp_path: Path, change: dict[str, object], said: str) -> None:
    told = {**row(replace(job(), state=State.SUCCEEDED, ended_s=200.0), [over(1, 10.0, None)]), **change}
    (tmp_path / "h.jsonl").write_bytes(encode(heading(NODES, Cluster(), 1.0)) + json.dumps(told).encode())
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "h.jsonl")
    assert f":2: not a job: {said}" in caught.value.message


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in (Cause.TIME_LIMIT, Cause.START_LIMIT, Cause.EVICTED, Cause.SHRUNK, Cause.CANCELLED)])
def test_a_cause_is_read_from_what_it_is_turned_into(cause: Cause) -> None:
    told = attempt(1, nodes=("a",))
    found = classify(replace(told, nodes=(NodeRun(outcome=outcome(Try(1.0, cause), 0)),)))
    assert found is not None
    assert found.cause is (Cause.AGENT_LOST if cause is Cause.NODE_LOST else cause)


def arrival(*tries: Try, restarts: Restarts = Restarts()) -> Arrival:  # noqa: B008  a frozen value
    return Arrival("j-1", 0.0, sum(one.ran_s for one in tries), gang(8, 8), tries=tries, restarts=restarts)


def lived(one: Arrival) -> tuple[list[float], State]:
    """How long each attempt ran, and what became of the job."""
    life, now_s, ran = AttemptReplay(one, 1, Random(0)), 0.0, []
    next_s: float | None = one.tries[0].ran_s
    while next_s is not None:
        ran.append(next_s)
        now_s = max(now_s, life.job.not_before_s)
        life.placed("n0", now_s)
        now_s += next_s
        next_s = life.ended(now_s)
    return ran, life.job.state


def test_verdicts_are_the_production_ones() -> None:
    killed, well = Try(10.0, Cause.KILLED), Try(5.0)
    broken, stuck = Try(10.0, Cause.PROGRAM, 1), Try(10.0, Cause.PROGRAM, 1, None, False)
    assert lived(arrival(killed, killed, well)) == ([10.0, 10.0, 5.0], State.SUCCEEDED)
    assert lived(arrival(killed, killed, well, restarts=Restarts(3, 1))) == ([10.0, 10.0], State.FAILED)
    assert lived(arrival(broken, well)) == ([10.0, 5.0], State.SUCCEEDED)
    assert lived(arrival(broken, stuck, well)) == ([10.0, 10.0], State.FAILED)  # no progress since its last failure
    assert lived(arrival(Try(3.0, Cause.OUT_OF_MEMORY), well)) == ([3.0], State.FAILED)
    assert lived(arrival(killed, Try(3.0, Cause.TIME_LIMIT))) == ([10.0, 3.0], State.FAILED)
    assert lived(arrival(killed, Try(3.0, Cause.CANCELLED))) == ([10.0, 3.0], State.CANCELLED)


@given(st.lists(ended, min_size=1, max_size=8), st.integers(0, 3), st.integers(0, 3))
def test_every_recorded_life_comes_to_an_end_within_its_record(tries: list[Try], program: int, infrastructure: int) -> None:
    one = arrival(*joined([Ran(*attempt) for attempt in tries]), restarts=Restarts(program, infrastructure))
    ran, _ = lived(one)
    assert ran == [attempt.ran_s for attempt in one.tries[: len(ran)]]


def test_a_restart_waits_for_its_back_off_and_gives_its_nodes_to_others_meanwhile() -> None:
    lost = Try(100.0, Cause.AGENT_LOST, progressed=False)
    crashing = Arrival("a", 0.0, 400.0, gang(8, 8), tries=(lost, lost, lost, Try(100.0)))
    waiting = Arrival("b", 1.0, 1000.0, gang(8, 8))
    replay = Replay(Trace("t", (crashing, waiting), gpu_nodes(1, 8)), POLICIES["fifo"])
    replay.run()
    first, second = replay.histories["a"], replay.histories["b"]
    assert (first.restarts, first.ran_s, second.started_s) == (3, 400.0, 100.0)  # back in the queue it is the last
    assert 1400.0 <= first.ended_s <= 1410.0  # its back-offs pass while the other runs, or after it
    assert measure(replay).restarts == 3


def test_an_eviction_splits_an_attempt_and_changes_nothing_else() -> None:
    long = Arrival("a", 0.0, 5000.0, gang(8, 8), tries=(Try(4000.0, Cause.KILLED), Try(1000.0)))
    short = Arrival("b", 600.0, 10.0, gang(8, 8))
    replay = Replay(Trace("t", (long, short), gpu_nodes(1, 8)), POLICIES["srtf"], Settings(0.0, exact=True))
    replay.run()
    found = replay.histories["a"]
    assert (found.preemptions, found.restarts, found.ran_s, found.ended_s) == (1, 1, 5000.0, 5010.0)


def test_the_row_of_an_attempt_tells_whether_it_got_further() -> None:
    paid = Verdict(Action.RESTART, State.QUEUED, "again", ledger=RestartBudget.PROGRAM)
    at = [replace(NodeRun(), outcome=Outcome(last_step=step)) for step in (5, 5, 7, None)]
    attempts = [over(n, 1.0, Cause.PROGRAM, nodes=(node,)) for n, node in enumerate(at, 1)]
    attempts[3] = replace(attempts[3], verdict=paid)
    assert [one["progressed"] for one in row(job(), attempts)["attempts"]] == [True, False, True, True]
