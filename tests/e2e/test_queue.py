"""A queue on virtual nodes, as people ask about it: `tm why`, `tm queue`, `tm plan`, and what they say against what happens."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from effort import nightly
from running import Tm, server
from waiting import deadline

from trainmaster import live_processes
from trainmaster.client.api import Client


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A server with two virtual nodes of one stand-in GPU each."""
    with server(tmp_path_factory.mktemp("queue"), "--nodes", "2", "--gpus-per-node", "1") as tm:
        yield tm


def foreseen(tm: Tm, job: str) -> bool:
    """Whether a forecast of a job is on record."""
    info = live_processes.running(tm.home)
    assert info is not None
    with Client(info.url, tm.home.token_file.read_text().strip()) as client:
        return "Foreseen" in {event["type"] for event in client.events(job)}


def test_the_queue_is_explained_and_what_it_says_comes_true(tm: Tm) -> None:
    usual = ("--time-limit", "1h", "--gpus", "1", "--cpus", "0.1")
    long = [tm.submit("--name", "long", *usual, "--", "sleep", "600") for _ in range(2)]
    deadline(lambda: {tm.show(job)["state"] for job in long} == {"running"}, "both to run", timeout_s=30.0)
    gang = tm.submit("--name", "gang", "--nodes", "2", *usual, "--", "true")
    small = tm.submit("--name", "small", "--project", "vision", *usual, "--", "true")
    deadline(lambda: tm.show(small)["reason"].startswith("waiting for"), "control to have looked")

    why = tm.json("why", gang)
    assert (why["kind"], why["position"], why["ahead"]) == ("busy", 2, 1), "vision has had nothing yet"
    assert why["needs"] == [*({"what": "ends", "name": job} for job in long), {"what": "leaves", "name": small}]
    assert f"It starts once {long[0]} and {long[1]} have ended and {small}, ahead of it, has had a turn." in why["text"]
    eta_s = why["eta_s"]
    assert 0 <= eta_s["low90"] <= eta_s["low50"] <= eta_s["p50"] <= eta_s["high50"] <= eta_s["high90"]
    assert 1800 < eta_s["p50"] <= 7200, "as long as limits allow: nobody knows better yet"
    first, second = tm.ok("why", small).splitlines()
    assert first.startswith(f"{small} is number 1 in the queue, waiting for 1 GPU, 0.1 CPUs: other jobs hold what it needs")
    assert second.startswith("It will probably start within ")
    assert ((eta_s["jobs"], eta_s["few"]), second.endswith("), a guess: no job has finished yet.")) == ((0, True), True)
    assert "start estimates: a guess: no job has finished yet\n" in tm("queue").err

    deadline(lambda: foreseen(tm, gang) and foreseen(tm, small), "forecasts to be on record", timeout_s=40.0)

    queue = tm.json("queue")
    assert [(job["position"], job["id"], job["project"], job["class"]) for job in queue] == [
        (1, small, "vision", "training"), (2, gang, "default", "training"),
    ]  # fmt: skip
    assert all(job["eta_s"]["p50"] is not None for job in queue)
    assert [job["id"] for job in tm.json("queue", "--project", "vision")] == [small]
    assert tm.ok("queue", "-q", "-n", "1") == f"{small}\n"
    assert " ".join(tm.ok("queue").splitlines()[0].split()) == "# ID PROJECT MEMBER CLASS ASKS FOR WAITED STARTS IN 90 % WHY"

    more = ("--time-limit", "3h", "--gpus", "1", "--cpus", "0.1", "--class", "interactive")
    plan = json.loads(tm.ok("plan", "--json", *more, "--", "true"))
    assert (plan["placement"], plan["position"], plan["cost"]) == (None, 1, None)
    assert gang in {one["job"] for one in plan["delays"]}, "it would go first, and for long"
    told = tm.ok("plan", *more, "--", "true")
    assert f"delays   {gang} by about " in told
    assert "It will probably start within " in told
    assert "), a guess: no job has finished yet." in told

    tm.ok("cancel", long[0], "--grace", "0")
    assert tm.ended(small)["state"] == "succeeded", "it needed one of them"
    assert tm.json("why", gang)["needs"] == [{"what": "ends", "name": long[1]}]
    tm.ok("cancel", long[1], "--grace", "0")
    assert tm.ended(gang)["state"] == "succeeded"
    assert tm.ok("why", gang) == f"{gang} has succeeded: every rank exited 0\n"
    assert tm("queue").refusal == (0, "nothing waits\n")


