"""A history from a real server, there and back: exported, replayed, and asked what would have been."""

import gzip
import json
from pathlib import Path

from effort import nightly
from running import Tm, server

pytestmark = nightly  # what it tries is tried by a page of the documentation in every run

SPEC = """\
name: {name}
project: {project}
command: {command}
resources: {{gpus: 4, ranks: 1}}
"""


def submit(tm: Tm, name: str, project: str, command: str = "sleep 1.5") -> str:
    (tm.work / f"{name}.yaml").write_text(SPEC.format(name=name, project=project, command=command))
    return tm.submit(f"{name}.yaml")


def test_a_history_is_exported_replayed_and_asked_what_if(tmp_path: Path) -> None:
    with server(tmp_path, "--nodes", "1", "--gpus-per-node", "4") as tm:
        said = tm("simulate", "--history")
        assert said.code == 2
        assert "error: this server's history: it has no job that ran\n" in said.err
        assert tm.ok("export").count("\n") == 1
        falls_once = f"bash -c 'test -e {tmp_path}/fell && sleep 1 && exit; touch {tmp_path}/fell; sleep 1; kill -9 $$'"
        until_all_wait = f"bash -c 'until test -e {tmp_path}/all; do sleep 0.1; done'"
        ids = [submit(tm, "a", "vision", until_all_wait), submit(tm, "b", "speech", falls_once), submit(tm, "c", "vision")]
        ids.append(submit(tm, "d", "speech"))
        (tmp_path / "all").touch()
        for id in ids:
            tm.state(id, "succeeded", timeout_s=60)
        assert "history.jsonl.gz: 4 jobs, " in tm("export", "history.jsonl.gz").err
        assert tm("export", "history.jsonl.gz").refusal == (
            2, "error: history.jsonl.gz is there already\n  choose another name, or give --force\n"
        )  # fmt: skip
        lines = [json.loads(line) for line in gzip.decompress((tm.work / "history.jsonl.gz").read_bytes()).splitlines()]
        (fell,) = [line for line in lines[1:] if line["id"] == ids[1]]
        assert [attempt["cause"] for attempt in fell["attempts"]] == ["killed", None]
        (one,) = tm.json("simulate", "history.jsonl.gz")
        assert (one["policy"], one["jobs"], one["restarts"], one["never"]) == ("fair-share", 4, 1, 0)
        recorded_s = [line["waited_s"] for line in lines[1:]]
        assert abs(one["wait_mean_s"] - sum(recorded_s) / 4) < 2.0  # what starting and stopping take is not replayed

        now, then = tm.json("simulate", "--history", "--add", "stand-in: 3 nodes")
        assert (now["case"], then["case"], now["wait_mean_s"]) == ("now", "then", one["wait_mean_s"])
        assert then["wait_mean_s"] < now["wait_mean_s"] / 2
        said = tm("simulate", "--history", "--policy", "least-attained", "--no-report")
        assert [line.split()[:2] for line in said.out.splitlines()[1:3]] == [["now", "fair-share"], ["then", "least-attained"]]
        assert tm("simulate", "--history", "--quota", "visoin=1").refusal == (
            2, "error: --quota 'visoin=1': project 'visoin' has no jobs\n  projects here: speech, vision\n"
        )  # fmt: skip


def test_a_history_of_pools_with_policies_of_their_own_is_replayed_by_those(tmp_path: Path) -> None:
    with server(tmp_path, "--nodes", "2", "--gpus-per-node", "4") as tm:
        tm.file("cluster.yaml", "pools: {a: {nodes: [node0], policy: easy}, b: {nodes: [node1], policy: learned}}\n")
        tm.ok("apply", "cluster.yaml")
        tm.state(submit(tm, "a", "vision"), "succeeded", timeout_s=60)
        assert [one["policy"] for one in tm.json("simulate", "--history", "--policy", "fifo")] == ["by pool", "fifo"]
        told = [line for line in tm.ok("policy").splitlines() if line.startswith(("order", "  easy", "  learned"))]
        assert [line.partition(":")[0] for line in told] == ["order in pool a", "  easy", "order in pool b", "  learned"]
        for node in ("node0", "node1"):
            tm.ok("nodes", "drain", node)
        said = tm("simulate", "--history", "--no-report")
        assert (said.code, "no node is up: replayed on what there was last, 2 nodes of 4 stand-in; " in said.err) == (0, True)
