"""What a script logs beside the values of the job's own run: further runs, models, and MLflow's metrics of the machine."""

from pathlib import Path

import pytest
from test_mlflow_run import ID, IDENTITY, Script

from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.mlflow.listener import MlflowListener
from trainmaster.agent.transport.outbox import Outbox


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
    assert [what for what in told if what[0] == "param"] == [
        ("param", "fold/lr", "1"), ("param", "fold-2/lr", "1"), ("param", "run-4/lr", "1"),
    ]  # fmt: skip
    assert [what for what in told if what[0] == "prefix"] == [("prefix", name, "run") for name in ("fold", "fold-2", "run-4")]


def test_a_run_has_a_name_that_nothing_else_in_the_record_has() -> None:
    script = Script()
    script.ok("GET", "runs/get", run_id=ID)
    parent = [{"key": "mlflow.parentRunId", "value": ID}]
    for name in ("system", "a/b\n", "x" * 300):
        script.ok("POST", "runs/create", run_name=name, tags=parent)
    assert [what[1] for what in script.told() if what[0] == "prefix"] == ["system-2", "a-b-", "x" * 100]


def test_what_a_restarted_script_starts_again_is_new() -> None:
    """The third of three runs named `trial`, repeated alone, had the name of the first and overwrote it; models too."""
    params = {"lr": "0.1", "trial/lr": "0.2", "train/x": "1"}
    script = Script(base_step=500, params=params, tags={"trial/note": "a"}, prefixes={"trial": "run", "trial-2": "run", "model": "model"})
    run = script.ok("GET", "runs/get", run_id=ID)["run"]
    assert {one["key"] for one in run["data"]["params"]} == {"lr", "train/x"}, "those of nested runs are not the run's own"
    assert "trial/note" not in {one["key"] for one in run["data"]["tags"]}
    parent = [{"key": "mlflow.parentRunId", "value": ID}]
    made = [script.ok("POST", "runs/create", run_name=name, tags=parent)["run"] for name in ("trial", "fold-1", "")]
    model = script.ok("POST", "logged-models", experiment_id="7", name="model", source_run_id=ID)["model"]
    kinds = {what[1]: what[2] for what in script.told() if what[0] == "prefix"}
    assert kinds == {"trial-3": "run", "fold-1": "run", "run-4": "run", "model-2": "model"}
    assert made[0]["data"]["params"] == []
    assert script.runs.artifact_name(f"7/models/{model['info']['model_id']}/artifacts/MLmodel") == "model-2/MLmodel"
    script.metric("acc", 0.5, 0, made[0]["info"]["run_id"])
    assert script.told() == [("point", 0, {"trial-3/acc": 0.5}, False, False)], "its steps are not those of the checkpoint"


def test_a_run_that_is_started_again_is_known_by_its_name_and_its_params() -> None:
    """T5: a child keeps its identity over a restart by what the program says of it, else it is a new child."""
    earlier = {"params": {"a/lr": "0.1", "b/lr": "0.2", "c/lr": "0.3"}, "tags": {"b/note": "x", "d/fold": "1"}}
    script = Script(500, **earlier, prefixes=dict.fromkeys("abcd", "run"))
    script.ok("GET", "runs/get", run_id=ID)
    parent = {"key": "mlflow.parentRunId", "value": ID}

    def child(name: str, *tags: dict[str, str]) -> str:
        return str(script.ok("POST", "runs/create", run_name=name, tags=[parent, *tags])["run"]["info"]["run_id"])

    def told(run: str, lr: str) -> list[tuple[object, ...]]:
        script.ok("POST", "runs/log-parameter", run_id=run, key="lr", value=lr)
        script.metric("acc", 0.5, 3, run)
        return script.told()

    assert told(child("a"), "1e-1") == [("point", 3, {"a/acc": 0.5}, False, True)], "the same run"
    new = [("prefix", "b-2", "run"), ("tag", "b-2/note", "x"), ("param", "b-2/lr", "0.9"), ("point", 3, {"b-2/acc": 0.5}, False, True)]
    assert told(child("b", {"key": "note", "value": "x"}), "0.9") == new, "its params are others"
    late = child("c")
    script.metric("acc", 0.1, 1, late)
    script.told()
    assert told(late, "0.9") == [("kept", "c/lr", ("0.3", "0.9")), ("point", 3, {"c/acc": 0.5}, False, True)]
    assert told(child("a"), "0.1")[:2] == [("prefix", "a-2", "run"), ("param", "a-2/lr", "0.1")], "one of this attempt has the name"
    other = [("prefix", "d-2", "run"), ("tag", "d-2/fold", "2"), ("param", "d-2/lr", "0.1")]
    assert told(child("d", {"key": "fold", "value": "2"}), "0.1")[:3] == other


