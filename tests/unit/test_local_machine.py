"""What the local engine reads from a machine: nodes, GPU names, attempts on disk."""

import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from trainmaster.agent.files.fast_json import read_json
from trainmaster.configuration import NodeSettings
from trainmaster.engines.local import inventory, leftovers
from trainmaster.engines.local.attempts import Attempts, Identity, Tombstone
from trainmaster.engines.local.leftovers import Tree
from trainmaster.engines.local.settings import LocalSettings
from trainmaster.engines.local.watch import Watcher
from trainmaster.errors import UsageError
from trainmaster.home import Home
from trainmaster.model.ids import AgentKey
from trainmaster.model.nodes import Device
from trainmaster.wire import names, processes

KEY = AgentKey("train-1", 2, 0)


def test_this_machine_is_one_node(tmp_path: Path) -> None:
    (node,) = inventory.nodes(LocalSettings(), tmp_path)
    assert inventory.nodes(LocalSettings(nodes=0), tmp_path) == [node]
    assert (node.name, node.host, node.virtual, node.engine) == (socket.gethostname(), socket.gethostname(), False, "local")
    assert (node.cpus, node.boot_id) == (float(len(os.sched_getaffinity(0))), processes.boot_id())
    assert 0 < node.memory_bytes <= inventory.memory_bytes()


def test_declared_nodes_have_stand_ins_and_share_memory_and_disk(tmp_path: Path) -> None:
    nodes = inventory.nodes(LocalSettings(nodes=3, gpus_per_node=2, cpus_per_node=4.0), tmp_path)
    assert [(node.name, node.virtual, node.cpus) for node in nodes] == [(f"node{i}", True, 4.0) for i in range(3)]
    assert nodes[1].devices == (Device(0, "stand-in", stand_in=True), Device(1, "stand-in", stand_in=True))
    assert sum(node.memory_bytes for node in nodes) <= inventory.memory_bytes()
    assert sum(dict(node.counted).get("disk_bytes", 0) for node in nodes) <= shutil.disk_usage(tmp_path).total


def test_what_a_person_declares_is_counted_on_each_node(tmp_path: Path) -> None:
    declared = NodeSettings("500GiB", "2.5Gbps", {"tpu-v5e": 4, "none": 0}, {"license": 2, "token": 0.5})
    nodes = inventory.nodes(LocalSettings(nodes=2, declared=declared), tmp_path)
    assert [dict(node.counted) for node in nodes] == 2 * [
        {
            "disk_bytes": 500 * 2**30, "network_bps": 2.5e9, "accelerators.tpu-v5e": 4, "custom.license": 2.0,
            "custom.token": 0.5,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (NodeSettings(disk="much"), "server.toml: [nodes] disk: expected a size such as 64GiB, 500MB or 1.5TiB, got 'much'"),
        (NodeSettings(network="10GB/s"), "server.toml: [nodes] network: expected a bandwidth in bits per second such as "
        "100Gbps or 2.5Gbps, got '10GB/s'; did you mean '80Gbps'?"),
        (NodeSettings(custom={"my license": 1}), "server.toml: [nodes] custom.my license: expected a name of letters, digits, "
        "'-', '_' and '.', such as license, got 'my license'; did you mean 'my-license'?"),
    ],
)  # fmt: skip
def test_a_declaration_that_means_nothing_is_refused(tmp_path: Path, declared: NodeSettings, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        inventory.nodes(LocalSettings(declared=declared), tmp_path)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"), ("Tesla V100-SXM2-16GB", "v100"), ("Tesla T4", "t4"), ("NVIDIA L40S", "l40s"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"), ("NVIDIA H100 PCIe", "h100"), ("", "gpu"),
    ],
)  # fmt: skip
def test_kinds_of_gpus(name: str, kind: str) -> None:
    assert inventory.kind(name) == kind


def attempts(root: Path) -> Attempts:
    return Attempts(Home(root))


def test_only_an_earlier_stop_replaces_one(tmp_path: Path) -> None:
    there = attempts(tmp_path)
    first, news = there.order_stop(KEY, 30.0)
    assert (first.grace_s, first.boot, news) == (30.0, processes.boot_id(), True)
    assert there.order_stop(KEY, 30.0) == (first, False)
    assert there.order_stop(KEY, 60.0) == (first, False)
    sooner, news = there.order_stop(KEY, 1.0)
    assert (sooner.grace_s, news) == (1.0, True)
    assert there.tombstone(KEY) == sooner
    assert there.was_used(KEY)


def test_a_stop_of_an_earlier_boot_is_overdue() -> None:
    assert Tombstone(30.0, 100.0, "now").due_s(110.0, "now") == 20.0
    assert Tombstone(30.0, 1e9, "before").due_s(110.0, "now") == 0.0


