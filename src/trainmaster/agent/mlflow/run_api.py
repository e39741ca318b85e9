"""The part of MLflow's REST API that its client uses for one run, answered from memory. No I/O, no clock.

The job's own run is the first one that a script requests. Other runs (nested ones, a second `start_run()`) are recorded in
it too, with their name as prefix: `fold-1/accuracy`.
"""

from __future__ import annotations

import hashlib
import threading

from trainmaster.agent.mlflow import fields
from trainmaster.agent.mlflow.experiment import Experiment
from trainmaster.agent.mlflow.fields import NAME_MAX, VALUE_MAX, Fault, invalid
from trainmaster.agent.mlflow.logged_models import Models, NotAnswered, UnknownModel
from trainmaster.agent.mlflow.prefixes import Prefixes
from trainmaster.agent.mlflow.run import Params, Run, view
from trainmaster.agent.mlflow.run_metrics import shown_point
from trainmaster.agent.mlflow.search import RUN_ATTRIBUTES, SearchError, matching
from trainmaster.wire.names import FILES, MODEL, OWN, RUN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any, Callable, Iterable

    from trainmaster.agent.mlflow.fields import Answer, Body
    from trainmaster.wire.launch import RunIdentity

_RUNS_MAX = 1000  # of one attempt
_TAGS_MAX = 1000
_PAGE_MAX = 25_000  # points of one answer
_DATA_TAG = "mlflow.data.context"
_PARENT_TAG, _NAME_TAG = "mlflow.parentRunId", "mlflow.runName"


