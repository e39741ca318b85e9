"""The examples of the framework adapters, as they stand: killed with SIGKILL and resumed, with the losses of an undisturbed run."""

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Tm, attempts, kill, ranks_of, server
from waiting import deadline

from trainmaster.client.servers.embedded import attach

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
HELD_AT, SAVED_AT, LAST = 45, 40, 60
TIMEOUT_S = 240.0
MODULES = {
    "accelerate": "accelerate", "dcp": "torch", "lightgbm": "lightgbm", "lightning": "lightning", "sklearn": "sklearn",
    "torch": "torch", "transformers": "transformers", "xgboost": "xgboost",
}  # fmt: skip
LOSS = {"lightgbm": "test/l2", "xgboost": "test/rmse"}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A server whose jobs wait where they are told to be held."""
    with server(tmp_path_factory.mktemp("frameworks"), "--nodes", "2", "--gpus-per-node", "0") as tm:
        faults = str(Path(__file__).parent / "faults")
        tm.environment["PYTHONPATH"] = os.pathsep.join([faults, *filter(None, [os.environ.get("PYTHONPATH")])])
        yield tm


def losses(tm: Tm, job: str, name: str) -> dict[int, float]:
    """A metric by step."""
    target = attach(tm.home)
    request = urllib.request.Request(
        f"{target.url}/api/v1/jobs/{job}/metrics?name={name}", headers={"Authorization": f"Bearer {target.token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        series = json.loads(answer.read())["series"][name]
    return {int(step): value for step, value in series}


def held(tm: Tm, example: str, *options: str) -> str:
    """The job of an example that stands at a step behind its last checkpoint, which is committed."""
    job = tm.submit(str(EXAMPLES / example / "train.yaml"), "--env", f"HOLD_AT={HELD_AT}", *options)

    def stands() -> bool:
        shown = tm.show(job)
        assert shown["state"] in ("queued", "starting", "running"), (shown["attempts"], tm.ok("logs", job))
        return shown["step"] == HELD_AT and any(one["step"] == SAVED_AT for one in shown["checkpoints"])

    deadline(stands, f"{job} to be at step {HELD_AT}", TIMEOUT_S, 0.5)
    return job


def killed_and_resumed(tm: Tm, example: str, *options: str) -> dict[str, Any]:
    """The job of an example, one rank of which was killed there."""
    job = held(tm, example, *options)
    kill(max(ranks_of(tm, job).items())[1])
    shown = tm.ended(job, TIMEOUT_S)
    assert attempts(shown, "state", "cause", "resumed_from_step") == [
        ("restarted", "killed", None), ("succeeded", None, SAVED_AT),
    ], tm.ok("logs", job)  # fmt: skip
    assert shown["notes"] == []
    return shown


@pytest.mark.parametrize("example", MODULES)
def test_a_killed_run_ends_with_the_losses_of_an_undisturbed_one(tm: Tm, example: str) -> None:
    pytest.importorskip(MODULES[example])
    undisturbed = tm.submit(str(EXAMPLES / example / "train.yaml"))
    disturbed = killed_and_resumed(tm, example)
    assert tm.ended(undisturbed, TIMEOUT_S)["state"] == "succeeded", tm.ok("logs", undisturbed)
    name = LOSS.get(example, "loss")
    wanted = losses(tm, undisturbed, name)
    assert sorted(wanted) == list(range(1, LAST + 1))
    assert losses(tm, disturbed["id"], name) == wanted


def test_sharded_checkpoints_are_put_together_over_two_nodes(tm: Tm) -> None:
    shown = killed_and_resumed(tm, "dcp", "--nodes", "2", "--ranks", "1", "--cpus", "0.5")
    root = tm.home.blobs / "checkpoints" / shown["id"] / shown["checkpoints"][-1]["id"]
    files = {
        part.name: sorted(file["path"] for file in json.loads((part / "MANIFEST.json").read_bytes())["files"])
        for part in root.iterdir()
    }
    assert files == {
        "n0": [".metadata", "__0_0.distcp", "random-0.pt"], "n1": ["__1_0.distcp", "random-1.pt"],
    }  # fmt: skip


@pytest.mark.parametrize("example", MODULES)
def test_a_cancelled_run_saves_and_ends_by_itself(tm: Tm, example: str) -> None:
    pytest.importorskip(MODULES[example])
    job = held(tm, example)
    tm.ok("cancel", job)
    shown = tm.ended(job, TIMEOUT_S)
    record = json.loads((tm.home.attempt(job, 1, 0) / "exit.json").read_bytes())
    assert shown["state"] == "cancelled"
    assert {(rank["exit_code"], rank["signal"]) for rank in record["ranks"]} == {(0, None)}, tm.ok("logs", job)
    assert shown["checkpoints"][-1]["step"] in (HELD_AT, HELD_AT + 1)  # Trainer logs a step after it has asked


def test_every_example_is_short_and_every_adapter_has_one() -> None:
    scripts = sorted(EXAMPLES.glob("*/train.py"))
    assert sorted(path.parent.name for path in scripts) == sorted(MODULES)
    assert {path.parent.name: length for path in scripts if (length := len(path.read_text().splitlines())) > 60} == {}
