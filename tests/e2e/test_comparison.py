"""Two real trainings of the same task with two libraries, compared: everything that differs, and nothing else."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from effort import nightly
from running import server

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 50
pytestmark = pytest.mark.timeout(300)


@nightly
@pytest.mark.skipif(not (find_spec("torch") and find_spec("sklearn")), reason="torch or scikit-learn is not installed")
def test_torch_and_scikit_learn_on_digits_differ_in_what_they_are(tmp_path: Path) -> None:
    """Both examples as they stand, PyTorch for fewer steps: one environment, one machine, no word of either."""
    torch, sklearn = tmp_path / "torch", tmp_path / "sklearn"
    shutil.copytree(EXAMPLES / "digits_ddp", torch)
    shutil.copytree(EXAMPLES / "frameworks" / "sklearn", sklearn)
    script = (torch / "train.py").read_text()
    assert "STEPS = 900\n" in script
    (torch / "train.py").write_text(script.replace("STEPS = 900\n", f"STEPS = {STEPS}\n"))
    with server(tmp_path) as tm:
        one = tm.submit(str(torch / "train.yaml"))
        other = tm.submit(str(sklearn / "train.yaml"), "--name", "digits", "--experiment", "digits")
        for job in (one, other):
            assert tm.ended(job, 200.0)["state"] == "succeeded", tm.ok("logs", job)
        found = tm.json("compare", one, other)
        assert {(row["section"], row["field"]) for row in found["differences"]} == {
            ("spec", "name"), ("spec", "resources.ranks"), ("spec", "resources.ranks_given"), ("spec", "resources.cpus"), ("spec", "checkpoint.path"),
            ("spec", "metrics.pattern"), ("spec", "artifacts"), ("tags", "task"),
            ("files", "train.py"), ("files", "train.yaml"), ("submitted", "directory"),
        }  # fmt: skip
        assert found["unknown"] == {}
        told = {row["name"]: row for row in found["metrics"]}
        assert (set(told), told["loss"]["primary"]) == ({"loss", "accuracy"}, True)
        assert [point["step"] for point in told["loss"]["last"]] == [STEPS, 60]
        assert [len(points) for points in found["series"]["loss"]] == [STEPS, 60]
        shown = tm.ok("compare", one, other)
        assert "Packages" not in shown
        assert "Python" not in shown
