"""The agent's conversation with a server: told at once, spooled while it is away, orders obeyed, gangs brought together."""

import json
import os
import sys
from pathlib import Path

from agents import agent
from sync_server import sync_server
from waiting import deadline

import trainmaster

KEY = "digits-1.1/n0"


def test_a_job_of_a_moment_is_one_request(tmp_path: Path) -> None:
    with sync_server(tmp_path / "api.sock") as server:
        with agent(tmp_path / "a", ["true"], server_socket=str(tmp_path / "api.sock"), credential="abc") as it:
            record = it.ended()
        assert len(server.requests) <= 2  # one, unless the interpreter's start is slower than a moment
        assert server.tokens == {"Bearer abc"}
        started, ended = server.reports(KEY)
    environment = record["environment"]
    assert 0.0 <= started.pop("ago_s") < 60.0
    assert started == {"kind": "started", "n": 1, "restored": None, "step": None, "bad": [], "environment": environment}
    assert {**ended, "home": ""} == {**record, "n": 2}  # the home is of the file alone


def test_metrics_arrive_while_the_program_runs(tmp_path: Path) -> None:
    code = "echo step 1: loss 0.5; while [ ! -e go ]; do sleep 0.02; done; echo step 2: loss 0.25"
    with sync_server(tmp_path / "api.sock") as server, agent(
        tmp_path / "a", code, server_socket=str(tmp_path / "api.sock")
    ) as it:  # fmt: skip
        server.wait_for(KEY, "started")
        deadline(lambda: (0, 1, {"loss": 0.5}) in server.points(KEY), "the first point")
        deadline(lambda: any(r["wait_s"] for r in server.requests), "a long poll")
        (tmp_path / "a" / "work" / "go").touch()
        it.ended()
        assert server.points(KEY) == [(0, 1, {"loss": 0.5}), (0, 2, {"loss": 0.25})]
        beats = [r["heartbeat"] for r in server.requests if r["heartbeat"]]
    assert {tuple(sorted(beat)) for beat in beats} == {("at_s", "cpu_s", "gpu", "memory_bytes", "running_s", "step")}


def test_the_end_is_reported_after_all_points(tmp_path: Path) -> None:
    """More points than one request carries: the server recorded the end before most of them."""
    code = "import sys\nfor step in range(1, 9001): print(f'step {step}: loss {1 / step}')\nsys.stdout.flush()"
    with sync_server(tmp_path / "api.sock") as server, agent(
        tmp_path / "a", ["python3", "-c", code], server_socket=str(tmp_path / "api.sock")
    ) as it:  # fmt: skip
        it.ended()
        server.wait_for(KEY, "ended")
        requests = list(server.requests)
    end = next(n for n, request in enumerate(requests) if any(report["kind"] == "ended" for report in request["reports"]))
    assert sum(len(request["points"]) for request in requests[: end + 1]) == 9000
    assert len([request for request in requests if request["points"]]) > 4


def test_orders_are_obeyed(tmp_path: Path) -> None:
    code = "trap 'echo stopping; exit 0' TERM; while true; do sleep 0.05; done"
    with sync_server(tmp_path / "api.sock") as server, agent(
        tmp_path / "a", code, server_socket=str(tmp_path / "api.sock")
    ) as it:  # fmt: skip
        flags = tmp_path / "a" / "sdk.flags"
        server.give(KEY, {"order": "checkpoint", "n": 1})
        deadline(lambda: flags.exists() and flags.read_bytes() == b"0\1\0", "the checkpoint flag")
        server.give(KEY, {"order": "checkpoint", "n": 1}, {"order": "stop", "grace_s": 9.0, "reason": "evict"})
        rank = it.ended()["ranks"][0]
    assert (rank["exit_code"], rank["stopped_by_us"], rank["last_lines"][-1], flags.read_bytes()) == (0, True, "stopping", b"1\1\0")


def test_a_stale_attempt_stops(tmp_path: Path) -> None:
    with sync_server(tmp_path / "api.sock") as server, agent(
        tmp_path / "a", "exec sleep 60", server_socket=str(tmp_path / "api.sock")
    ) as it:  # fmt: skip
        server.wait_for(KEY, "started")
        with server.changed:
            server.stale.add(KEY)
            server.changed.notify_all()
        rank = it.ended()["ranks"][0]
        assert (rank["signal"], rank["stopped_by_us"]) == (15, True)
        assert len(server.reports(KEY, "ended")) == 1