def test_the_index_holds_what_was_created_and_not_forgotten(tmp_path: Path) -> None:
    there = attempts(tmp_path)
    keys = [AgentKey("a.b-1", 1, 0), AgentKey("a.b-1", 1, 1)]
    for key in keys:
        there.create(key, {})  # type: ignore[typeddict-item]
    (tmp_path / "live" / "no key").touch()
    assert list(there.live()) == keys
    there.forget(keys[0])
    there.forget(keys[0])
    assert list(there.live()) == keys[1:]


def test_orders_with_a_path_of_any_bytes_reach_the_agent(tmp_path: Path) -> None:
    work = os.fsdecode(b"/data/caf\xe9")
    directory = Attempts(Home(tmp_path)).create(KEY, {"work": work})  # type: ignore[typeddict-item]
    assert read_json(str(directory / names.LAUNCH)) == {"work": work}


def test_damaged_records_are_no_records(tmp_path: Path) -> None:
    there = attempts(tmp_path)
    directory = there.create(KEY, {})  # type: ignore[typeddict-item]
    (directory / names.AGENT).write_text('{"pid": 12')
    (directory / names.EXIT).write_text("")
    (directory / names.TREE).write_bytes("12 34\nx y\n56\n² 9\n78 90\n".encode() + b"\xff\xfe 1\n")
    (directory / names.STOP).write_text('{"grace_s": ["long"]}')
    assert (there.identity(KEY), there.ended(KEY), there.tree(KEY)) == (None, None, {12: 34, 78: 90})
    assert there.tombstone(KEY) == Tombstone(0.0, 0.0, "")  # that it was stopped is known all the same
    assert there.written_s_ago(AgentKey("none-1", 1, 0), names.LAUNCH) is None
    assert 0.0 <= (there.written_s_ago(KEY, names.LAUNCH) or 0.0) < 60.0


def test_a_launch_is_not_young_for_ever_because_the_clock_was_set_back(tmp_path: Path) -> None:
    there = attempts(tmp_path)
    directory = there.create(KEY, {})  # type: ignore[typeddict-item]
    tomorrow_s = time.time() + 86_400.0
    os.utime(directory / names.LAUNCH, (tomorrow_s, tomorrow_s))
    assert (there.written_s_ago(KEY, names.LAUNCH) or 0.0) > 60.0


def test_a_pid_used_again_is_another_process() -> None:
    ticks = processes.start_ticks(os.getpid())
    assert ticks is not None
    assert Identity(os.getpid(), ticks, processes.boot_id()).alive
    assert not Identity(os.getpid(), ticks - 1, processes.boot_id()).alive
    assert not leftovers.send(os.getpid(), ticks - 1, 9)
    assert leftovers.alive({os.getpid(): ticks - 1}) == []


def test_a_watched_process_wakes_when_it_ends_and_a_reused_number_is_not_watched() -> None:
    woken = threading.Event()
    watcher = Watcher(woken.set)
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        ticks = processes.start_ticks(sleeper.pid)
        assert ticks is not None
        boot = processes.boot_id()
        assert not watcher.watch(KEY, Identity(sleeper.pid, ticks - 1, boot))
        assert not watcher.watching(KEY)
        assert watcher.watch(KEY, Identity(sleeper.pid, ticks, boot))
        assert watcher.watch(KEY, Identity(sleeper.pid, ticks, boot))
        assert watcher.watching(KEY)
        sleeper.kill()
        assert woken.wait(5.0)
        assert not watcher.watching(KEY)
    finally:
        sleeper.kill()
        sleeper.wait()
        watcher.close()


def test_leftovers_are_found_by_mark_record_and_descent(tmp_path: Path) -> None:
    environment = {names.ENV_KEY: str(KEY), names.ENV_SDK: str(tmp_path / "rank0.sdk"), "PATH": os.environ["PATH"]}
    command = ["bash", "-c", "env -i sleep 1000 & echo $!; wait"]
    marked = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True)
    strange = subprocess.Popen(["sleep", "1000"], env=environment | {names.ENV_SDK: "/another/home/rank0.sdk"})
    recorded = subprocess.Popen(["sleep", "1000"])
    try:
        assert marked.stdout is not None
        child = int(marked.stdout.readline())
        ticks = processes.start_ticks(recorded.pid)
        assert ticks is not None
        began_s = time.perf_counter()
        found = leftovers.find([
            Tree(str(KEY), tmp_path, None, {recorded.pid: ticks, strange.pid: -1}),
            Tree("other-1.1/n0", tmp_path, None, {}),
        ])  # fmt: skip
        assert time.perf_counter() - began_s < 5.0
        assert {key: {row.pid for row in rows} for key, rows in found.items()} == {
            str(KEY): {marked.pid, child, recorded.pid}, "other-1.1/n0": set(),
        }  # fmt: skip
        for row in found[str(KEY)]:
            assert leftovers.send(row.pid, row.ticks, 9)
    finally:
        for process in (marked, strange, recorded):
            process.kill()
            process.wait()
        assert marked.stdout is not None
        marked.stdout.close()