class Runs:
    """The job's run and the runs that a script created beside it. Thread-safe; new entries are appended to `told`."""

    def __init__(self, identity: RunIdentity, base_step: int, told: deque[tuple[Any, ...]]) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._experiment = Experiment(identity["experiment_id"], identity["experiment"])
        self._base_step = base_step
        self._prefixes = Prefixes(identity)
        self._main = Run(identity["id"], identity["name"], "", Params(self._prefixes.of_main("params")), base_step)
        self._main.tags = {_NAME_TAG: identity["name"], **self._prefixes.of_main("tags")}
        self._runs = {self._main.id: self._main}
        self._taken = False  # whether the script has requested the job's run
        self._models = Models(identity["experiment_id"], self._prefixes.places())
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
            ("POST", "runs/outputs"): self._log_outputs,
            ("GET", "experiments/get"): self._experiment.get,
            ("GET", "experiments/get-by-name"): self._experiment.get_by_name,
            ("POST", "experiments/create"): self._experiment.create,
            ("POST", "experiments/search"): self._experiment.search,
            ("POST", "experiments/set-experiment-tag"): self._set_experiment_tag,
        }

    def answer(self, method: str, name: str, body: Body, now_ms: int) -> Answer:
        """(status, JSON) for a request. `name`: the path after `/mlflow/`; `now_ms`: since the epoch."""
        try:
            with self._lock:
                self._main.started_ms = self._main.started_ms or now_ms
                if name == "logged-models" or name.startswith("logged-models/"):
                    return 200, self._logged_models(method, name, body, now_ms)
                found = self._answers.get((method, name))
                if found is None:
                    raise Fault(501, "NOT_IMPLEMENTED", _not_here(method, name))
                return 200, found(body, now_ms)
        except Fault as fault:
            return fault.answer
        except NotAnswered as error:
            return Fault(501, "NOT_IMPLEMENTED", f"{error}: {_not_here(method, name)}").answer
        except UnknownModel as error:
            return Fault(404, "RESOURCE_DOES_NOT_EXIST", str(error)).answer
        except KeyError as missing:
            return invalid(f"{name}: {missing} is missing or not known").answer

    def artifact_name(self, path: str) -> str:
        """The artifact name for an upload to `path`. `_view` and the models tell the script these paths.

        Raises: Fault for an unknown path.
        """
        parts = [part for part in path.split("/") if part != "."]
        if len(parts) >= 4 and parts[1] == "models" and parts[3] == "artifacts" and self._models.has(parts[2]):
            return "/".join([self._models.place(parts[2]), *parts[4:]])
        if len(parts) >= 3 and parts[2] == "artifacts" and parts[1] in self._runs:
            self._runs[parts[1]].params.presumed = False
            return "/".join([*filter(None, [self._runs[parts[1]].prefix.rstrip("/")]), *parts[3:]])
        raise invalid(f"{path} is in no run of this job")

    def uploaded(self, place: str, path: str) -> None:
        """A file that was uploaded to `path` is complete at `place`. Raises: Fault, as `artifact_name`."""
        name = self.artifact_name(path)
        with self._lock:
            self._models.taken.add(name.partition("/")[0])
            if self._main.id in path.split("/")[:2]:
                self._told.extend(("prefix", first, FILES) for first in self._prefixes.files(name))
                self._told.extend([("mixed", name)] if self._prefixes.mixes(name) else [])
        self._told.append(("artifact", place, name))

    def _logged_models(self, method: str, name: str, body: Body, now_ms: int) -> Body:
        """What concerns models. The files of a new one are below its run, in a directory of their own."""
        source = self._runs.get(str(body.get("source_run_id")))
        if source is not None:
            source.params.presumed = False
        answer = self._models.answer(method, name, body, now_ms, source.prefix if source is not None else "")
        if name == "logged-models":
            place = self._models.place(answer["model"]["info"]["model_id"])
            self._prefixes.model(place)
            self._told.append(("prefix", place, MODEL))
        return answer

    def _run(self, body: Body) -> Run:
        wanted = body.get("run_id") or body.get("run_uuid")
        run = self._runs.get(str(wanted))
        if run is None:
            words = f"no run {wanted} here: this job has the run {self._main.id} and those its script made"
            raise Fault(404, "RESOURCE_DOES_NOT_EXIST", words)
        self._taken = self._taken or run is self._main
        return run

    def _get(self, body: Body, now_ms: int) -> Body:
        return {"run": view(self._run(body), self._experiment.id)}

    def _create(self, body: Body, now_ms: int) -> Body:
        tags = fields.tags(body)
        name, started_ms = str(body.get("run_name") or tags.get(_NAME_TAG) or ""), fields.time_ms(body, "start_time", now_ms)
        if not self._taken and _PARENT_TAG not in tags:
            self._taken = True
            run = self._main
        else:
            if len(self._runs) > _RUNS_MAX:
                raise invalid(f"a job holds {_RUNS_MAX} nested runs at most: make them jobs of their own")
            run = self._further(name, tags)
        run.started_ms = started_ms
        self._tags(run, {tag: value for tag, value in tags.items() if tag not in (_NAME_TAG, _PARENT_TAG)})
        run.tags.update({tag: value for tag, value in tags.items() if tag == _PARENT_TAG})
        return {"run": view(run, self._experiment.id)}

    def _further(self, name: str, tags: dict[str, str]) -> Run:
        """A run beside the job's own. One with the name of an earlier attempt's run continues it, unless its params differ."""
        prefix, presumed = self._prefixes.begin(name, tags, len(self._runs) + 1)
        run_id = hashlib.sha256(f"{self._main.id}/{prefix}".encode()).hexdigest()[:32]
        params = Params(self._prefixes.below(prefix, "params"), True) if presumed else Params({})
        run = Run(run_id, name or prefix, f"{prefix}/", params, self._base_step if presumed else 0)
        run.tags = {**(self._prefixes.below(prefix, "tags") if presumed else {}), _NAME_TAG: run.name}
        self._runs[run.id] = run
        self._models.taken.add(prefix)
        if not presumed:
            self._told.append(("prefix", prefix, RUN))
        return run

    def _part(self, run: Run) -> None:
        """It has other params than the run that it was presumed to be, so it is another one."""
        prefix = self._prefixes.part(run.prefix.rstrip("/"))
        run.begin_anew(f"{prefix}/")
        self._told.append(("prefix", prefix, RUN))
        own = ((name, value) for name, value in run.tags.items() if not name.startswith("mlflow."))
        self._told.extend(("tag", run.prefix + name, value) for name, value in own)

    def _update(self, body: Body, now_ms: int) -> Body:
        """The run's status in MLflow does not matter for the job: the job ends when its processes end."""
        run = self._run(body)
        run.status = str(body.get("status") or run.status)
        if run.status != "RUNNING":
            run.ended_ms = fields.time_ms(body, "end_time", now_ms)
        if body.get("run_name") and body["run_name"] != run.name:
            run.name = str(body["run_name"])
            self._tags(run, {_NAME_TAG: run.name})
        return {"run_info": view(run, self._experiment.id)["info"]}

    def _search(self, body: Body, now_ms: int) -> Body:
        """The job's runs that the filter selects, in the order that is asked for."""
        own = self._experiment.id
        other = own not in (body.get("experiment_ids") or [own]) or body.get("run_view_type") == "DELETED_ONLY"
        shown = [] if other else [view(run, own) for run in self._runs.values()]
        shown.sort(key=lambda run: (-run["info"]["start_time"], run["info"]["run_id"]))  # the newest first
        try:
            orders = [str(one) for one in body.get("order_by") or []]
            found = matching(shown, str(body.get("filter") or ""), orders, RUN_ATTRIBUTES)
        except SearchError as error:
            raise Fault(501, "NOT_IMPLEMENTED", f"this search is not answered within a job: {error}") from error
        begin, most = fields.whole(body, "page_token", 0), fields.whole(body, "max_results", _RUNS_MAX) or _RUNS_MAX
        more = {"next_page_token": str(begin + most)} if len(found) > begin + most else {}
        return {"runs": found[begin : begin + most], **more}

    def _history(self, body: Body, now_ms: int) -> Body:
        """The values that this attempt has logged, in pages."""
        run, name = self._run(body), fields.text(body, "metric_key", NAME_MAX)
        begin, most = fields.whole(body, "page_token", 0), fields.whole(body, "max_results", _PAGE_MAX) or _PAGE_MAX
        most = min(most, _PAGE_MAX)
        points = run.metrics.histories.points(name, begin, most + 1)
        if points is None:
            words = f"{name} has more values than are kept within a job: after its end, tm metrics has them all"
            raise Fault(501, "NOT_IMPLEMENTED", words)
        page = [shown_point(name, point) for point in points[:most]]
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
            fields.metric(metric)
        metrics = sorted(metrics, key=lambda one: fields.time_ms(one, "timestamp", 0))  # the latest value of a step counts
        tags = fields.tags(body)
        self._params(run, body.get("params") or [])
        self._tags(run, tags)
        if metrics:
            self._metrics(run, metrics)
        return {}

    def _log_inputs(self, body: Body, now_ms: int) -> Body:
        """Record data sets as tags, one for each context: `dataset.training: mnist 1a2b, extra 3c4d`."""
        run, tags = self._run(body), dict[str, str]()
        for given in body.get("datasets") or []:
            data = given.get("dataset") or {}
            name, digest = str(data.get("name") or ""), str(data.get("digest") or "")
            run.lineage.read_data(name, digest, given)
            contexts = [tag["value"] for tag in given.get("tags") or [] if tag.get("key") == _DATA_TAG]
            tag, shown = f"dataset.{contexts[0] if contexts else 'data'}", f"{name} {digest}".strip()
            known = [one for one in (tags.get(tag) or run.tags.get(tag) or "").split(", ") if one]
            tags[tag] = ", ".join(known if shown in known else [*known, shown])
        run.lineage.read_models(body.get("models"))
        self._tags(run, tags)
        return {}

    def _log_outputs(self, body: Body, now_ms: int) -> Body:
        self._run(body).lineage.wrote_models(body.get("models"))
        return {}

    def _set_tag(self, body: Body, now_ms: int) -> Body:
        self._tags(self._run(body), fields.tags({"tags": [body]}))
        return {}

    def _delete_tag(self, body: Body, now_ms: int) -> Body:
        run, name = self._run(body), str(body["key"])
        if run.tags.pop(name, None) is None:
            raise Fault(404, "RESOURCE_DOES_NOT_EXIST", f"no tag {name!r} in run {run.id}")
        self._told.append(("tag", run.prefix + name, None))
        return {}

    def _set_experiment_tag(self, body: Body, now_ms: int) -> Body:
        """Recorded with the job: the experiment itself is not the job's to change."""
        name, value = fields.text(body, "key", NAME_MAX), str(body.get("value") or "")
        self._tags(self._main, {f"experiment.{name}": value})
        self._experiment.set_tag(name, value)
        return {}

    def _use(self, run: Run, names: Iterable[str]) -> None:
        """A run logs these names, which are no longer free for further runs."""
        if run is self._main:
            names = list(names)
            self._told.extend(("prefix", name, OWN) for name in sorted(self._prefixes.own(names)))
            self._told.extend(("clash", name) for name in self._prefixes.clashes(names))

    def _metrics(self, run: Run, given: list[Body]) -> None:
        run.params.presumed = False
        steps: dict[int, dict[str, float]] = {}
        named = set()
        for metric in given:
            name, value, step = fields.metric(metric)
            logged = step, fields.time_ms(metric, "timestamp", 0), value
            point = run.metrics.log(name, logged)
            if metric.get("model_id"):
                self._models.measured(str(metric["model_id"]), {**shown_point(name, point or logged), "run_id": run.id})
            if point is None:
                continue
            if step != 0:
                named.add(step)
            values = steps.setdefault(point[0], {})
            if run.prefix + name in values:  # one that this call has told of the step, too: that it is replaced is told
                before = {run.prefix + name: values[run.prefix + name]}
                self._told.append(("point", point[0], before, run is self._main, point[0] in named))
            values[run.prefix + name] = value
        self._use(run, [str(metric["key"]) for metric in given])
        for step, values in steps.items():
            self._told.append(("point", step, values, run is self._main, step in named))

    def _params(self, run: Run, given: list[Body]) -> None:
        if run.params.refute(given):
            self._part(run)
        run.params.presumed = run.params.presumed and not given
        self._told.extend(("param", run.prefix + name, value) for name, value in run.params.log(given).items())
        self._use(run, map(fields.key, given))
        for name in map(fields.key, given):
            differing = run.params.contradicted(name)
            if differing is not None:
                self._told.append(("kept", run.prefix + name, differing))

    def _tags(self, run: Run, tags: dict[str, str]) -> None:
        """Set tags. Those of MLflow itself describe the job's own run alone, and of another one only the script sees them."""
        tags = {name: value[:VALUE_MAX] for name, value in tags.items()}  # as MLflow does
        for name in tags:
            if len(name) > NAME_MAX:
                raise invalid(f"the name of tag {name[:40]!r} is longer than {NAME_MAX} characters")
        if len({*run.tags, *tags}) > _TAGS_MAX:
            raise invalid(f"a run holds {_TAGS_MAX} tags at most: log the rest as a file (mlflow.log_dict)")
        changed = {name: value for name, value in tags.items() if run.tags.get(name) != value}
        run.tags.update(changed)
        run.name = run.tags.get(_NAME_TAG) or run.name
        told = [name for name in changed if run is self._main or not name.startswith("mlflow.")]
        self._use(run, told)
        run.params.presumed = run.params.presumed and not told
        self._told.extend(("tag", run.prefix + name, changed[name]) for name in told)


def _not_here(method: str, name: str) -> str:
    if name.startswith(("registered-models", "model-versions")):
        return ("a job's own run has no model registry: name one with MLFLOW_REGISTRY_URI, or register the model from the "
                "tracker after the job has ended")  # fmt: skip
    return (f"{method} {name} is not answered within a job: Trainmaster records this run itself. Set MLFLOW_TRACKING_URI "
            "in the spec's environment.variables to write to a server of your own instead")  # fmt: skip
