"""Scripts that know nothing of Trainmaster, as they stand in examples/record: killed twice, resumed, and one finished MLflow run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mlflow")

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from running import Tm, kill, ranks_of, server
from waiting import deadline

EXAMPLES = Path(__file__).parents[2] / "examples" / "record"
SCRIPTS = {  # what it imports, and the steps that it logs: Lightning counts from 0
    "printing": ("json", range(1, 101)),
    "mlflow": ("mlflow", range(1, 101)),
    "lightning": ("lightning", range(60)),
    "transformers": ("transformers", range(1, 61)),
}
TIMEOUT_S = 300.0
pytestmark = [pytest.mark.xdist_group("record"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A server with an MLflow server beside it."""
    with server(tmp_path_factory.mktemp("record"), "--mlflow") as tm:
        yield tm


def kill_behind_a_checkpoint(tm: Tm, job: str, number: int) -> int:
    """SIGKILL the rank of this attempt once it has committed a checkpoint of its own; the step of that."""

    def saved() -> int | None:
        shown = tm.show(job)
        assert shown["state"] in ("queued", "starting", "running", "stopping"), (shown["attempts"], tm.ok("logs", job))
        if shown["attempt"] != number or not shown["checkpoints"] or not ranks_of(tm, job):
            return None
        newest = int(shown["checkpoints"][-1]["step"])
        return newest if newest > (shown["attempts"][-1]["resumed_from_step"] or 0) else None

    step = deadline(saved, f"a checkpoint of attempt {number} of {job}", TIMEOUT_S, 0.2)
    kill(ranks_of(tm, job)[0])
    return step


def finished(tm: Tm, job: str) -> Run:
    """The job's one run in MLflow, once it is finished and whole there."""
    client = MlflowClient(json.loads(tm.home.server_json.read_text())["mlflow_url"])

    def run() -> Run | None:
        try:
            experiments = [one.experiment_id for one in client.search_experiments()]
            runs = client.search_runs(experiments, f"tags.`trainmaster.job` = '{job}'")
        except (MlflowException, OSError):
            return None  # its server is slow on a busy machine
        assert len(runs) <= 1, runs
        whole = runs and runs[0].info.status == "FINISHED" and any(name.startswith("system/") for name in runs[0].data.metrics)
        return runs[0] if whole else None

    return deadline(run, f"the run of {job} to be finished in MLflow, with system metrics", TIMEOUT_S, 1.0)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_killed_twice_is_one_finished_run(tm: Tm, script: str) -> None:
    module, wanted = SCRIPTS[script]
    pytest.importorskip(module)
    assert "trainmaster" not in (EXAMPLES / script / "train.py").read_text().lower()
    job = tm.submit(str(EXAMPLES / script / "train.yaml"))
    saved = [kill_behind_a_checkpoint(tm, job, number) for number in (1, 2)]
    shown = tm.ended(job, TIMEOUT_S)
    assert [attempt["state"] for attempt in shown["attempts"]] == ["restarted", "restarted", "succeeded"], tm.ok("logs", job)
    resumed = [attempt["resumed_from_step"] for attempt in shown["attempts"]]
    assert resumed[0] is None
    assert all(step >= least for step, least in zip(resumed[1:], saved, strict=True))
    run = finished(tm, job)
    client = MlflowClient(json.loads(tm.home.server_json.read_text())["mlflow_url"])
    steps = [point.step for point in client.get_metric_history(run.info.run_id, "loss")]
    assert sorted(steps) == list(wanted)
    assert run.data.tags["trainmaster.attempts"] == "3"