def test_a_server_that_is_away_is_waited_for_and_told_everything(tmp_path: Path) -> None:
    code = "echo step 1: loss 0.5; while [ ! -e go ]; do sleep 0.02; done; echo step 2: loss 0.25"
    spool = tmp_path / "a" / "spool.jsonl"
    with agent(tmp_path / "a", code, server_socket=str(tmp_path / "api.sock")) as it:
        deadline(spool.exists, "the spool")
        assert [json.loads(line)["kind"] for line in spool.read_text().splitlines()] == ["started"]
        with sync_server(tmp_path / "api.sock") as server:
            server.wait_for(KEY, "started")
            deadline(lambda: not spool.exists(), "the spool's end")
        with sync_server(tmp_path / "api.sock") as server:
            (tmp_path / "a" / "work" / "go").touch()
            it.ended()
            assert [report["kind"] for report in server.reports(KEY)][-1:] == ["ended"]
            assert (0, 2, {"loss": 0.25}) in server.points(KEY)


def test_the_end_is_on_disk_when_no_server_is_there(tmp_path: Path) -> None:
    with agent(tmp_path / "a", ["true"], server_socket=str(tmp_path / "none.sock")) as it:
        record = it.ended()
    spooled = [json.loads(line) for line in (tmp_path / "a" / "spool.jsonl").read_text().splitlines()]
    assert [report["kind"] for report in spooled] == ["started", "ended"]
    assert {**spooled[1], "n": 0, "home": ""} == record


def test_a_gang_meets_where_node_0_says(tmp_path: Path) -> None:
    socket = str(tmp_path / "api.sock")
    code = "echo $MASTER_ADDR $MASTER_PORT $RANK $WORLD_SIZE $GROUP_RANK"
    second = {"node_index": 1, "key": "digits-1.1/n1"}
    with sync_server(tmp_path / "api.sock") as server, agent(
        tmp_path / "b", code, nodes=2, server_socket=socket, **second
    ) as b:  # fmt: skip
        deadline(lambda: any(request["key"] == second["key"] for request in server.requests), "the second node's question")
        with agent(tmp_path / "a", f"{code}; sleep 1", nodes=2, server_socket=socket) as a:
            place = server.wait_for(KEY, "rendezvous")
            assert (place["address"], server.reports(second["key"])) == ("127.0.0.1", [])
            server.give(second["key"], {"order": "rendezvous", "address": place["address"], "port": place["port"]})
            assert ([r["rank"] for r in b.ended()["ranks"]], [r["rank"] for r in a.ended()["ranks"]]) == ([1], [0])
        assert [r["kind"] for r in server.reports(KEY)] == ["rendezvous", "started", "ended"]
        assert [r["kind"] for r in server.reports(second["key"])] == ["started", "ended"]
    assert a.log() == f"127.0.0.1 {place['port']} 0 2 0\n"
    assert b.log(1) == f"127.0.0.1 {place['port']} 1 2 1\n"


def test_a_node_that_waits_for_its_gang_can_be_stopped(tmp_path: Path) -> None:
    with sync_server(tmp_path / "api.sock") as server, agent(
        tmp_path / "b", "true", nodes=2, node_index=1, server_socket=str(tmp_path / "api.sock")
    ) as it:  # fmt: skip
        deadline(lambda: bool(server.requests), "its question")
        server.give(KEY, {"order": "stop", "grace_s": 1.0, "reason": "cancel"})
        record = it.ended()
        assert (record["ranks"], record["launch_error"], [r["kind"] for r in server.reports(KEY)]) == ([], None, ["ended"])


def test_many_agents_of_one_machine_get_ports_of_their_own(tmp_path: Path) -> None:
    names = [str(index) for index in range(4)]
    held = "echo $MASTER_PORT; while [ ! -e ../../go ]; do sleep 0.05; done"
    agents = [agent(tmp_path / name, held) for name in names]
    its = [each.__enter__() for each in agents]
    ports = {it.printed("\n") for it in its}
    (tmp_path / "go").touch()
    for it, each in zip(its, agents, strict=True):
        it.ended()
        each.__exit__(None, None, None)
    assert len(ports) == 4
    assert os.path.isdir(f"/tmp/trainmaster-ports-{os.getuid()}")


def test_what_the_sdk_could_not_write_is_told(tmp_path: Path) -> None:
    """On a full disk, 98 of 300 steps were gone without a word. A limit of the file's length is as a full disk."""
    code = (
        "import resource\nfrom trainmaster import sdk\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
        "for step in range(50): sdk.report(loss=0.5, step=step)\n"
    )
    own = {"PYTHONPATH": str(Path(trainmaster.__file__).parents[1])}
    with agent(tmp_path, [sys.executable, "-c", code], environment=own) as it:
        record = it.ended()
    assert [one["topic"] for one in record["warned"]] == ["messages lost"]
