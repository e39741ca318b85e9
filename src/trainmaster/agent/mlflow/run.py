"""One MLflow run as the script sees it. No I/O."""

from __future__ import annotations

from trainmaster.agent.mlflow.fields import out
from trainmaster.agent.mlflow.histories import Histories

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainmaster.agent.mlflow.fields import Body
    from trainmaster.agent.mlflow.histories import Point


class Run:
    """One run as the script sees it. `prefix` is put before its names in the job's record."""

    def __init__(self, run_id: str, name: str, prefix: str) -> None:
        self.id = run_id
        self.name = name
        self.prefix = prefix
        self.status = "RUNNING"
        self.started_ms = 0
        self.ended_ms = 0
        self.params: dict[str, str] = {}
        self.earlier: dict[str, str] = {}  # from the spec and from earlier attempts
        self.tags: dict[str, str] = {}
        self.latest: dict[str, tuple[int, int, float]] = {}  # step, timestamp, value
        self.histories = Histories()
        self.logged: dict[tuple[str, bool], tuple[int, int, float]] = {}  # the last point with a step, and without
        self.step = 0  # the highest logged step
        self.stepless: dict[str, int] = {}  # metric -> values logged at step 0, which may mean "no step"
        self.stepped: set[str] = set()  # metrics that were logged with another step: of them, 0 is a step
        self.inputs: dict[tuple[str, str], Body] = {}  # name and digest of a data set -> as it was logged
        self.models: list[Body] = []  # that were its input
        self.outputs: list[Body] = []  # models


def view(run: Run, experiment: str) -> Body:
    """The run as `runs/get` answers it."""
    info = {
        "run_id": run.id, "run_uuid": run.id, "run_name": run.name, "experiment_id": experiment,
        "user_id": run.tags.get("mlflow.user", ""), "status": run.status, "start_time": run.started_ms,
        "lifecycle_stage": "active",
        "artifact_uri": f"mlflow-artifacts:/{experiment}/{run.id}/artifacts",
    }  # fmt: skip
    if run.ended_ms:
        info["end_time"] = run.ended_ms
    metrics = [shown_point(name, point) for name, point in run.latest.items()]
    params = [{"key": name, "value": value} for name, value in {**run.params, **run.earlier}.items()]
    tags = [{"key": name, "value": value} for name, value in run.tags.items()]
    return {
        "info": info,
        "data": {"metrics": metrics, "params": params, "tags": tags},
        "inputs": {"dataset_inputs": list(run.inputs.values()), "model_inputs": run.models},
        "outputs": {"model_outputs": run.outputs},
    }


def shown_point(name: str, point: Point) -> Body:
    """A value of a metric in MLflow's format."""
    step, time_ms, value = point
    return {"key": name, "value": out(value), "timestamp": time_ms, "step": step}
