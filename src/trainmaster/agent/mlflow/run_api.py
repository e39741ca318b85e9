"""The part of MLflow's REST API that its client uses for one run, answered from memory. No I/O, no clock.

The job's own run is the first one that a script requests. Other runs (nested ones, a second `start_run()`) are recorded in
it too, with their name as prefix: `fold-1/accuracy`.
"""

from __future__ import annotations

import hashlib
import math
import threading

from trainmaster.agent.mlflow.histories import Histories
from trainmaster.agent.mlflow.logged_models import Models, NotAnswered
from trainmaster.agent.mlflow.search import SearchError, matching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any, Callable

    from trainmaster.wire.launch import RunIdentity

    Body = dict[str, Any]
    Answer = tuple[int, Body]

_RUNS_MAX = 1000
_PARAMS_MAX, _TAGS_MAX = 2000, 1000
_VALUE_MAX = 8000  # characters of a parameter or tag, MLflow's own limit
_NAME_MAX = 250
_STEP_MAX = 2**63 - 1
_PAGE_MAX = 25_000  # points of one answer
_DATA_TAG = "mlflow.data.context"
_PARENT_TAG, _NAME_TAG = "mlflow.parentRunId", "mlflow.runName"
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # the JSON encoding of protobuf


class Fault(Exception):
    """The request is answered with an error in MLflow's format."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer: Answer = (status, {"error_code": code, "message": message})


def invalid(message: str) -> Fault:
    """The error for an invalid request."""
    return Fault(400, "INVALID_PARAMETER_VALUE", message)


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


class Runs:
    """The job's run and the runs that a script created beside it. Thread-safe; new entries are appended to `told`."""

    def __init__(self, identity: RunIdentity, base_step: int, told: deque[tuple[Any, ...]], attempt: int = 1) -> None:
        self._identity = identity
        self._attempt = attempt
        self._base_step = base_step
        self._told = told
        self._lock = threading.Lock()
        self._main = Run(identity["id"], identity["name"], "")
        self._main.earlier = dict(identity["params"])
        self._main.tags = {_NAME_TAG: identity["name"], **identity["tags"]}
        self._runs = {self._main.id: self._main}
        self._taken = False  # whether the script has requested the job's run
        self._models = Models(identity["experiment_id"])
        self._answers: dict[tuple[str, str], Callable[[Body, int], Body]] = {
            ("GET", "runs/get"): self._get,
            ("POST", "runs/create"): self._create,
            ("POST", "runs/update"): self._update,
            ("POST", "runs/search"): self._search,
            ("GET", "metrics/get-history"): self._history,
            ("POST", "runs/log-metric"): self._log_metric,
            ("POST", "runs/log-parameter"): self._log_parameter,
            ("POST", "runs/log-batch"): self._log_batch,
            ("POST", "runs/set-tag"): self._set_tag,
            ("POST", "runs/delete-tag"): self._delete_tag,
            ("POST", "runs/log-model"): lambda body, now_ms: {},
            ("POST", "runs/log-inputs"): self._log_inputs,
            ("POST", "runs/outputs"): lambda body, now_ms: {},
            ("GET", "experiments/get"): self._experiment,
            ("GET", "experiments/get-by-name"): self._experiment,
            ("POST", "experiments/create"): lambda body, now_ms: {"experiment_id": identity["experiment_id"]},
            ("POST", "experiments/search"): self._experiments,
            ("POST", "experiments/set-experiment-tag"): lambda body, now_ms: {},
        }

    def answer(self, method: str, name: str, body: Body, now_ms: int) -> Answer:
        """(status, JSON) for a request. `name`: the path after `/mlflow/`; `now_ms`: since the epoch."""
        try:
            with self._lock:
                if name == "logged-models" or name.startswith("logged-models/"):
                    return 200, self._models.answer(method, name, body, now_ms)
                found = self._answers.get((method, name))
                if found is None:
                    raise Fault(501, "NOT_IMPLEMENTED", _not_here(method, name))
                return 200, found(body, now_ms)
        except Fault as fault:
            return fault.answer
        except NotAnswered as error:
            return Fault(501, "NOT_IMPLEMENTED", str(error)).answer
        except KeyError as missing:
            return invalid(f"{name}: {missing} is missing or not known").answer

    def artifact_name(self, path: str) -> str:
        """The artifact name for an upload to `path`. `_view` and the models tell the script these paths.

        Raises: Fault for an unknown path.
        """
        parts = path.split("/")
        if len(parts) >= 4 and parts[1] == "models" and parts[3] == "artifacts" and self._models.has(parts[2]):
            return "/".join([self._models.place(parts[2]), *parts[4:]])
        if len(parts) >= 3 and parts[2] == "artifacts" and parts[1] in self._runs:
            return "/".join([*filter(None, [self._runs[parts[1]].prefix.rstrip("/")]), *parts[3:]])
        raise invalid(f"{path} is in no run of this job")

    def uploaded(self, place: str, name: str) -> None:
        """A file is complete at `place` and is to be kept as `name`."""
        self._told.append(("artifact", place, name))

    def _run(self, body: Body) -> Run:
        wanted = body.get("run_id") or body.get("run_uuid")
        run = self._runs.get(str(wanted))
        if run is None:
            words = f"no run {wanted} here: this job has the run {self._main.id} and those its script made"
            raise Fault(404, "RESOURCE_DOES_NOT_EXIST", words)
        self._taken = self._taken or run is self._main
        return run

    def _get(self, body: Body, now_ms: int) -> Body:
        return {"run": _view(self._run(body), self._identity["experiment_id"])}

    def _create(self, body: Body, now_ms: int) -> Body:
        tags = {str(tag["key"]): str(tag["value"]) for tag in body.get("tags") or []}
        name, started_ms = str(body.get("run_name") or tags.get(_NAME_TAG) or ""), _time_ms(body, "start_time", now_ms)
        if not self._taken and _PARENT_TAG not in tags:
            self._taken = True
            run = self._main
        else:
            if len(self._runs) > _RUNS_MAX:
                raise invalid(f"a job holds {_RUNS_MAX} nested runs at most: make them jobs of their own")
            run = self._further(name)
        run.started_ms = started_ms
        self._tags(run, {tag: value for tag, value in tags.items() if tag not in (_NAME_TAG, _PARENT_TAG)})
        run.tags.update({tag: value for tag, value in tags.items() if tag == _PARENT_TAG})
        return {"run": _view(run, self._identity["experiment_id"])}

    def _further(self, name: str) -> Run:
        """Create another run beside the job's own, with a unique name.

        An unnamed one of a restarted job may be any of those before, so it is a new one: `run-2` is not `run-2-2`.
        """
        number = len(self._runs)
        unnamed = f"run-{number + 1}" if self._attempt == 1 else f"run-{self._attempt}-{number + 1}"
        base = name.replace("/", "-").strip() or unnamed
        prefixes = {run.prefix for run in self._runs.values()}
        prefix, again = f"{base}/", 1
        while prefix in prefixes:
            again += 1
            prefix = f"{base}-{again}/"
        run = Run(hashlib.sha256(f"{self._main.id}/{number}".encode()).hexdigest()[:32], name or base, prefix)
        run.tags[_NAME_TAG] = run.name
        run.earlier = {key[len(prefix) :]: value for key, value in self._main.earlier.items() if key.startswith(prefix)}
        self._runs[run.id] = run
        return run

    def _update(self, body: Body, now_ms: int) -> Body:
        """The run's status in MLflow does not matter for the job: the job ends when its processes end."""
        run = self._run(body)
        run.status = str(body.get("status") or run.status)
        if run.status != "RUNNING":
            run.ended_ms = _time_ms(body, "end_time", now_ms)
        if body.get("run_name") and body["run_name"] != run.name:
            run.name = str(body["run_name"])
            self._tags(run, {_NAME_TAG: run.name})
        return {"run_info": _view(run, self._identity["experiment_id"])["info"]}

    def _search(self, body: Body, now_ms: int) -> Body:
        """The job's runs that the filter selects, in the order that is asked for."""
        own = self._identity["experiment_id"]
        other = own not in (body.get("experiment_ids") or [own]) or body.get("run_view_type") == "DELETED_ONLY"
        shown = [] if other else [_view(run, own) for run in self._runs.values()]
        try:
            found = matching(shown, str(body.get("filter") or ""), [str(one) for one in body.get("order_by") or []])
        except SearchError as error:
            raise Fault(501, "NOT_IMPLEMENTED", f"this search is not answered within a job: {error}") from error
        begin, most = _whole(body, "page_token", 0), _whole(body, "max_results", _RUNS_MAX) or _RUNS_MAX
        more = {"next_page_token": str(begin + most)} if len(found) > begin + most else {}
        return {"runs": found[begin : begin + most], **more}

    def _history(self, body: Body, now_ms: int) -> Body:
        """The values that this attempt has logged, in pages."""
        run, name = self._run(body), _text(body, "metric_key", _NAME_MAX)
        begin, most = _whole(body, "page_token", 0), min(_whole(body, "max_results", _PAGE_MAX) or _PAGE_MAX, _PAGE_MAX)
        points = run.histories.points(name, begin, most + 1)
        if points is None:
            words = f"{name} has more values than are kept within a job: after its end, tm metrics has them all"
            raise Fault(501, "NOT_IMPLEMENTED", words)
        page = [
            {"key": name, "step": step, "timestamp": time_ms, "value": _out(value)} for step, time_ms, value in points[:most]
        ]
        return {"metrics": page, **({"next_page_token": str(begin + most)} if len(points) > most else {})}

    def _log_metric(self, body: Body, now_ms: int) -> Body:
        self._metrics(self._run(body), [body])
        return {}

    def _log_parameter(self, body: Body, now_ms: int) -> Body:
        self._params(self._run(body), [body])
        return {}

    def _log_batch(self, body: Body, now_ms: int) -> Body:
        run = self._run(body)
        metrics = body.get("metrics") or []
        for metric in metrics:  # validate all before anything is recorded
            _metric(metric)
            _time_ms(metric, "timestamp", 0)
        self._params(run, body.get("params") or [])
        self._tags(run, {str(tag["key"]): str(tag["value"]) for tag in body.get("tags") or []})
        if metrics:
            self._metrics(run, metrics)
        return {}

    def _log_inputs(self, body: Body, now_ms: int) -> Body:
        """Record data sets as tags."""
        run, tags = self._run(body), {}
        for given in body.get("datasets") or []:
            data = given.get("dataset") or {}
            contexts = [tag["value"] for tag in given.get("tags") or [] if tag.get("key") == _DATA_TAG]
            tags[f"dataset.{contexts[0] if contexts else 'data'}"] = f"{data.get('name', '')} {data.get('digest', '')}".strip()
        self._tags(run, tags)
        return {}

    def _set_tag(self, body: Body, now_ms: int) -> Body:
        self._tags(self._run(body), {str(body["key"]): str(body["value"])})
        return {}

    def _delete_tag(self, body: Body, now_ms: int) -> Body:
        run, name = self._run(body), str(body["key"])
        if run.tags.pop(name, None) is None:
            raise Fault(404, "RESOURCE_DOES_NOT_EXIST", f"no tag {name!r} in run {run.id}")
        self._told.append(("tag", run.prefix + name, None))
        return {}

    def _experiment(self, body: Body, now_ms: int) -> Body:
        """Every experiment that the script names is the job's experiment."""
        number = self._identity["experiment_id"]
        name = str(body.get("experiment_name") or self._identity["experiment"])
        return {"experiment": {
            "experiment_id": number, "name": name, "lifecycle_stage": "active",
            "artifact_location": f"mlflow-artifacts:/{number}",
        }}  # fmt: skip

    def _experiments(self, body: Body, now_ms: int) -> Body:
        return {"experiments": [self._experiment(body, now_ms)["experiment"]]}

    def _metrics(self, run: Run, given: list[Body]) -> None:
        steps: dict[int, dict[str, float]] = {}
        named = set()
        for metric in given:
            name, value, step = _metric(metric)
            time_ms = _time_ms(metric, "timestamp", 0)
            if time_ms and (step, time_ms, value) == run.logged.get((name, step != 0)):
                continue  # autolog logs it again for the model; MLflow stores such a point once
            run.logged[name, step != 0] = (step, time_ms, value)
            if step != 0:
                named.add(step)
            if step == 0:  # perhaps no step was given: number the values of this metric, from the resumed step on
                said = run.stepless.get(name, 0)
                run.stepless[name] = said + 1
                step = said + (max(self._base_step, run.step) if said == 0 and self._base_step else self._base_step)
            elif step > run.step:
                run.step = step
            steps.setdefault(step, {})[run.prefix + name] = value
            before, point = run.latest.get(name), (step, time_ms, value)
            run.histories.add(name, point)
            if before is None or step >= before[0]:
                run.latest[name] = point
        for step, values in steps.items():
            self._told.append(("point", step, values, run is self._main, step in named))

    def _params(self, run: Run, given: list[Body]) -> None:
        """As in MLflow, a parameter has one value. If a resumed script logs another value, the first one is kept."""
        new: dict[str, str] = {}
        for param in given:
            name, value = _text(param, "key", _NAME_MAX), _text(param, "value", _VALUE_MAX)
            known = run.params.get(name, new.get(name))
            if known is not None and known != value:
                raise invalid(f"Changing param values is not allowed. Param with key={name!r} was already logged with "
                              f"value={known!r}; attempted to log {value!r}")  # fmt: skip
            if known is None:
                new[name] = value
        if len(run.params) + len(new) > _PARAMS_MAX:
            raise invalid(f"a run holds {_PARAMS_MAX} params at most: log the rest as a file (mlflow.log_dict)")
        run.params.update(new)
        self._told.extend(("param", run.prefix + name, value) for name, value in new.items() if name not in run.earlier)

    def _tags(self, run: Run, tags: dict[str, str]) -> None:
        if run is not self._main:
            tags = {name: value for name, value in tags.items() if not name.startswith("mlflow.")}  # these describe the job
        for name, value in tags.items():
            if len(name) > _NAME_MAX or len(value) > _VALUE_MAX:
                raise invalid(f"tag {name[:40]!r} is longer than {_NAME_MAX} characters, or its value than {_VALUE_MAX}")
        if len({*run.tags, *tags}) > _TAGS_MAX:
            raise invalid(f"a run holds {_TAGS_MAX} tags at most: log the rest as a file (mlflow.log_dict)")
        changed = {name: value for name, value in tags.items() if run.tags.get(name) != value}
        run.tags.update(changed)
        self._told.extend(("tag", run.prefix + name, value) for name, value in changed.items())