def test_a_further_run_takes_no_name_that_the_jobs_own_run_has(tmp_path: Path) -> None:
    """`train/loss` of the job's run was replaced by `loss` of a nested run named `train`, and `model/MLmodel` by another file."""
    script = Script(params={"conf/lr": "1"}, prefixes={"evaluator": "role"})
    script.ok("GET", "runs/get", run_id=ID)
    script.metric("train/loss", 0.1, 5)
    script.runs.uploaded("/x", f"7/{ID}/artifacts/plots/a.png")
    script.ok("POST", "logged-models", experiment_id="7", name="model", source_run_id=ID)
    parent = [{"key": "mlflow.parentRunId", "value": ID}]
    for name in ("train", "conf", "plots", "model", "evaluator", "late"):
        script.ok("POST", "runs/create", run_name=name, tags=parent)
    told = script.told()
    runs = [what[1] for what in told if what[0] == "prefix" and what[2] == "run"]
    assert runs == ["train-2", "conf-2", "plots-2", "model-2", "evaluator-2", "late"]
    for step in (1, 2):
        script.metric("late/loss", 0.1, step)
    assert [what for what in script.told() if what[0] == "clash"] == [("clash", "late/loss")]
    outbox, listener = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")), MlflowListener(IDENTITY)
    listener.told.append(("clash", "late/loss"))
    listener.pass_on(Progress(outbox), lambda rank, message: None, outbox)
    assert outbox.warned["names"]["text"].endswith("from those of that run: late/loss")
    made = script.ok("POST", "logged-models", experiment_id="7", name="late", source_run_id=ID)["model"]["info"]
    assert script.runs.artifact_name(f"7/models/{made['model_id']}/artifacts/MLmodel") == "late-2/MLmodel"


def test_after_a_restart_a_further_run_takes_no_name_of_the_jobs_own_values() -> None:
    """Nothing told the second attempt that the first had logged `val/loss`: a nested run named `val` replaced it."""
    first = Script()
    first.ok("GET", "runs/get", run_id=ID)
    first.metric("val/loss", 1.0, 10)
    first.runs.uploaded("/x", f"7/{ID}/artifacts/plots/a.png")
    own = {what[1]: what[2] for what in first.told() if what[0] == "prefix"}
    assert own == {"val": "own", "plots": "files"}
    again = Script(500, prefixes={**own, "model": "own"})
    made = again.ok("POST", "logged-models", experiment_id="7", name="model", source_run_id=ID)["model"]["info"]
    place = again.runs.artifact_name(f"7/models/{made['model_id']}/artifacts/MLmodel")
    assert place == "model/MLmodel", "the first attempt logged parameters `model/…`, and no model"
    again.told()
    again.ok("GET", "runs/get", run_id=ID)
    for name in own:
        again.ok("POST", "runs/create", run_name=name, tags=[{"key": "mlflow.parentRunId", "value": ID}])
    assert [what[1] for what in again.told() if what[0] == "prefix"] == ["val-2", "plots-2"]
    later = Script(500, prefixes=own)
    made = later.ok("POST", "logged-models", experiment_id="7", name="plots", source_run_id=ID)["model"]["info"]
    place = later.runs.artifact_name(f"7/models/{made['model_id']}/artifacts/MLmodel")
    assert place == "plots-2/MLmodel", "the first attempt stored files `plots/…`"


@pytest.mark.parametrize(("name", "known"), [("train", "train-2"), ("evaluator", "evaluator-2"), ("lr", "lr-2"), ("fold", "fold-4")])
def test_a_run_with_a_name_that_is_not_free_is_the_earlier_one_too(name: str, known: str) -> None:
    """`train/loss` of the job's own run, and a nested run `train`: train-2 in the first attempt, train-3 in the second, …"""
    runs = dict.fromkeys(("train-2", "evaluator-2", "lr-2", "fold-2", "fold-3"), "run")
    earlier = {"train": "own", "evaluator": "role", "fold": "own", **runs}
    script = Script(500, params={"lr": "0.1", **{f"{run}/depth": "3" for run in runs}}, prefixes=earlier)
    script.ok("GET", "runs/get", run_id=ID)

    def told(depth: str) -> list[tuple[object, ...]]:
        made = script.ok("POST", "runs/create", run_name=name, tags=[{"key": "mlflow.parentRunId", "value": ID}])
        script.ok("POST", "runs/log-parameter", run_id=made["run"]["info"]["run_id"], key="depth", value=depth)
        return script.told()

    new = [("prefix", known, "run"), ("param", f"{known}/depth", "3")]
    assert told("3") == (new if name == "fold" else []), "of two of that name, it may be either"
    other = f"{name}-{int(known[-1]) + 1}"
    assert told("3") == [("prefix", other, "run"), ("param", f"{other}/depth", "3")], "one of this attempt has the name"


