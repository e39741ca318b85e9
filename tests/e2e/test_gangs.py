"""Gangs over two virtual nodes: torchrun's environment in every rank, one meeting place per gang, whole or not at all."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Tm, attempts, gone, kill, ranks_of, server
from waiting import deadline

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR",
         "OMP_NUM_THREADS", "TRAINMASTER_ATTEMPT")  # fmt: skip
TELL = f"""
import json, os
print(json.dumps({{name: os.environ.get(name) for name in {(*NAMES, "MASTER_PORT", "TRAINMASTER_JOB", "TRAINMASTER_PARAMS")}}}))
"""
MEET = """
import os, socket, sys
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    listening = socket.create_server(place)
    others = [listening.accept()[0] for _ in range(size - 1)]
    heard = sorted(int(other.recv(16)) for other in others)
    for other in others:
        other.sendall(b"go")
    print("met", heard, flush=True)
else:
    for _ in range(600):
        try:
            it = socket.create_connection(place, 1)
            break
        except OSError:
            __import__("time").sleep(0.05)
    it.sendall(str(rank).encode())
    print("told to", it.recv(2).decode(), flush=True)
"""


PUBLIC = """
import os
if int(os.environ.get("RANK", -1)) != -1:
    print("one of", os.environ["WORLD_SIZE"], "at", os.environ["MASTER_ADDR"])
else:
    print("alone", sorted(os.environ.keys() & {"LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}))
"""  # nanoGPT and others find out in this way whether torchrun started them


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A server with two virtual nodes of four stand-in GPUs each."""
    with server(tmp_path_factory.mktemp("gangs"), "--nodes", "2", "--gpus-per-node", "4") as tm:
        tm.file("tell.py", TELL)
        tm.file("meet.py", MEET)
        tm.file("public.py", PUBLIC)
        yield tm


GANG = ("--nodes", "2", "--ranks", "2", "--cpus", "0.5")


def told(tm: Tm, job: str) -> list[dict[str, str | None]]:
    """What each rank of a gang of two nodes and two ranks printed, by rank."""
    attempt = Path(tm.home.attempt(job, 1, 0)).parent
    return [json.loads((attempt / f"n{rank // 2}" / f"rank{rank}.log").read_text().splitlines()[-1]) for rank in range(4)]


def test_every_rank_sees_what_torchrun_would_set(tm: Tm) -> None:
    job = tm.submit(*GANG, "--gpus", "2", "--name", "tell", "--param", "lr=0.1", "--", "python", "tell.py")
    shown = tm.ended(job)
    assert (shown["state"], shown["nodes"]) == ("succeeded", ["node0", "node1"])
    seen = told(tm, job)
    assert [tuple(one[name] for name in NAMES) for one in seen] == [
        ("0", "0", "4", "2", "0", "0,1", "127.0.0.1", "1", "1"),
        ("1", "1", "4", "2", "0", "0,1", "127.0.0.1", "1", "1"),
        ("2", "0", "4", "2", "1", "0,1", "127.0.0.1", "1", "1"),
        ("3", "1", "4", "2", "1", "0,1", "127.0.0.1", "1", "1"),
    ]
    assert {(one["TRAINMASTER_JOB"], one["TRAINMASTER_PARAMS"]) for one in seen} == {(job, '{"lr": 0.1}')}
    assert len({one["MASTER_PORT"] for one in seen}) == 1
    assert [device["devices"] for device in shown["attempts"]] == [[[0, 1], [0, 1]]]


def test_a_public_script_is_distributed_only_where_somebody_asks_for_it(tm: Tm) -> None:
    program = ("--cpus", "0.5", "--", "python", "public.py")
    jobs = tm.submit("--gpus", "1", *program), tm.submit("--gpus", "1", "--ranks", "1", *program)
    assert [tm.ended(job)["state"] for job in jobs] == ["succeeded", "succeeded"]
    assert [tm.ok("logs", job) for job in jobs] == ["alone []\n", "one of 1 at 127.0.0.1\n"]


def test_two_gangs_at_once_meet_apart(tm: Tm) -> None:
    gate = tm.file("gate", "")
    command = f"python meet.py; python tell.py; while [ -e {gate} ]; do sleep 0.05; done"
    jobs = [tm.submit(*GANG, "--gpus", "1", "--name", name, "--", command) for name in ("one", "two")]
    for job in jobs:
        tm.state(job, "running")
    gate.unlink()
    assert [tm.ended(job)["state"] for job in jobs] == ["succeeded", "succeeded"]
    for job in jobs:
        assert tm.ok("logs", job, "--rank", "0").startswith("met [1, 2, 3]\n")
        assert tm.ok("logs", job, "--rank", "3").startswith("told to go\n")
    ports = [{one["MASTER_PORT"] for one in told(tm, job)} for job in jobs]
    assert [len(port) for port in ports] == [1, 1]
    assert ports[0] != ports[1]
    assert [tm.show(job)["attempts"][0]["devices"] for job in jobs] == [[[0], [0]], [[1], [1]]]


def test_a_rank_killed_on_one_node_ends_the_gang_and_all_of_it_starts_again(tm: Tm) -> None:
    command = "echo here; if [ $TRAINMASTER_ATTEMPT = 1 ]; then sleep 60; fi"
    job = tm.submit(*GANG, "--name", "killed", "--", command)
    ranks = deadline(lambda: len(found := ranks_of(tm, job)) == 4 and found, "four ranks")
    kill(ranks[3])
    for pid in ranks.values():
        gone(pid)
    shown = tm.ended(job)
    assert attempts(shown, "state", "cause", "rank", "signal") == [("restarted", "killed", 3, 9), ("succeeded", None, None, None)]
    assert shown["attempts"][0]["message"] == "rank 3 was killed by SIGKILL, not by us"


def test_a_gang_that_fails_on_one_node_names_the_rank_and_its_last_words(tm: Tm) -> None:
    command = "if [ $RANK = 2 ]; then echo 'ValueError: bad shard'; exit 4; fi; sleep 60"
    shown = tm.ended(tm.submit(*GANG, "--name", "failing", "--", command))
    assert attempts(shown, "state", "cause", "rank", "exit_code", "last_lines") == [
        ("failed", "program", 2, 4, ["ValueError: bad shard"])
    ]
    assert shown["ended_s"] - shown["started_s"] < 15


def test_a_gang_starts_whole_or_not_at_all(tm: Tm) -> None:
    holder = tm.submit("--gpus", "4", "--ranks", "1", "--cpus", "0.1", "--name", "holder", "--", "sleep 60")
    tm.state(holder, "running")
    gang = tm.submit("--nodes", "2", "--gpus", "1", "--cpus", "0.1", "--name", "gang", "--", "echo ran")
    wanted = "waiting for 2 nodes with 1 GPU, 0.1 CPUs each, all at once: other jobs hold what it needs"
    deadline(lambda: tm.show(gang)["reason"] == wanted, f"the reason {wanted!r}", every_s=0.1)
    free = {node["name"]: len(node["free"]["devices"]) for node in tm.json("nodes")}
    assert free == {"node0": 0, "node1": 4}
    tm.ok("cancel", holder)
    assert tm.ended(gang)["state"] == "succeeded"


def test_cancel_reaches_every_rank_of_every_node(tm: Tm) -> None:
    job = tm.submit(*GANG, "--name", "cancelled", "--", "sleep 60")
    ranks = deadline(lambda: len(found := ranks_of(tm, job)) == 4 and found, "four ranks")
    tm.ok("cancel", job)
    assert tm.ended(job)["state"] == "cancelled"
    for pid in ranks.values():
        gone(pid, 0.1)