def _view(run: Run, experiment: str) -> Body:
    info = {
        "run_id": run.id, "run_uuid": run.id, "run_name": run.name, "experiment_id": experiment, "user_id": "",
        "status": run.status, "start_time": run.started_ms, "lifecycle_stage": "active",
        "artifact_uri": f"mlflow-artifacts:/{experiment}/{run.id}/artifacts",
    }  # fmt: skip
    if run.ended_ms:
        info["end_time"] = run.ended_ms
    metrics = [
        {"key": name, "value": _out(value), "timestamp": time_ms, "step": step}
        for name, (step, time_ms, value) in run.latest.items()
    ]
    params = [{"key": name, "value": value} for name, value in {**run.params, **run.earlier}.items()]
    tags = [{"key": name, "value": value} for name, value in run.tags.items()]
    return {"info": info, "data": {"metrics": metrics, "params": params, "tags": tags}, "inputs": {}, "outputs": {}}


def _metric(body: Body) -> tuple[str, float, int]:
    """(name, value, step). Raises: Fault."""
    name, value, step = _text(body, "key", _NAME_MAX), body.get("value"), body.get("step", 0)
    if isinstance(value, str):
        value = _WORDS.get(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise invalid(f"metric {name!r}: its value is not a number")
    try:
        number = int(step or 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"metric {name!r}: step {step!r} is not an integer") from error
    if abs(number) > _STEP_MAX:
        raise invalid(f"metric {name!r}: step {step!r} is beyond 64 bits")
    try:
        return name, float(value), number
    except OverflowError as error:
        raise invalid(f"metric {name!r}: its value is too large a number") from error


def _time_ms(body: Body, field: str, default: int) -> int:
    try:
        found = int(body.get(field) or default)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"{field} must be in whole milliseconds") from error
    if abs(found) > _STEP_MAX:
        raise invalid(f"{field} is beyond 64 bits")
    return found


def _whole(body: Body, field: str, default: int) -> int:
    try:
        return max(0, int(body.get(field) or default))
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"{field} must be a whole number") from error


def _text(body: Body, field: str, longest: int) -> str:
    value = body.get(field)
    if not isinstance(value, str) or len(value) > longest or (field == "key" and not value):
        raise invalid(f"{field} must be a text of at most {longest} characters")
    return value


def _out(value: float) -> Any:
    return value if math.isfinite(value) else next(word for word, number in _WORDS.items() if str(number) == str(value))


def _not_here(method: str, name: str) -> str:
    if name.startswith(("registered-models", "model-versions")):
        return ("a job's own run has no model registry: name one with MLFLOW_REGISTRY_URI, or register the model from the "
                "tracker after the job has ended")  # fmt: skip
    return (f"{method} {name} is not answered within a job: Trainmaster records this run itself. Set MLFLOW_TRACKING_URI "
            "in the spec's environment.variables to write to a server of your own instead")  # fmt: skip
