"""Parts of a GPU, live: four jobs of a quarter share the one stand-in GPU of a node, and a fifth waits for one of them."""

from pathlib import Path

from effort import nightly
from running import server
from waiting import deadline

pytestmark = nightly  # what it tries is tried by a page of the documentation in every run


def test_four_quarters_run_on_one_gpu_at_once_and_a_fifth_waits(tmp_path: Path) -> None:
    with server(tmp_path, "--nodes", "1", "--gpus-per-node", "1") as tm:
        gate = tm.file("gate", "")
        command = f"echo sees $CUDA_VISIBLE_DEVICES; while [ -e {gate} ]; do sleep 0.05; done"
        wanted = ("--gpus", "0.25", "--cpus", "0.1", "--name", "quarter", "--")
        first = [tm.submit(*wanted, command) for _ in range(4)]
        for job in first:
            tm.state(job, "running")
        fifth = tm.submit(*wanted, command)
        reason = "waiting for 0.25 GPUs, 0.1 CPUs: other jobs hold what it needs"
        deadline(lambda: tm.show(fifth)["reason"] == reason, f"the reason {reason!r}", every_s=0.1)
        (node,) = tm.json("nodes")
        assert (node["free"]["gpus"], node["free"]["devices"], node["jobs"]) == (0, [], first)
        assert "0.25 × GPU, 0.1 CPUs" in tm.ok("show", first[0])
        gate.unlink()
        assert [tm.ended(job)["state"] for job in (*first, fifth)] == ["succeeded"] * 5
        assert [tm.show(job)["attempts"][0]["devices"] for job in (*first, fifth)] == [[[0]]] * 5
        assert {tm.ok("logs", job) for job in (*first, fifth)} == {"sees 0\n"}
        (node,) = tm.json("nodes")
        assert (node["free"]["gpus"], node["free"]["devices"]) == (1, [0])
