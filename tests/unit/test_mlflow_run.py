"""The run as seen by a script's own `mlflow`: the responses, and what reaches the job's record."""

import math
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launches import launch, write

from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.mlflow import histories
from trainmaster.agent.mlflow.listener import MlflowListener, logged_elsewhere
from trainmaster.agent.mlflow.run_api import Fault, Runs
from trainmaster.agent.transport.outbox import Outbox

ID = "f" * 32
IDENTITY: Any = {"id": ID, "experiment_id": "7", "experiment": "digits", "name": "digits-1", "params": {}, "tags": {}, "prefixes": {}}


class Script:
    """Calls, as `mlflow` makes them; `told` is what the agent would pass on."""

    def __init__(self, base_step: int = 0, **identity: Any) -> None:
        self._told: deque[tuple[Any, ...]] = deque()
        self.runs = Runs({**IDENTITY, **identity}, base_step, self._told)

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


def points(script: Script) -> list[tuple[Any, ...]]:
    return [what for what in script.told() if what[0] == "point"]


def test_a_run_is_there_from_the_beginning() -> None:
    script = Script(params={"lr": "0.1"}, tags={"owner": "ann"})
    run = script.ok("GET", "runs/get", run_id=ID)["run"]
    assert (run["info"]["status"], run["info"]["experiment_id"], run["info"]["run_name"]) == ("RUNNING", "7", "digits-1")
    assert run["data"]["params"] == [{"key": "lr", "value": "0.1"}]
    assert {"key": "owner", "value": "ann"} in run["data"]["tags"]
    for name in ("get", "get-by-name"):
        assert script.ok("GET", f"experiments/{name}", experiment_name="digits")["experiment"]["experiment_id"] == "7"
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
    kept = {(name, step): value for _, step, point, *_ in points(script) for name, value in point.items()}
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
    assert script.told() == [("kept", "start", ("0", "450"))], "the record says another value than the program used"
    assert script.ok("GET", "runs/get", run_id=ID)["run"]["data"]["params"] == [{"key": "start", "value": "0"}]


def test_the_same_value_written_otherwise_is_the_same() -> None:
    script = Script(params={"lr": "0.001", "amp": "true", "name": "a"})
    script.ok("POST", "runs/log-batch", run_id=ID, params=[{"key": k, "value": v} for k, v in (("lr", "1e-3"), ("amp", "True"))])
    assert script.told() == []


def test_parameters_that_the_record_has_otherwise_are_warned_of(tmp_path: Path) -> None:
    """`--set lr=0.1` and `mlflow.log_param("lr", 0.01)`: nothing had the value that was used."""
    outbox, listener = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")), MlflowListener(IDENTITY)
    listener.told += [("kept", f"p{number}", ("0.1", "x" * 100)) for number in range(6)]
    listener.pass_on(Progress(outbox), lambda rank, message: None, outbox)
    told = outbox.warned["parameters"]["text"]
    assert told.startswith("the program logged p0=a text of 100 characters (the record keeps p0=0.1), p1=")
    assert told.endswith(" and 1 more: the spec or an earlier attempt gave other values")


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
    assert script.call("GET", "logged-models/none")[0] == 404


def test_the_history_of_a_metric_comes_in_pages() -> None:
    """T1: `log_model` and XGBoost's autolog ask for it: they kept one step of five, and no model."""
    script = Script()
    for step in range(1, 6):
        script.metric("loss", "NaN" if step == 3 else 1 / step, step)
    first = script.ok("GET", "metrics/get-history", run_id=ID, metric_key="loss", max_results="3")
    rest = script.ok("GET", "metrics/get-history", run_id=ID, metric_key="loss", page_token=first["next_page_token"])
    assert [one["value"] for one in first["metrics"]] == [1.0, 0.5, "NaN"]
    assert (rest["metrics"][0], "next_page_token" in rest) == ({"key": "loss", "step": 4, "timestamp": 1, "value": 0.25}, False)
    assert script.ok("GET", "metrics/get-history", run_id=ID, metric_key="never") == {"metrics": []}
    assert script.call("GET", "metrics/get-history", run_id=ID, metric_key="loss", max_results="x")[0] == 400


def test_the_same_point_again_is_no_further_one() -> None:
    """XGBoost's autolog logs the value of step 0 again for the model: it was counted as that of step 1."""
    script = Script()
    for step, time_ms in ((0, 7), (1, 8), (2, 9), (0, 7), (2, 9)):
        script.ok("POST", "runs/log-metric", run_id=ID, key="loss", value=0.5, timestamp=time_ms, step=step)
    assert [step for _, step, *_ in script.told()] == [0, 1, 2]
    assert [one["step"] for one in script.ok("GET", "metrics/get-history", run_id=ID, metric_key="loss")["metrics"]] == [0, 1, 2]


def test_a_history_that_is_not_whole_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "_KEPT_MAX", 5)
    script = Script()
    script.metric("short", 1.0, 1)
    for step in range(1, 9):
        script.metric("long", 1.0, step)
    assert script.call("GET", "metrics/get-history", run_id=ID, metric_key="long")[0] == 501
    assert len(script.ok("GET", "metrics/get-history", run_id=ID, metric_key="short")["metrics"]) == 1


RUNS = {"a": (0.5, "sgd", "1"), "b": (0.9, "adam", "1"), "c": (None, "Adam W", "2")}


