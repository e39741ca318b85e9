"""The rules of a cluster on a real server: laid down, foreseen, read back, kept through a kill, and obeyed at submit."""

import json
import os
import signal
from collections.abc import Iterator

import pytest
from running import Tm, cleared, server
from waiting import deadline

from trainmaster import live_processes
from trainmaster.client.api import Client
from trainmaster.home import account_name
from trainmaster.model.cluster import Cluster
from trainmaster.server.views.resources import WAITING
from trainmaster.spec.cluster.document import from_mapping, load_bytes

ME = account_name()
RULES = f"""
pools:
  first: {{nodes: node0, price: 2.5}}
  rest: {{nodes: "node*"}}
projects:
  vision: {{weight: 2, quota: {{gpus: {{guarantee: 2, nominal: 3}}}}, urgent: [{ME}]}}
  speech: {{}}
  default: {{}}
classes:
  nightly: {{priority: -5000}}
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    with server(tmp_path_factory.mktemp("cluster"), "--nodes", "2", "--gpus-per-node", "1") as tm:
        tm.file("cluster.yaml", RULES)
        tm.file("none.yaml", "pools: {}\n")
        yield tm


@pytest.fixture
def tm(shared: Tm) -> Iterator[Tm]:
    """The server without rules, idle."""
    yield shared
    cleared(shared)
    shared.ok("apply", "none.yaml")


def _hold(tm: Tm, project: str = "default") -> list[str]:
    """Every CPU taken; the jobs that have them."""
    cpus = [str(int(node["cpus"])) for node in tm.json("nodes")]
    held = [tm.submit("--project", project, "--name", f"held{n}", "--cpus", count, "--", "sleep", "300") for n, count in enumerate(cpus)]
    for job in held:
        deadline(lambda job=job: tm.show(job)["state"] == "running", f"{job} does not run", 30.0)  # type: ignore[misc]
    return held


def _pid(tm: Tm, which: str) -> int:
    info = live_processes.running(tm.home)
    assert info is not None
    return info.pids[which]


def _taken_up(tm: Tm, job: str) -> None:
    deadline(lambda: tm.show(job)["reason"] not in ("queued", WAITING), f"{job} was not taken up", 30.0)


def test_rules_are_foreseen_laid_down_and_kept_through_a_kill(tm: Tm) -> None:
    plain = tm.json("policy")
    assert from_mapping(plain["cluster"]) == Cluster()
    _hold(tm)
    first = tm.submit("--name", "first", "--", "true")
    second = tm.submit("--name", "second", "--class", "evaluation", "--", "true")
    third = tm.submit("--name", "third", "--", "true")
    _taken_up(tm, third)
    (tm.work / "other.yaml").write_text("classes: {evaluation: {priority: -1}}\n")
    foreseen = tm.json("plan", "other.yaml")
    assert foreseen["changes"] == ["classes.evaluation.priority: -1 (new)"]
    places = {job["id"]: (job["now"]["position"], job["then"]["position"]) for job in foreseen["jobs"]}
    assert places == {second: (1, 3), first: (2, 1), third: (3, 2)}
    assert f"{second}: number 3 in the queue, not 1" in tm.ok("plan", "other.yaml")
    assert tm.json("policy") == plain, "a plan changes nothing"

    assert tm.json("apply", "cluster.yaml")["changes"][0] == "pools.first.nodes: node0 (new)"
    assert tm.json("apply", "cluster.yaml") == {"changes": [], "words": []}
    want = load_bytes(RULES.encode(), "cluster.yaml")
    assert load_bytes(tm.ok("policy", "--yaml").encode(), "back.yaml") == want
    killed = _pid(tm, "control")
    os.kill(killed, signal.SIGKILL)
    deadline(lambda: live_processes.alive(tm.home, "control") and _pid(tm, "control") != killed, "control does not come back", 60.0)
    assert from_mapping(tm.json("policy")["cluster"]) == want
    late = tm.submit("--name", "late", "--class", "nightly", "--", "true")
    _taken_up(tm, late)


def test_a_job_is_held_against_the_rules(tm: Tm) -> None:
    unknown = tm("submit", "--class", "nightly", "--", "true")
    assert (unknown.code, unknown.err.partition("\n")[0]) == (
        2, "error: there is no class 'nightly' here; known: production, interactive, evaluation, training, trial",
    )  # fmt: skip
    tm.ok("apply", "cluster.yaml")
    job = tm.submit("--class", "nightly", "--pool", "rest", "--project", "vision", "--", "true")
    deadline(lambda: tm.show(job)["state"] == "succeeded", f"{job} does not end", 30.0)
    assert (tm.show(job)["class"], tm.show(job)["nodes"]) == ("nightly", ["node1"])
    assert "did you mean 'first'?" in tm("submit", "--pool", "frist", "--", "true").err
    assert "did you mean 'nightly'?" in tm("submit", "--class", "nightli", "--", "true").err
    much = tm("submit", "--pool", "first", "--gpus", "2", "--", "true")
    assert (much.code, "in pool first" in much.err) == (6, True), much


def test_who_can_never_start_under_the_rules_hears_so_at_once(tm: Tm) -> None:
    (tm.work / "few.yaml").write_text("projects: {small: {quota: {gpus: 1}}, default: {}}\n")
    tm.ok("apply", "few.yaml")
    _taken_up(tm, tm.submit("--name", "behind", "--", "true"))  # and so the rules, which came before it
    many = tm("submit", "--project", "small", "--nodes", "2", "--gpus", "1", "--name", "many", "--", "true")
    assert (many.code, many.out) == (0, "many-1\n"), many
    note = "note: it cannot start under the present configuration (tm policy): it asks for 2 GPUs; project small may hold 1 GPU"
    assert note in many.err.splitlines()
    assert "note" not in tm("submit", "--project", "small", "--gpus", "1", "--name", "one", "--", "true").err
    assert "note" not in tm("submit", "--name", "usual", "--", "true").err
    tm.ok("cancel", "many-1")
    assert note in tm("requeue", "many-1").err.splitlines(), "however it is made"


def test_who_may_puts_a_job_ahead_of_all(tm: Tm) -> None:
    tm.ok("apply", "cluster.yaml")
    _hold(tm, "vision")  # others may not take the CPUs beside the GPUs that are guaranteed to it
    waits = tm.submit("--class", "production", "--name", "waits", "--", "true")
    refused = tm("submit", "--project", "speech", "--urgent", "--reason", "a demo", "--", "true")
    assert refused.refusal[0] == 4
    assert f"{ME} may not call a job of speech urgent; nobody may" in refused.err
    assert "needs a reason" in tm("submit", "--urgent", "--", "true").err
    urgent = tm.submit("--project", "vision", "--name", "urgent", "--urgent", "--reason", "a demo", "--", "true")
    _taken_up(tm, urgent)
    assert tm.show(urgent)["urgent"] == {"by": ME, "reason": "a demo"}
    assert f"urgent     {ME}: a demo" in tm.ok("show", urgent)
    why = json.loads(tm.ok("why", waits, "--json"))
    assert (why["position"], f"{urgent} is urgent ({ME}: a demo)" in why["reason"]) == (2, True), why
    assert f"as urgent ({ME}: a demo)" in tm.ok("note", "--list", "--project", "vision")


def test_what_the_nodes_cannot_keep_is_said_or_refused(tm: Tm) -> None:
    (tm.work / "much.yaml").write_text("projects: {v: {quota: {gpus: {guarantee: 3}}}}\npools: {far: {nodes: z-*}}\n")
    refused = tm("apply", "much.yaml")
    assert (refused.code, "3 gpus are guaranteed in total; the nodes have 2" in refused.err) == (2, True)
    tm.ok("nodes", "drain", "node1")
    deadline(lambda: tm.json("nodes")[1]["state"] == "drained", "node1 is not drained", 30.0)
    refused = tm("apply", "much.yaml")
    beyond = "3 gpus are guaranteed in total; the nodes have 1 now, and with those that are away 2"
    assert (refused.code, beyond in refused.err) == (2, True)
    (tm.work / "all.yaml").write_text("projects: {v: {quota: {gpus: {guarantee: 2}}}}\npools: {far: {nodes: z-*}}\n")
    assert tm.json("apply", "all.yaml")["words"] == [
        "pool far: no node matches z-* and is in no earlier pool",
        "2 gpus are guaranteed in total; the nodes have 1 now (1 away, with 1 more)",
    ]
    (tm.work / "wrong.yaml").write_text("projects: {v: {wait: 2}}\n")
    tm.ok("nodes", "resume", "node1")
    wrong = tm("apply", "wrong.yaml")
    assert (wrong.code, wrong.err.partition(";")[0]) == (2, "wrong.yaml:1:16: projects.v.wait: unknown field")


def test_an_order_by_factors_says_what_each_counts(tm: Tm) -> None:
    (tm.work / "factors.yaml").write_text("pools: {all: {policy: multifactor}}\nmultifactor: {class: 3000, age: 0, fair_share: 0}\n")
    tm.ok("apply", "factors.yaml")
    held = _hold(tm)
    low = tm.submit("--name", "low", "--", "true")
    high = tm.submit("--name", "high", "--class", "evaluation", "--priority", "100", "--", "true")
    _taken_up(tm, high)
    assert [job["id"] for job in tm.json("queue")] == [high, low]
    assert tm.json("why", high)["terms"] == {
        "workload_class": 1500.0, "priority": 100.0, "age": 0.0, "fair_share": 0.0, "size": 0.0,
    }  # fmt: skip
    assert "(it counts 1,600: class 1,500 + own priority 100)" in tm.ok("why", high)
    assert "a job's place is the sum of its class up to 3,000, its own priority up to 100" in tm.ok("policy")
    for job in held:
        tm.ok("cancel", job, "--grace", "0")
    assert tm.ended(high)["state"] == "succeeded"
    info = live_processes.running(tm.home)
    assert info is not None
    with Client(info.url, tm.home.token_file.read_text().strip()) as client:
        placed = next(event for event in client.events(high) if event["type"] == "Placed")
    assert placed["data"]["terms"]["workload_class"] == 1500.0
    assert "(it counted 1,600: class 1,500 + own priority 100)" in placed["text"]


def test_all_of_it_is_on_record(shared: Tm) -> None:
    """After all of the above: rules that came and went, jobs cancelled, a kill."""
    shared.ok("down", "--cancel")
    assert "replaying the event log gives the recorded state" in shared("doctor", "--replay").out
