"""Where a script's `mlflow` was answered otherwise than by MLflow's own server: each was found with MLflow's published tests."""

from typing import Any

import pytest
from test_mlflow_run import ID, Script


def child(script: Script, name: str = "fold") -> str:
    script.ok("GET", "runs/get", run_id=ID)
    tags = [{"key": "mlflow.parentRunId", "value": ID}]
    return str(script.ok("POST", "runs/create", run_name=name, tags=tags)["run"]["info"]["run_id"])


def model(script: Script, name: str = "model", **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = script.ok("POST", "logged-models", name=name, **more)["model"]["info"]
    return made


def names(script: Script, **asked: Any) -> list[str]:
    return [one["info"]["name"] for one in script.ok("POST", "logged-models/search", **asked)["models"]]


def test_models_are_searched() -> None:
    """A listing inside a directory of a run asks for models of its name: it failed, and with it `log_table`."""
    script = Script()
    assert names(script, filter="name = 'd'", experiment_ids=["7"]) == []
    first, second, last = model(script, "a", source_run_id=ID), model(script, "b", model_type="x"), model(script, "a")
    assert names(script) == ["a", "b", "a"]
    found = script.ok("POST", "logged-models/search", filter="name = 'a'")["models"]
    assert [one["info"]["model_id"] for one in found] == [last["model_id"], first["model_id"]]  # the newest first
    assert names(script, filter=f"source_run_id = '{ID}'") == ["a"]
    assert names(script, filter="model_type = 'x' AND name LIKE 'b%'") == ["b"]
    assert names(script, experiment_ids=["8"]) == []
    page = script.ok("POST", "logged-models/search", max_results=2)
    assert (len(page["models"]), script.ok("POST", "logged-models/search", page_token=page["next_page_token"])["models"][0]["info"]) == (2, first)
    for step, one in ((1, first), (2, second)):
        metric = {"run_id": ID, "key": "acc", "value": step / 2, "timestamp": 5, "step": step, "model_id": one["model_id"]}
        script.ok("POST", "runs/log-metric", **metric)
    assert names(script, filter="metrics.acc > .6") == ["b"]
    assert names(script, order_by=[{"field_name": "metrics.acc", "ascending": False}]) == ["b", "a", "a"]
    assert script.ok("GET", f"logged-models/{second['model_id']}")["model"]["data"]["metrics"][0]["value"] == 1.0
    for asked in ({"filter": "nowhere.x = 1"}, {"datasets": [{"dataset_name": "d"}]}):
        status, answer = script.call("POST", "logged-models/search", **asked)
        assert (status, "MLFLOW_TRACKING_URI" in answer["message"]) == (501, True)


def test_a_point_that_is_logged_again_for_a_model_is_one_of_the_model() -> None:
    """Autolog logs it for the run, and then for the model: the model had no metric, and no search found it."""
    script = Script()
    made = model(script, "a", source_run_id=ID)
    point = {"run_id": ID, "key": "acc", "value": 0.5, "timestamp": 5, "step": 1}
    script.ok("POST", "runs/log-metric", **point)
    script.ok("POST", "runs/log-metric", **point, model_id=made["model_id"])
    assert names(script, filter="metrics.acc > .4") == ["a"]


def test_a_model_is_stored_below_its_run_and_over_nothing() -> None:
    script = Script()
    inner = model(script, source_run_id=child(script))
    script.runs.uploaded("/x", f"7/{ID}/artifacts/model/requirements.txt")
    own = model(script, source_run_id=ID)
    places = [script.runs.artifact_name(f"7/models/{one['model_id']}/artifacts/MLmodel") for one in (inner, own)]
    assert places == ["fold/model/MLmodel", "model-2/MLmodel"]


def test_a_tag_of_a_model_may_have_any_name() -> None:
    script = Script()
    made = model(script, tags=[{"key": "a b%", "value": "1"}])
    assert script.ok("DELETE", f"logged-models/{made['model_id']}/tags/a%20b%25")["model"]["info"]["tags"] == []


def test_step_0_is_a_step_of_a_metric_that_has_others() -> None:
    """`for epoch: for i in range(3): log_metric("loss", …, step=i)`: step 0 of the second epoch was recorded as step 1."""
    script = Script()
    for epoch in range(2):
        for step in range(3):
            script.metric("loss", 10 * epoch + step, step)
    assert [(step, values["loss"]) for _, step, values, *_ in script.told()] == [(0, 0), (1, 1), (2, 2), (0, 10), (1, 11), (2, 12)]
    for value in (0.1, 0.2):
        script.metric("acc", value)  # without a step
    assert [step for _, step, *_ in script.told()] == [0, 1]


def test_every_data_set_is_recorded() -> None:
    script = Script()
    tags = [{"key": "mlflow.data.context", "value": "training"}]
    for name in ("d1", "d2", "d1"):
        script.ok("POST", "runs/log-inputs", run_id=ID, datasets=[{"tags": tags, "dataset": {"name": name, "digest": "x"}}])
    assert script.told()[-1] == ("tag", "dataset.training", "d1 x, d2 x")
    inputs = script.ok("GET", "runs/get", run_id=ID)["run"]["inputs"]["dataset_inputs"]
    assert [one["dataset"]["name"] for one in inputs] == ["d1", "d2"]


def test_another_run_keeps_the_tags_of_mlflow_and_the_record_does_not() -> None:
    """`load_table` finds its table by one of them."""
    script = Script()
    run = child(script)
    script.told()
    script.ok("POST", "runs/set-tag", run_id=run, key="mlflow.note.content", value="said")
    script.ok("POST", "runs/set-tag", run_id=run, key="own", value="1")
    assert script.told() == [("tag", "fold/own", "1")]
    tags = script.ok("GET", "runs/get", run_id=run)["run"]["data"]["tags"]
    assert {"key": "mlflow.note.content", "value": "said"} in tags
    script.ok("POST", "runs/delete-tag", run_id=run, key="mlflow.note.content")
    script.ok("POST", "runs/set-tag", run_id=run, key="mlflow.runName", value="named")
    assert script.ok("GET", "runs/get", run_id=run)["run"]["info"]["run_name"] == "named"


def test_a_run_has_a_start_its_models_and_its_user() -> None:
    script = Script()
    script.ok("POST", "runs/set-tag", run_id=ID, key="mlflow.user", value="ann")
    script.ok("POST", "runs/outputs", run_id=ID, models=[{"model_id": "m-1", "step": 0}])
    script.ok("POST", "runs/log-inputs", run_id=ID, models=[{"model_id": "m-2"}])
    run = script.ok("GET", "runs/get", run_id=ID)["run"]
    assert run["inputs"] == {"dataset_inputs": [], "model_inputs": [{"model_id": "m-2"}]}
    assert (run["info"]["start_time"], run["info"]["user_id"], run["outputs"]["model_outputs"]) == (1000, "ann", [{"model_id": "m-1", "step": 0}])
    assert len(script.ok("POST", "runs/search", filter="start_time > 0")["runs"]) == 1


def test_an_experiment_that_nobody_made_is_not_there() -> None:
    """A search of runs in `production` found the job's own."""
    script = Script()
    assert script.call("GET", "experiments/get-by-name", experiment_name="production")[0] == 404
    assert script.ok("POST", "experiments/create", name="production") == {"experiment_id": "7"}
    assert script.ok("GET", "experiments/get-by-name", experiment_name="production")["experiment"]["experiment_id"] == "7"
    script.ok("POST", "experiments/set-experiment-tag", experiment_id="7", key="team", value="vision")
    assert script.ok("GET", "experiments/get", experiment_id="7")["experiment"]["tags"] == [{"key": "team", "value": "vision"}]
    assert script.told() == [("tag", "experiment.team", "vision")]


def test_the_latest_value_is_that_of_the_highest_step_then_time() -> None:
    script = Script()
    for value, time_ms in ((0.1, 5), (0.2, 9), (0.3, 7), ("NaN", 9)):
        script.ok("POST", "runs/log-metric", run_id=ID, key="acc", value=value, timestamp=time_ms, step=4)
    (latest,) = script.ok("GET", "runs/get", run_id=ID)["run"]["data"]["metrics"]
    assert latest["value"] == 0.2


@pytest.mark.parametrize("length", [9000, 20_000])
def test_a_long_value_is_cut_as_mlflow_cuts_it(length: int) -> None:
    script = Script()
    for _ in range(2):
        script.ok("POST", "runs/log-parameter", run_id=ID, key="configuration", value="x" * length)
    script.ok("POST", "runs/set-tag", run_id=ID, key="note", value="x" * length)
    assert [(kind, len(value)) for kind, _, value in script.told()] == [("param", 8000), ("tag", 8000)]


def test_a_path_may_have_a_dot() -> None:
    script = Script()
    script.ok("GET", "runs/get", run_id=ID)
    assert script.runs.artifact_name(f"7/{ID}/artifacts/.") == ""
    assert script.runs.artifact_name(f"7/{ID}/artifacts/./d/.") == "d"
    assert script.runs.artifact_name(f"7/{child(script, '..')}/artifacts/f") == "run-2/f"


@pytest.mark.parametrize(("text", "found"), [("tags.t IS NULL", 1), ("tags.t IS NOT NULL", 0), ("tags.own IS NOT NULL", 1), ("tags.own IS NULL", 0)])
def test_a_filter_asks_whether_a_tag_is_there(text: str, found: int) -> None:
    script = Script()
    script.ok("POST", "runs/set-tag", run_id=ID, key="own", value="1")
    assert len(script.ok("POST", "runs/search", filter=text)["runs"]) == found


def test_what_is_kept_for_the_answers_is_bounded() -> None:
    script = Script()
    made = model(script)
    for step in range(1, 1200):
        metric = {"run_id": ID, "key": "acc", "value": 0.5, "timestamp": step, "step": step, "model_id": made["model_id"]}
        script.ok("POST", "runs/log-metric", **metric)
        script.ok("POST", "runs/outputs", run_id=ID, models=[{"model_id": made["model_id"], "step": step}])
    (kept,) = script.ok("GET", f"logged-models/{made['model_id']}")["model"]["data"]["metrics"]
    assert kept["step"] == 1199
    assert len(script.ok("GET", "runs/get", run_id=ID)["run"]["outputs"]["model_outputs"]) == 1000
    assert names(script, page_token="-5", max_results=-1) == ["model"]
