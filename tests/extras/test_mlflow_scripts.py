"""Unmodified scripts that call `mlflow` land in their job's one run: killed and resumed, with autolog, with no server at all."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlflow")
pytest.importorskip("sklearn")

import mlflow
from mlflow import MlflowClient
from mlflow.server.handlers import get_endpoints
from running import Tm, kill, server
from waiting import deadline

pytestmark = [pytest.mark.xdist_group("mlflow"), pytest.mark.timeout(600)]

STEPS = 200
TRAIN = f"""
import json, os, time
import mlflow

mlflow.set_experiment("anything")
step = 0
if os.path.exists("last.json"):
    step = json.load(open("last.json"))["step"]
with mlflow.start_run():
    mlflow.log_params({{"lr": 0.1, "began_at": step}})
    while step < {STEPS}:
        step += 1
        time.sleep(0.1)
        mlflow.log_metric("loss", 1 / step, step=step)
        json.dump({{"step": step, "pid": os.getpid(), "attempt": int(os.environ["TRAINMASTER_ATTEMPT"])}}, open("now.part", "w"))
        os.replace("now.part", "now.json")
        if step % 5 == 0:
            json.dump({{"step": step}}, open("part", "w"))
            os.replace("part", "last.json")
    mlflow.log_metric("accuracy", 0.97)
    mlflow.log_text("done", "words/end.txt")
    mlflow.set_tag("flavour", "plain")
"""
FIT = """
import mlflow
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

mlflow.sklearn.autolog()
LogisticRegression(C=0.5, max_iter=300).fit(*load_iris(return_X_y=True))
"""


FOLDS = """
import mlflow, numpy as np, xgboost as xgb

mlflow.xgboost.autolog()
X = np.random.rand(50, 3)
y = (X[:, 0] > .5).astype(int)
with mlflow.start_run() as run:
    xgb.train({"max_depth": 2, "objective": "binary:logistic"}, xgb.DMatrix(X, y), 5, evals=[(xgb.DMatrix(X, y), "train")])
    for fold, acc in (("a", .5), ("b", .9), ("c", .7)):
        with mlflow.start_run(nested=True, run_name=fold):
            mlflow.log_metric("acc", acc, step=1)
    mine = f"tags.mlflow.parentRunId = '{run.info.run_id}' and metrics.acc > 0.6"
    found = mlflow.search_runs(filter_string=mine, order_by=["metrics.acc DESC"])
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "train-logloss")
    print("found", [*found["tags.mlflow.runName"]], [one.step for one in history])
"""


TABLES = """
import mlflow
from sklearn.linear_model import LinearRegression

with mlflow.start_run() as run:
    for rows in ([1, 2], [3]):
        mlflow.log_table({"a": rows}, "tables/t.json")
    for slope in (1.0, 2.0):
        mlflow.sklearn.log_model(LinearRegression().fit([[0.0], [1.0]], [0.0, slope]), name="model")
    for epoch in range(2):
        for batch in range(3):
            mlflow.log_metric("loss", 10 * epoch + batch, step=batch)
    mlflow.log_param("long", "x" * 9000)
listed = [one.path for one in mlflow.MlflowClient().list_artifacts(run.info.run_id, "tables")]
loaded = mlflow.sklearn.load_model(f"runs:/{run.info.run_id}/model").predict([[1.0]])[0]
print("found", listed, [*mlflow.load_table("tables/t.json", run_ids=[run.info.run_id])["a"]], round(loaded, 3), mlflow.get_experiment_by_name("nobody"))
"""


def curve(tm: Tm, job: str, name: str) -> list[list[float]]:
    """(step, value) of a job's metric, as the server keeps it."""
    from trainmaster.client.api import Client  # noqa: PLC0415 - with the environment of this home

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINMASTER_HOME", str(tm.home.root))
        patch.delenv("TRAINMASTER_SERVER", raising=False)
        with Client(start=False) as client:
            return client.metrics(job, name)[name]


def far_enough(work: Path, attempt: int, steps: int) -> int | None:
    """The process of an attempt, once it has made so many steps."""
    found = [json.loads(path.read_text()) for path in work.glob("*/now.json")]
    first = 1 if attempt == 1 else 5
    return next((now["pid"] for now in found if now["attempt"] == attempt and now["step"] >= first + steps), None)


def twice_killed(tm: Tm, *spec: str) -> tuple[str, dict[str, Any]]:
    """The training, its rank killed in the first and in the second attempt."""
    tm.file("train.py", TRAIN)
    name = f"mlflow-{os.getpid()}"  # other tests find and kill by the job's id, on the whole machine
    job = tm.submit("--name", name, "--checkpoint", "last.json", *spec, "--", "python", "train.py")
    now = tm.home.root / "work" / job
    for attempt, steps in ((1, 12), (2, 10)):
        kill(deadline(lambda attempt=attempt, steps=steps: far_enough(now, attempt, steps), f"attempt {attempt}", 240.0, 0.05))  # type: ignore[misc]
    shown = tm.ended(job, 180.0)
    assert (shown["state"], len(shown["attempts"])) == ("succeeded", 3), tm("show", job).out
    return job, shown


def test_a_script_killed_twice_has_every_step_once_here_and_in_mlflow(tmp_path: Path) -> None:
    with server(tmp_path, "--mlflow") as tm:
        job, shown = twice_killed(tm)
        assert curve(tm, job, "loss") == [[step, 1 / step] for step in range(1, STEPS + 1)]
        assert shown["logged"]["params"] == {"lr": "0.1", "began_at": "0"}
        assert shown["logged"]["tags"]["flavour"] == "plain"
        assert shown["metrics"]["accuracy"]["value"] == 0.97
        assert shown["step"] == STEPS
        assert tm.ok("get", job, "words/end.txt", "-o", "-") == "done"
        client = MlflowClient(json.loads((tm.home.root / "server.json").read_text())["mlflow_url"])
        found = deadline(lambda: finished(client, job), "the run to be finished in MLflow", 240.0, 1.0)
        history = client.get_metric_history(found.info.run_id, "loss")
        assert sorted((one.step, one.value) for one in history) == [(step, 1 / step) for step in range(1, STEPS + 1)]
        assert found.data.params == {"lr": "0.1", "began_at": "0"}
        assert found.data.tags["flavour"] == "plain"
        assert any(name.startswith("system/") for name in found.data.metrics)


