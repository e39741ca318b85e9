"""Open files of a gang on this machine: of every rank, of other agents, and memory-mapped ones."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agents import agent as begun
from launches import launch, write
from waiting import deadline

from trainmaster.agent.checkpoints import observations, peers
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.agent.checkpoints.peers import Peers
from trainmaster.agent.processes.process_tree import open_for_writing
from trainmaster.agent.processes.rank import Rank
from trainmaster.wire.processes import boot_id, start_ticks

MAPS = """
import mmap, os, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
os.closerange(3, 100)  # it keeps a descriptor of its own, others do not
print("mapped", flush=True)
sys.stdin.readline()
mapped.close()
print("closed", flush=True)
sys.stdin.readline()
"""
AGENT = """
import subprocess, sys
rank = subprocess.Popen(["sh", "-c", "exec 3>>$0; echo; exec sleep 60", sys.argv[1]], stdout=subprocess.PIPE)
rank.stdout.readline()
print(rank.pid, flush=True)
sys.stdin.readline()
rank.kill(); rank.wait()
print("over", flush=True)
sys.stdin.readline()
"""


def started(program: str, path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def said(process: "subprocess.Popen[str]", ask: bool = False) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    if ask:
        process.stdin.write("\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


def inode(path: Path) -> tuple[int, int]:
    return path.stat().st_dev, path.stat().st_ino


def test_a_file_mapped_for_writing_counts_as_open(tmp_path: Path) -> None:
    """R2: numpy and safetensors fill files so, without a descriptor."""
    path = write(tmp_path / "new\nline.bin", b"\0" * 4096)
    process = started(MAPS, path)
    try:
        assert said(process) == "mapped"
        assert inode(path) in open_for_writing([process.pid])
        assert said(process, ask=True) == "closed"
        assert inode(path) not in open_for_writing([process.pid])
    finally:
        process.kill()
        process.wait()


def rank_of(pid: int, root: Path) -> Rank:
    rank = Rank(1, str(root))
    rank.pid = pid
    return rank


def test_the_ranks_of_another_agent_are_asked_and_a_dead_one_leaves_it_open(tmp_path: Path) -> None:
    """R2: a rank of node 1 writes into the directory that node 0 collects from."""
    path = write(tmp_path / "work" / "ck_1.bin", "half")
    gang = Peers(str(tmp_path / "1" / "n0"), launch(tmp_path, nodes=2, in_place=True, checkpoint_path="ck_*"))
    assert gang.open() == ({}, False)  # it has not begun
    agent = started(AGENT, path)
    try:
        rank = int(said(agent))
        identity = {"pid": agent.pid, "start_ticks": start_ticks(agent.pid), "boot_id": boot_id()}
        write(tmp_path / "1" / "n1" / "agent.json", json.dumps(identity))
        assert gang.open() == ({}, False)
        peers.record(str(tmp_path / "1" / "n1"), [rank_of(rank, tmp_path)])
        found, complete = gang.open()  # the test's own standard error is among them
        assert (inode(path) in found, complete) == (True, True)
        assert said(agent, ask=True) == "over"
        assert gang.open() == ({}, False)
        write(tmp_path / "1" / "n1" / "agent.json", json.dumps({**identity, "boot_id": "of another machine"}))
        assert gang.open() == ({}, False)
    finally:
        agent.kill()
        agent.wait()


def test_those_with_directories_of_their_own_are_not_asked(tmp_path: Path) -> None:
    for orders in ({"nodes": 1, "in_place": True}, {"nodes": 2, "in_place": False}):
        assert Peers(str(tmp_path / "n0"), launch(tmp_path, checkpoint_path="ck_*", **orders)).open() == ({}, True)


def test_node_0_stays_for_what_the_others_still_write(tmp_path: Path) -> None:
    """Its ranks end first, and theirs go on saving into the directory of the gang."""
    node0, node1, work = tmp_path / "1" / "n0", tmp_path / "1" / "n1", tmp_path / "shared"
    work.mkdir()
    agent_of_1 = subprocess.Popen(["sleep", "60"])
    try:
        identity = {"pid": agent_of_1.pid, "start_ticks": start_ticks(agent_of_1.pid), "boot_id": boot_id()}
        write(node1 / "launch.json", "{}")
        write(node1 / "agent.json", json.dumps(identity))
        peers.record(str(node1), [rank_of(agent_of_1.pid, tmp_path)])
        orders = {"nodes": 2, "in_place": True, "work": str(work), "checkpoint_path": "ck_{step}.bin"}
        with begun(node0, "echo over", **orders) as it:
            it.printed("over")
            write(work / "ck_1.bin", "by node 1")
            deadline(lambda: list(tmp_path.rglob("MANIFEST.json")) or None, "the one seen while node 1 runs")
            write(work / "ck_2.bin", "the last of all")
            write(node1 / "exit.json", json.dumps({"ranks": [{"exit_code": 0, "stopped_by_us": False}]}))
            assert [one["step"] for one in it.ended()["staged"]] == [1, 2]
    finally:
        agent_of_1.kill()
        agent_of_1.wait()


def test_node_0_that_stays_obeys_a_stop(tmp_path: Path) -> None:
    """The other ranks may wait for ever, or be stopped by a process that it does not see."""
    write(tmp_path / "1" / "n1" / "launch.json", "{}")  # about to begin
    with begun(tmp_path / "1" / "n0", "echo over", nodes=2, in_place=True, checkpoint_path="ck_{step}.bin") as it:
        it.printed("over")
        it.stop(5.0)
        assert [rank["exit_code"] for rank in it.ended()["ranks"]] == [0]


def test_node_0_does_not_stay_for_one_that_is_dead_or_elsewhere(tmp_path: Path) -> None:
    """A killed agent's end is the server's to find; of another machine nothing is known here."""
    node1 = tmp_path / "1" / "n1"
    gang = Peers(str(tmp_path / "1" / "n0"), launch(tmp_path, nodes=2, in_place=True, checkpoint_path="ck_*"))
    assert (gang.run, gang.ended_well) == (False, False)
    write(node1 / "launch.json", "{}")
    assert (gang.run, gang.ended_well) == (True, False)  # about to begin
    own = Peers(str(node1), launch(tmp_path, nodes=2, node_index=1, in_place=True, checkpoint_path="ck_*"))
    write(tmp_path / "1" / "n0" / "launch.json", "{}")
    assert not own.run  # or the two would wait for each other
    write(node1 / "agent.json", json.dumps({"pid": 1, "start_ticks": -1, "boot_id": boot_id()}))
    assert (gang.run, gang.ended_well) == (False, False)
    write(node1 / "exit.json", json.dumps({"ranks": [{"exit_code": 0, "stopped_by_us": False}]}))
    assert (gang.run, gang.ended_well, gang.open()) == (False, True, ({}, True))


def look(made: Collector, complete: bool = False, running: bool = True) -> list[Any]:
    return [one["id"] for one in made.scan(lambda _: None, running, frozenset(), complete)]


def test_where_not_every_rank_can_be_asked_it_must_hold_still_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: half a second of quiet proves nothing of a writer on another machine; a rename does."""
    monkeypatch.setattr(observations, "QUIET_S", 0.0)
    monkeypatch.setattr(observations, "_FRESH_NS", 0)
    (tmp_path / "work" / "out").mkdir(parents=True)
    made = Collector(launch(tmp_path, nodes=2, in_place=True, checkpoint_path="out/ck_*"))
    made.prime()
    look(made)
    write(tmp_path / "work" / "out" / "ck_1.bin", "half, and closed as far as is known here")
    write(tmp_path / "work" / "out" / "ck_2.json", "{}")
    assert [look(made) for _ in range(3)] == [[], [], []]
    assert look(made, running=False) == []
    write(tmp_path / "work" / "new", "whole").rename(tmp_path / "work" / "out" / "ck_3.bin")
    assert deadline(lambda: look(made) or None, "the renamed one") == ["0001-00001"]
    monkeypatch.setattr(observations, "_LACKING_QUIET_S", 0.02)
    end_s = time.monotonic() + 0.03
    assert deadline(lambda: time.monotonic() > end_s and (look(made) or None), "those that held still") == ["0001-00002", "0001-00003"]