def searched(**asked: Any) -> tuple[int, list[str]]:
    script = Script()
    for at, (name, (acc, optimizer, fold)) in enumerate(RUNS.items()):
        tags = [{"key": "mlflow.parentRunId", "value": ID}, {"key": "fold no", "value": fold}]
        child = script.ok("POST", "runs/create", run_name=name, tags=tags, start_time=2000 + at)["run"]["info"]["run_id"]
        script.ok("POST", "runs/log-parameter", run_id=child, key="opt", value=optimizer)
        if acc is not None:
            script.metric("val/acc", acc, 1, child)
    status, answer = script.call("POST", "runs/search", **asked)
    return status, [run["info"]["run_name"] for run in answer.get("runs", [])]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, ["c", "b", "a", "digits-1"]),  # newest first
        ({"filter": "metrics.`val/acc` > 0.6"}, ["b"]),
        ({"filter": "metrics.val/acc >= 0.5 and params.opt = 'sgd'"}, ["a"]),
        ({"filter": "params.opt != \"sgd\""}, ["c", "b"]),
        ({"filter": "params.opt LIKE 'adam%'"}, ["b"]),
        ({"filter": "params.opt ILIKE 'adam%'"}, ["c", "b"]),
        ({"filter": "params.opt LIKE 'a_a%'"}, ["b"]),
        ({"filter": "params.opt LIKE '%d%'"}, ["c", "b", "a"]),
        ({"filter": "params.opt LIKE 'd%'"}, []),
        ({"filter": f"tags.mlflow.parentRunId = '{ID}'", "order_by": ["metrics.`val/acc` DESC"]}, ["b", "a", "c"]),
        ({"filter": "tags.`fold no` IN ('1', '3')", "order_by": ["attributes.start_time ASC"]}, ["a", "b"]),
        ({"filter": "attributes.run_name NOT IN ('a', 'b') AND status = 'RUNNING'"}, ["c", "digits-1"]),
        ({"filter": "tags.\"fold no\" = '2'"}, ["c"]),
        ({"max_results": 2}, ["c", "b"]),
        ({"max_results": 2, "page_token": "2"}, ["a", "digits-1"]),
        ({"run_view_type": "DELETED_ONLY"}, []),
        ({"experiment_ids": ["306717778890818"]}, []),  # another experiment
    ],
)
def test_a_search_is_answered_as_asked(asked: dict[str, Any], names: list[str]) -> None:
    """T6: filter, order and limit were ignored."""
    assert searched(**asked) == (200, names)


@pytest.mark.parametrize(
    "text",
    ["metrics.acc > 1 OR metrics.acc < 0", "acc > 1", "metrics.acc", "metrics.acc = 'x'", "params.opt = 3", "metrics.acc > 'x'", "params.opt > 3 AND", "((", "nowhere.x = 1", "a" * 6000,
     f"params.opt LIKE '{'x' * 201}'", "metrics.acc > 1 1", "metrics. = 1", "status NOT = 'x'", "params.opt IN ()"],
)  # fmt: skip
def test_a_search_that_is_not_understood_is_refused(text: str) -> None:
    assert searched(filter=text)[0] == 501
    assert searched(order_by=[f"{text} DOWN"])[0] == 501


def test_what_other_ranks_log_elsewhere_is_told(tmp_path: Path) -> None:
    """T10: the calls of rank 1 went to a database in the work directory, and nothing was said."""
    orders = launch(tmp_path, run=IDENTITY, ranks=2)
    assert logged_elsewhere(orders, 0.0) == ""
    write(tmp_path / "work" / "mlflow.db", b"x")
    assert logged_elsewhere(orders, 0.0).startswith("mlflow wrote into mlflow.db of the work directory, which is not in this record")
    assert [logged_elsewhere({**orders, **other}, 0.0) for other in ({"ranks": 1}, {"run": None})] == ["", ""]
    assert logged_elsewhere(orders, time.time() + 10) == ""  # an older one
    assert logged_elsewhere({**orders, "ranks": 1, "node_index": 1}, 0.0) != ""


@pytest.mark.parametrize("time_ms", [10**30, "x", math.inf, [1]])
def test_a_time_that_is_none_is_refused_and_nothing_of_its_batch_is_kept(time_ms: Any) -> None:
    script = Script()
    batch = [{"key": "loss", "value": 1.0, "step": 1, "timestamp": 1}, {"key": "loss", "value": 2.0, "step": 2, "timestamp": time_ms}]
    assert script.call("POST", "runs/log-batch", run_id=ID, metrics=batch)[0] == 400
    assert script.ok("GET", "metrics/get-history", run_id=ID, metric_key="loss") == {"metrics": []}
    assert (script.call("POST", "runs/create", start_time=time_ms)[0], script.told()) == (400, [])
    assert script.call("POST", "runs/update", run_id=ID, status="FINISHED", end_time=time_ms)[0] == 400


def test_values_that_are_no_numbers_come_last() -> None:
    script = Script()
    for name, loss in (("a", 2.0), ("b", "NaN"), ("c", 1.0), ("d", "NaN"), ("e", 0.5)):
        script.metric("loss", loss, 1, script.ok("POST", "runs/create", run_name=name, tags=[{"key": "mlflow.parentRunId", "value": ID}])["run"]["info"]["run_id"])
    for order, names in (("ASC", "eca"), ("DESC", "ace")):
        found = script.ok("POST", "runs/search", filter="attributes.run_name != 'digits-1'", order_by=[f"metrics.loss {order}"])["runs"]
        assert "".join(run["info"]["run_name"] for run in found)[:3] == names