def finished(client: MlflowClient, job: str) -> Any:
    """The job's run, once MLflow calls it finished."""
    try:
        experiments = [one.experiment_id for one in client.search_experiments()]
        runs = client.search_runs(experiments, f"tags.`trainmaster.job` = '{job}'")
    except Exception:  # noqa: BLE001 - its server may still be starting, which its client tells in many ways
        return None
    assert len(runs) <= 1
    return runs[0] if runs and runs[0].info.status == "FINISHED" else None


def test_autolog_needs_no_server(tmp_path: Path) -> None:
    with server(tmp_path) as tm:
        tm.file("fit.py", FIT)
        job = tm.submit("--", "python", "fit.py")
        shown = tm.ended(job, 240.0)
        assert shown["state"] == "succeeded", tm("logs", job)
        assert (shown["logged"]["params"]["C"], shown["logged"]["params"]["max_iter"]) == ("0.5", "300")
        assert shown["metrics"]["training_score"]["value"] > 0.9
        kept = [one["path"] for one in tm.json("artifacts", job)]
        assert "model/MLmodel" in kept
        assert not list(tm.work.glob("mlruns*")) + list(tm.work.glob("mlflow.db"))


def test_autolog_of_xgboost_keeps_every_step_and_the_model_and_searches_are_answered(tmp_path: Path) -> None:
    """T1, T6: it kept one step of five and no model; filters and orders were ignored."""
    with server(tmp_path) as tm:
        tm.file("folds.py", FOLDS)
        job = tm.submit("--", "python", "folds.py")
        shown = tm.ended(job, 240.0)
        assert shown["state"] == "succeeded", tm("logs", job)
        assert "found ['b', 'c'] [0, 1, 2, 3, 4]" in tm.ok("logs", job)
        assert [step for step, _ in curve(tm, job, "train-logloss")] == [0, 1, 2, 3, 4]
        assert "model/MLmodel" in [one["path"] for one in tm.json("artifacts", job)]


def test_what_other_scripts_ask_for_is_answered_as_by_mlflows_server(tmp_path: Path) -> None:
    """A listing of a directory, and with it `log_table`, ended the training; the first of two models was loaded."""
    with server(tmp_path) as tm:
        tm.file("tables.py", TABLES)
        job = tm.ended(tm.submit("--name", "tables", "--", "python", "tables.py"), 240.0)
        said = tm.ok("logs", job["id"])
        assert job["state"] == "succeeded", said
        assert "found ['tables/t.json'] [1, 2, 3] 2.0 None" in said
        assert curve(tm, job["id"], "loss") == [[0, 10.0], [1, 11.0], [2, 12.0]]
        assert len(job["logged"]["params"]["long"]) == 8000


def test_a_tracker_that_the_spec_names_is_left_alone_and_that_is_said(tmp_path: Path) -> None:
    with server(tmp_path) as tm:
        tm.file("log.py", "import mlflow\nmlflow.log_metric('loss', 1.0, step=3)\n")
        own = f"sqlite:///{tmp_path}/own.db"
        job = tm.submit("--env", f"MLFLOW_TRACKING_URI={own}", "--", "python", "log.py")
        shown = tm.ended(job, 240.0)
        assert (shown["state"], shown["metrics"]) == ("succeeded", {}), tm("logs", job)
        assert any(own in note for note in shown["notes"])
        client = MlflowClient(own)
        assert [run.data.metrics for run in client.search_runs(["0"])] == [{"loss": 1.0}]


def test_an_experiment_that_a_person_deleted_stays_deleted_and_others_are_mirrored(tmp_path: Path) -> None:
    """T3: it stopped the mirror of all runs, and a restart restored it."""
    with server(tmp_path, "--mlflow") as tm:
        command = ("--", "python", "-c", "print('step 1: loss 0.5')")
        first = tm.submit("--experiment", "gone", *command)
        client = MlflowClient(json.loads((tm.home.root / "server.json").read_text())["mlflow_url"])
        found = deadline(lambda: finished(client, first), "the run to be finished in MLflow", 240.0, 1.0)
        client.delete_experiment(found.info.experiment_id)
        lost = tm.submit("--experiment", "gone", *command)
        other = tm.submit("--experiment", "kept", *command)
        deadline(lambda: finished(client, other), "the other run to be finished in MLflow", 240.0, 1.0)
        said = deadline(lambda: tm.show(lost)["runs"].get("mlflow"), "why it is not mirrored", 60.0, 0.5)
        assert said.startswith("(not mirrored: ")
        assert client.get_experiment(found.info.experiment_id).lifecycle_stage == "deleted"


def test_the_page_of_calls_lists_those_of_this_mlflow() -> None:
    version, *listed = (Path(__file__).parents[2] / "docs" / "mlflow_calls.txt").read_text().splitlines()
    calls = set()
    for path, _, methods in get_endpoints():
        if "/ajax-api/" not in path and path.startswith("/api/"):
            name = path.split("/", 3)[3]
            calls |= {f"{method} {name}" for method in methods if name.startswith(("mlflow/", "mlflow-artifacts/"))}
    assert (version, set(listed)) == (mlflow.__version__, calls)
