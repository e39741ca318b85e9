"""The run as seen by a script's own `mlflow`: the responses, and what reaches the job's record."""

import math
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.agent.mlflow.run_api import Fault, Runs

ID = "f" * 32


class Script:
    """Calls, as `mlflow` makes them; `told` is what the agent would pass on."""

    def __init__(self, base_step: int = 0, **identity: Any) -> None:
        self._told: deque[tuple[Any, ...]] = deque()
        whole = {"id": ID, "experiment_id": "7", "experiment": "digits", "name": "digits-1", "params": {}, "tags": {}, **identity}
        self.runs = Runs(whole, base_step, self._told)  # type: ignore[arg-type]

    def call(self, method: str, name: str, /, **body: Any) -> tuple[int, Any]:
        return self.runs.answer(method, name, body, 1000)

    def ok(self, method: str, name: str, /, **body: Any) -> Any:
        status, answer = self.call(method, name, **body)
        assert status == 200, answer
        return answer

    def metric(self, key: str, value: Any, step: int = 0, run: str = ID) -> None:
        self.ok("POST", "runs/log-metric", run_id=run, key=key, value=value, timestamp=1, step=step)

    def told(self) -> list[tuple[Any, ...]]:
        found = list(self._told)
        self._told.clear()
        return found


def test_a_run_is_there_from_the_beginning() -> None:
    script = Script(params={"lr": "0.1"}, tags={"owner": "ann"})
    run = script.ok("GET", "runs/get", run_id=ID)["run"]
    assert (run["info"]["status"], run["info"]["experiment_id"], run["info"]["run_name"]) == ("RUNNING", "7", "digits-1")
    assert run["data"]["params"] == [{"key": "lr", "value": "0.1"}]
    assert {"key": "owner", "value": "ann"} in run["data"]["tags"]
    for name in ("get", "get-by-name"):
        assert script.ok("GET", f"experiments/{name}", experiment_name="x")["experiment"]["experiment_id"] == "7"
    assert script.told() == []


def test_metrics_of_a_batch_are_one_point_of_each_step() -> None:
    script = Script()
    given = [("loss", 1.5, 3), ("acc", 0.5, 3), ("loss", "NaN", 4), ("up", "Infinity", 4)]
    script.ok("POST", "runs/log-batch", run_id=ID, metrics=[{"key": k, "value": v, "timestamp": 1, "step": s} for k, v, s in given])
    first, second = script.told()
    assert first == ("point", 3, {"loss": 1.5, "acc": 0.5}, True, True)
    assert second[1] == 4
    assert math.isnan(second[2]["loss"])
    assert second[2]["up"] == math.inf
    metrics = {one["key"]: one["value"] for one in script.ok("GET", "runs/get", run_id=ID)["run"]["data"]["metrics"]}
    assert metrics == {"loss": "NaN", "acc": 0.5, "up": "Infinity"}


def test_values_without_a_step_count_up() -> None:
    script = Script()
    for value in (0.9, 0.8, 0.7):
        script.metric("loss", value)
    assert script.told() == [("point", step, {"loss": value}, True, False) for step, value in enumerate((0.9, 0.8, 0.7))]


def test_a_resumed_script_without_steps_goes_on_where_its_checkpoint_was() -> None:
    script = Script(base_step=450)
    script.metric("loss", 0.9)
    script.metric("loss", 0.8)
    script.metric("val", 0.5, step=600)
    script.metric("final", 1.0)
    assert [(step, named) for _, step, _, _, named in script.told()] == [(450, False), (451, False), (600, True), (600, False)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5)), max_size=30))
def test_no_value_is_lost_where_steps_are_said(values: list[tuple[str, int]]) -> None:
    script = Script()
    for number, (name, step) in enumerate(values):
        script.metric(name, float(number), step + 1)
    kept = {(name, step): value for _, step, point, _, _ in script.told() for name, value in point.items()}
    assert kept == {(name, step + 1): float(number) for number, (name, step) in enumerate(values)}