def test_a_run_with_a_name_that_is_not_free_is_another_one_with_other_params() -> None:
    script = Script(params={"train-2/depth": "3"}, prefixes={"train": "own", "train-2": "run"})
    script.ok("GET", "runs/get", run_id=ID)
    made = script.ok("POST", "runs/create", run_name="train", tags=[{"key": "mlflow.parentRunId", "value": ID}])
    script.ok("POST", "runs/log-parameter", run_id=made["run"]["info"]["run_id"], key="depth", value="4")
    assert script.told() == [("prefix", "train-3", "run"), ("param", "train-3/depth", "4")]


def test_a_run_with_a_long_value_is_the_earlier_one() -> None:
    """The record has 8,000 characters of a value, and the whole one was compared with them: a new run at each restart."""
    script = Script(params={"a/text": "x" * 8000}, tags={"a/note": "y" * 8000}, prefixes={"a": "run"})
    script.ok("GET", "runs/get", run_id=ID)
    tags = [{"key": "mlflow.parentRunId", "value": ID}, {"key": "note", "value": "y" * 9000}]
    made = script.ok("POST", "runs/create", run_name="a", tags=tags)
    script.ok("POST", "runs/log-parameter", run_id=made["run"]["info"]["run_id"], key="text", value="x" * 9000)
    assert script.told() == []


def test_files_in_the_directory_of_a_further_run_or_a_model_are_told(tmp_path: Path) -> None:
    """`a.png` of the nested run `train` was replaced by the job's own `train/a.png`, without a word."""
    script = Script(prefixes={"eval": "run"})
    script.ok("GET", "runs/get", run_id=ID)
    run = script.ok("POST", "runs/create", run_name="train", tags=[{"key": "mlflow.parentRunId", "value": ID}])["run"]["info"]
    model = script.ok("POST", "logged-models", experiment_id="7", name="model", source_run_id=ID)["model"]["info"]
    script.told()
    for path in (f"{run['run_id']}/artifacts/a.png", f"models/{model['model_id']}/artifacts/MLmodel"):
        script.runs.uploaded("/x", f"7/{path}")
    assert [what[0] for what in script.told()] == ["artifact", "artifact"]
    for path in ("train/a.png", "train/b.png", "model/notes.txt", "eval/a.png", "plots/a.png", "train"):
        script.runs.uploaded("/x", f"7/{ID}/artifacts/{path}")
    told = [what for what in script.told() if what[0] != "artifact"]
    assert told == [("mixed", "train/a.png"), ("mixed", "model/notes.txt"), ("mixed", "eval/a.png"), ("prefix", "plots", "files")]
    outbox, listener = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")), MlflowListener(IDENTITY)
    listener.told.extend(told)
    listener.pass_on(Progress(outbox), lambda rank, message: None, outbox)
    assert outbox.warned["files"]["text"].endswith("of the same names: train/a.png, model/notes.txt, eval/a.png")


def test_what_mlflow_measures_of_the_machine_is_no_step_of_the_training(tmp_path: Path) -> None:
    """Its samples count from 0 in each attempt: a resume at 450 "began again at 1", and printed metrics were not read."""
    script = Script(base_step=450)
    for step in range(4):
        script.metric("system/cpu_utilization_percentage", 50.0, step)
    script.metric("loss", 0.5, 451)
    script.metric("system/cpu_utilization_percentage", 50.0, 500)
    script.metric("acc", 0.5)
    outbox, listener = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")), MlflowListener(IDENTITY)
    progress = Progress(outbox, again=True)
    told = script.told()
    assert [point[1] for point in told] == [0, 1, 2, 3, 451, 500, 451]
    listener.told.extend([*told[:4], ("point", 7, {"fold/system/cpu_utilization_percentage": 50.0}, False, True)])
    assert listener.pass_on(progress, lambda rank, message: None, outbox) == set()
    assert (progress.first_step, progress.last_step, progress.evidence.record()["steps"]) == (None, None, [])
    listener.told.extend(told[4:])
    assert listener.pass_on(progress, lambda rank, message: None, outbox) == {"loss", "acc"}
    assert (progress.first_step, progress.last_step, progress.evidence.record()["steps"]) == (451, 451, [451])