@nightly
def test_what_waits_for_somebody_to_act_says_so_and_not_that_many_are_ahead(tm: Tm) -> None:
    tm.file("rules.yaml", "projects: {small: {quota: {gpus: 1}}}\n")
    tm.ok("apply", "rules.yaml")
    asks = ("--nodes", "2", "--gpus", "1", "--cpus", "0.1")
    never = tm.submit("--name", "never", "--project", "small", *asks, "--", "true")
    assert tm.ok("why", never) == (
        f"{never} is number 1 in the queue, and cannot start under these rules: it asks for 2 GPUs; project small may hold 1 GPU. "
        "It starts once more is allowed to small.\n"
    )
    tm.ok("cancel", never)
    tm.file("rules.yaml", "pools: {all: {nodes: 'node*', maintenance: 'daily 03:00/30m'}}\n")
    tm.ok("apply", "rules.yaml")
    long = tm.submit("--name", "long", "--time-limit", "48h", "--cpus", "0.1", "--", "true")
    way = "maintenance of pool all never leaves it more than 23 h 30 min: give it a time limit of 23 h 30 min or less, or none"
    assert tm.ok("why", long) == (
        f"{long} is number 1 in the queue, and cannot start under these rules: it asks for 0.1 CPUs for 48 h; {way}. "
        "It starts once the maintenance of pool all is out of its way.\n"
    )
    planned = json.loads(tm.ok("plan", "--json", "--time-limit", "48h", "--cpus", "0.1", "--", "true"))["reason"]
    assert planned == f"it is number 2 in the queue, and cannot start under these rules: it asks for 0.1 CPUs for 48 h; {way}"
    tm.ok("cancel", long)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    tm.file("rules.yaml", "pools: {all: {nodes: 'node*', maintenance: " + tomorrow.strftime("%Y-%m-%dT%H:%M") + "/1h}}\n")
    tm.ok("apply", "rules.yaml")
    late = tm.submit("--name", "late", "--time-limit", "48h", "--cpus", "0.1", "--", "true")
    assert tm.ok("why", late) == (
        f"{late} is number 1 in the queue, waiting for 0.1 CPUs for 48 h: "
        f"maintenance of pool all (from {tomorrow:%Y-%m-%d %H:%M} UTC) is in the way. It starts once the maintenance of pool all is out of its way.\n"
        "It cannot start before that is over; there is no estimate of when.\n"
    )
    tm.ok("cancel", late)
    tm.file("rules.yaml", "{}\n")
    tm.ok("apply", "rules.yaml")
    for node in ("node0", "node1"):
        tm.ok("nodes", "drain", node)
    gang = tm.submit("--name", "drained", *asks, "--", "true")
    said = tm.ok("why", gang)
    assert said.endswith("It starts once node0 and node1 take work again.\nThere is no estimate of when that will be.\n")
    for node in ("node0", "node1"):
        tm.ok("nodes", "resume", node)
    tm.state(gang, "succeeded", timeout_s=30)


def test_who_is_held_is_said_with_the_way_out(tm: Tm) -> None:
    kept = tm.submit("--name", "kept", "--project", "apart", "--hold", "--", "true")
    said = f"held, and not in the queue: {kept} of {tm.show(kept)['member']} (held at submit); release it: tm release {kept}\n"
    deadline(lambda: tm.show(kept)["state"] == "held", "control to have looked")
    found = tm("queue", "--project", "apart")
    assert (found.code, found.out, found.err) == (0, "", f"nothing is in the queue\n{said}")
    assert said in tm("queue").err
    assert tm.json("queue", "--project", "apart") == []
    tm.ok("cancel", kept)
    assert tm("queue", "--project", "apart").err == "nothing of project apart waits; the whole queue: tm queue\n"