def test_a_parameter_has_one_value() -> None:
    script = Script()
    script.ok("POST", "runs/log-parameter", run_id=ID, key="lr", value="0.1")
    script.ok("POST", "runs/log-parameter", run_id=ID, key="lr", value="0.1")
    status, answer = script.call("POST", "runs/log-parameter", run_id=ID, key="lr", value="0.2")
    assert (status, answer["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert "'0.1'" in answer["message"]
    assert script.told() == [("param", "lr", "0.1")]


def test_a_resumed_script_may_say_another_value_and_the_first_stays() -> None:
    script = Script(params={"start": "0"})
    script.ok("POST", "runs/log-parameter", run_id=ID, key="start", value="450")
    assert script.told() == []
    assert script.ok("GET", "runs/get", run_id=ID)["run"]["data"]["params"] == [{"key": "start", "value": "0"}]


def test_tags_change_and_go() -> None:
    script = Script()
    script.ok("POST", "runs/set-tag", run_id=ID, key="who", value="me")
    script.ok("POST", "runs/set-tag", run_id=ID, key="who", value="me")
    script.ok("POST", "runs/delete-tag", run_id=ID, key="who")
    assert script.call("POST", "runs/delete-tag", run_id=ID, key="who")[0] == 404
    assert script.told() == [("tag", "who", "me"), ("tag", "who", None)]


def test_the_first_run_a_script_asks_for_is_the_jobs() -> None:
    script = Script()
    tags = [{"key": "mlflow.user", "value": "ann"}]
    run = script.ok("POST", "runs/create", experiment_id="7", run_name="lightning", tags=tags)["run"]
    assert run["info"]["run_id"] == ID
    assert script.told() == [("tag", "mlflow.user", "ann")]


def test_further_runs_are_recorded_below_their_names() -> None:
    script = Script()
    script.ok("GET", "runs/get", run_id=ID)
    parent = [{"key": "mlflow.parentRunId", "value": ID}, {"key": "mlflow.user", "value": "ann"}]
    made = [script.ok("POST", "runs/create", run_name=name, tags=parent)["run"]["info"]["run_id"] for name in ("fold", "fold", "")]
    assert len({ID, *made}) == 4
    for run in made:
        script.metric("acc", 0.5, 3, run)
        script.ok("POST", "runs/log-parameter", run_id=run, key="lr", value="1")
    told = script.told()
    assert [what for what in told if what[0] == "point"] == [
        ("point", 3, {f"{name}/acc": 0.5}, False, True) for name in ("fold", "fold-2", "run-4")
    ]
    assert [what for what in told if what[0] != "point"] == [
        ("param", "fold/lr", "1"), ("param", "fold-2/lr", "1"), ("param", "run-4/lr", "1"),
    ]  # fmt: skip


def test_the_scripts_word_on_the_status_is_for_the_script() -> None:
    script = Script()
    info = script.ok("POST", "runs/update", run_id=ID, status="FINISHED", end_time=5)["run_info"]
    assert (info["status"], info["end_time"]) == ("FINISHED", 5)
    assert script.told() == []


def test_a_data_set_becomes_a_tag() -> None:
    script = Script()
    data = {"dataset": {"name": "iris", "digest": "ab12"}, "tags": [{"key": "mlflow.data.context", "value": "train"}]}
    script.ok("POST", "runs/log-inputs", run_id=ID, datasets=[data])
    assert script.told() == [("tag", "dataset.train", "iris ab12")]


@pytest.mark.parametrize(
    "body",
    [
        {"key": "", "value": 1.0}, {"value": 1.0}, {"key": "a", "value": "many"}, {"key": "a"}, {"key": "a", "value": True},
        {"key": "a", "value": 1.0, "step": "x"}, {"key": "a", "value": 1.0, "step": 2**63}, {"key": "a", "value": 10**400},
        {"key": "a" * 300, "value": 1.0},
    ],
)  # fmt: skip
def test_a_metric_that_is_none_is_refused_with_a_word(body: dict[str, Any]) -> None:
    script = Script()
    status, answer = script.call("POST", "runs/log-metric", run_id=ID, **body)
    assert (status, answer["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert script.told() == []


@pytest.mark.parametrize(
    ("method", "name", "word"),
    [
        ("POST", "registered-models/create", "MLFLOW_REGISTRY_URI"),
        ("POST", "traces", "MLFLOW_TRACKING_URI"),
        ("DELETE", "runs/get", "MLFLOW_TRACKING_URI"),
    ],
)
def test_what_it_does_not_do_it_says(method: str, name: str, word: str) -> None:
    status, answer = Script().call(method, name)
    assert (status, answer["error_code"]) == (501, "NOT_IMPLEMENTED")
    assert word in answer["message"]


def test_a_run_of_somebody_else_is_not_here() -> None:
    status, answer = Script().call("GET", "runs/get", run_id="0" * 32)
    assert (status, answer["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")
    assert ID in answer["message"]


def test_files_are_named_by_the_run_or_the_model_they_belong_to() -> None:
    script = Script()
    script.ok("GET", "runs/get", run_id=ID)
    child = script.ok("POST", "runs/create", run_name="fold")["run"]["info"]["run_id"]
    models = [script.ok("POST", "logged-models", name="model")["model"]["info"] for _ in range(2)]
    assert script.runs.artifact_name(f"7/{ID}/artifacts/dir/f.txt") == "dir/f.txt"
    assert script.runs.artifact_name(f"7/{child}/artifacts/f.txt") == "fold/f.txt"
    names = [script.runs.artifact_name(model["artifact_uri"].removeprefix("mlflow-artifacts:/") + "/MLmodel") for model in models]
    assert names == ["model/MLmodel", "model-2/MLmodel"]
    for path in ("x", f"7/{'0' * 32}/artifacts/f", "7/models/m-1/artifacts/f"):
        with pytest.raises(Fault, match="is in no run"):
            script.runs.artifact_name(path)


def test_a_model_is_made_told_of_and_finished() -> None:
    script = Script()
    made = script.ok("POST", "logged-models", name="model", source_run_id=ID, params=[{"key": "c", "value": "1"}])["model"]["info"]
    place = f"logged-models/{made['model_id']}"
    script.ok("PATCH", f"{place}/tags", tags=[{"key": "a", "value": "1"}])
    script.ok("POST", f"{place}/params", params=[{"key": "d", "value": "2"}])
    assert script.ok("PATCH", place, status=2)["model"]["info"]["status"] == "LOGGED_MODEL_READY"
    found = script.ok("GET", place)["model"]
    assert (found["info"]["tags"], len(found["data"]["params"])) == ([{"key": "a", "value": "1"}], 2)
    assert script.call("GET", "logged-models/none")[0] == 400
