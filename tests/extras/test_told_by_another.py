"""A run of MLflow that was told more than its mirror knows: by a server that was lost since, or by a person."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("mlflow")
pytest.importorskip("wandb")

from mlflow import MlflowClient
from tracker_files import Mlflow

from trainmaster.ports.tracker import RunStatus
from trainmaster.testing.tracker_contract import some_run
from trainmaster.tracking.to_mlflow import MlflowTracker

pytestmark = [pytest.mark.xdist_group("mlflow"), pytest.mark.timeout(600)]
OWN = {"trainmaster.run": some_run().id}


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mlflow]:
    made = Mlflow(tmp_path_factory.mktemp("mlflow"))
    made.start()
    yield made
    made.kill()


def test_what_a_lost_server_told_gives_way_to_what_is(mlflow: Mlflow, capfd: pytest.CaptureFixture[str]) -> None:
    """After a restore, MLflow said KILLED and cancelled while the job ran; the param that differed ended its mirror."""
    tracker, client = MlflowTracker(mlflow.url), MlflowClient(mlflow.url)
    ended = {**OWN, "trainmaster.state": "failed", "trainmaster.failure": "killed", "note": "a person's"}
    lost = some_run(status=RunStatus.FAILED, ended_s=1_500.0, params={"lr": "0.1", "seed": "1"}, tags=ended)
    ref = tracker.begin(lost).ref
    tracker.tell(ref, lost, None)
    now = some_run(params={"lr": "0.1"}, tags={**OWN, "trainmaster.state": "running"})
    tracker.tell(ref, now, None)
    run = client.get_run(ref)
    assert (run.info.status, run.data.tags["trainmaster.state"]) == ("RUNNING", "running")
    assert ("trainmaster.failure" in run.data.tags, run.data.tags["note"]) == (False, "a person's")
    more = {f"p{number}": "1" for number in range(150)}
    tracker.tell(ref, replace(now, params={"lr": "0.1", "seed": "2", **more}, tags={**OWN, "stage": "x"}), now)
    run = client.get_run(ref)
    assert run.data.params == {"lr": "0.1", "seed": "1", **more}
    assert run.data.tags["stage"] == "x"
    assert capfd.readouterr().out == "", "the addresses of runs stood where the mirror says why it ended"