def test_samples_of_the_machine_replace_none_of_an_earlier_attempt(tmp_path: Path) -> None:
    """MLflow counts them from 0 in each attempt: at the same steps, an attempt's took the place of those of the one before."""
    outbox, listener = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")), MlflowListener(IDENTITY)
    name = "system/cpu_utilization_percentage"
    listener.told.append(("point", 0, {name: 50.0, "loss": 0.5, f"fold/{name}": 60.0, "system/queue": 3.0}, True, False))
    assert listener.pass_on(Progress(outbox), lambda rank, message: None, outbox) == {"loss"}
    outbox.points.persist({})
    told = [(step, values) for *_, step, values in outbox.points.take()]
    assert told == [(None, {name: 50.0, f"fold/{name}": 60.0}), (0, {"loss": 0.5, "system/queue": 3.0})]


@pytest.mark.parametrize(
    ("name", "sampled"),
    [
        ("system/gpu_10_power_usage_watts", True),
        ("fold/system/node_1/disk_available_megabytes", True),
        ("system/cache_percentage", False),
        ("system/gpu_a_power_usage_watts", False),
        ("gpu_0_power_usage_watts", False),
    ],
)
def test_a_metric_of_the_machine_that_the_program_logs_itself_keeps_its_steps(tmp_path: Path, name: str, sampled: bool) -> None:
    """`system/cache_percentage` of steps 100 to 600 was recorded at 0 to 5."""
    outbox, listener = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")), MlflowListener(IDENTITY)
    listener.told.append(("point", 100, {name: 50.0}, True, True))
    listener.pass_on(Progress(outbox), lambda rank, message: None, outbox)
    outbox.points.persist({})
    assert [step for *_, step, _ in outbox.points.take()] == [None if sampled else 100]


def test_values_without_a_step_of_a_metric_of_the_machine_are_counted() -> None:
    script = Script(base_step=450)
    for value in (1.0, 2.0, 3.0):
        script.metric("system/queue_length", value)
    assert [point[1] for point in script.told()] == [0, 1, 2]


def test_a_second_run_of_a_name_is_not_taken_for_one_that_is_called_so() -> None:
    script = Script(prefixes={"fold-2": "run"})
    script.ok("GET", "runs/get", run_id=ID)
    for name in ("fold", "fold", "fold-2"):
        script.ok("POST", "runs/create", run_name=name, tags=[{"key": "mlflow.parentRunId", "value": ID}])
    assert [what[1] for what in script.told() if what[0] == "prefix"] == ["fold", "fold-3"]  # `fold-2` is the earlier one


def test_the_latest_value_of_a_batch_counts() -> None:
    script = Script()
    given = [{"key": "loss", "value": value, "timestamp": time_ms, "step": 1} for value, time_ms in ((0.5, 10), (0.1, 20), (0.3, 15))]
    script.ok("POST", "runs/log-batch", run_id=ID, metrics=given)
    told = [what[2] for what in script.told()]
    assert told == [{"loss": 0.5}, {"loss": 0.3}, {"loss": 0.1}], "those before are told, so that tm show says that there were several"


def test_values_without_a_step_never_go_back() -> None:
    """After a restore at 500, with steps at 510, these were counted 510, 501, 502 …, and the eleventh replaced the first."""
    script = Script(base_step=500)
    script.metric("loss", 0.5, 510)
    script.told()
    for value in range(3):
        script.metric("acc", value)
    assert [what[1] for what in script.told()] == [510, 511, 512]


@pytest.mark.parametrize(
    ("kept", "logged", "same"),
    [("nan", "nan", True), ("1e-3", "0.001", True), ("True", "true", True), ("None", "none", True), ("a.csv", "A.csv", False),
     ("9007199254740992", "9007199254740993", False), ("1", "one", False)],
)  # fmt: skip
def test_when_a_parameter_has_another_value(kept: str, logged: str, same: bool) -> None:
    script = Script(params={"p": kept})
    script.ok("POST", "runs/log-parameter", run_id=ID, key="p", value=logged)
    assert script.told() == ([] if same else [("kept", "p", (kept, logged))])


@pytest.mark.parametrize("name", ["", ".", "a/../b", "/a", "a\nb", "acc@1", "a//b"])
def test_a_name_that_mlflow_does_not_take_is_refused(name: str) -> None:
    script = Script()
    for call, body in (
        ("log-metric", {"key": name, "value": 1.0}),
        ("log-parameter", {"key": name, "value": "1"}),
        ("set-tag", {"key": name, "value": "1"}),
        ("log-batch", {"params": [{"key": "lr", "value": "1"}], "tags": [{"key": name, "value": "1"}]}),
    ):
        assert script.call("POST", f"runs/{call}", run_id=ID, **body)[0] == 400, call
    assert script.told() == [], "a batch is recorded whole or not at all"
    assert script.call("POST", "runs/log-metric", run_id=ID, key="loss", value=1.0, timestamp=-1)[0] == 400
