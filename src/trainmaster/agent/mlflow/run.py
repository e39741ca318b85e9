"""One MLflow run as the script sees it. No I/O."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from trainmaster.agent.mlflow import fields
from trainmaster.agent.mlflow.fields import VALUE_MAX, invalid
from trainmaster.agent.mlflow.run_metrics import RunMetrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.mlflow.fields import Body

_PARAMS_MAX = 2000
_WORDS = ("true", "false", "none")
_TEXT_MAX = 16 * 1024 * 1024
_LINKED_MAX = 1000  # data sets, and models


class Run:
    """One run as the script sees it. `prefix` is put before its names in the job's record."""

    def __init__(self, run_id: str, name: str, prefix: str, params: Params, base_step: int) -> None:
        self.id = run_id
        self.name = name
        self.prefix = prefix
        self.status = "RUNNING"
        self.started_ms = 0
        self.ended_ms = 0
        self.params = params
        self.tags: dict[str, str] = {}
        self.metrics = RunMetrics(base_step)
        self.lineage = Lineage()

    def begin_anew(self, prefix: str) -> None:
        """It is no run of an earlier attempt. None of its values was recorded yet."""
        self.prefix, self.params, self.metrics = prefix, Params({}), RunMetrics(0)


class Params:
    """The parameters of a run. `earlier`: from the spec and from earlier attempts.

    `presumed`: these are of a run that this one is presumed to be, by its name, until it logs something.
    """

    def __init__(self, earlier: dict[str, str], presumed: bool = False) -> None:
        self._logged: dict[str, str] = {}
        self._earlier = earlier
        self.presumed = presumed

    def log(self, given: list[Body]) -> dict[str, str]:
        """Record parameters, all or none. Returns those that the job's record does not have. Raises: Fault.

        As in MLflow, a parameter has one value. If the script logs another one than the spec or an earlier attempt gave, the
        first one is kept, because an error would end a training that runs elsewhere; see `contradicted`.
        """
        new: dict[str, str] = {}
        for param in given:
            name = fields.key(param)
            value = fields.text({"value": "", **param}, "value", _TEXT_MAX)[:VALUE_MAX]
            known = self._logged.get(name, new.get(name))
            if known is not None and known != value:
                raise invalid(f"Changing param values is not allowed. Param with key={name!r} was already logged with "
                              f"value={known!r}; attempted to log {value!r}")  # fmt: skip
            if known is None:
                new[name] = value
        if len(self._logged) + len(new) > _PARAMS_MAX:
            raise invalid(f"a run holds {_PARAMS_MAX} params at most: log the rest as a file (mlflow.log_dict)")
        self._logged.update(new)
        return {name: value for name, value in new.items() if name not in self._earlier}

    def refute(self, given: list[Body]) -> bool:
        """Whether these show that it is not the run that it is presumed to be. Raises: Fault."""
        if not self.presumed:
            return False
        named = ((self._earlier.get(fields.key(one)), str(one.get("value"))[:VALUE_MAX]) for one in given)
        return any(kept is not None and not _alike(kept, value) for kept, value in named)

    def contradicted(self, name: str) -> Optional[tuple[str, str]]:
        """(the value that the record keeps, the one that was logged), if these differ."""
        kept, logged = self._earlier.get(name), self._logged.get(name)
        return None if kept is None or logged is None or _alike(kept, logged) else (kept, logged)

    def shown(self) -> list[Body]:
        """In MLflow's format."""
        return [{"key": name, "value": value} for name, value in {**self._logged, **self._earlier}.items()]


def _alike(one: str, other: str) -> bool:
    """Whether two texts stand for one value: `1e-3` and `0.001`, `true` and `True`."""
    if one == other:
        return True
    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:
        folded = one.strip().lower()
        return folded in _WORDS and folded == other.strip().lower()


class Lineage:
    """The data sets and models that were a run's input, and the models that are its output, as they were logged."""

    def __init__(self) -> None:
        self._data: dict[tuple[str, str], Body] = {}  # by name and digest
        self._models: list[Body] = []
        self._outputs: list[Body] = []

    def read_data(self, name: str, digest: str, given: Body) -> None:
        """A data set was an input."""
        if len(self._data) < _LINKED_MAX:
            self._data.setdefault((name, digest), given)

    def read_models(self, given: Optional[list[Body]]) -> None:
        """Models were inputs."""
        self._models = [*self._models, *(given or [])][:_LINKED_MAX]

    def wrote_models(self, given: Optional[list[Body]]) -> None:
        """Models are outputs."""
        self._outputs = [*self._outputs, *(given or [])][:_LINKED_MAX]

    def shown(self) -> Body:
        """In MLflow's format."""
        return {
            "inputs": {"dataset_inputs": list(self._data.values()), "model_inputs": self._models},
            "outputs": {"model_outputs": self._outputs},
        }


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
    tags = [{"key": name, "value": value} for name, value in run.tags.items()]
    data = {"metrics": run.metrics.shown(), "params": run.params.shown(), "tags": tags}
    return {"info": info, "data": data, **run.lineage.shown()}
