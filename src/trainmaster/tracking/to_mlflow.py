"""MLflow as a tracker: a client of its REST API (`mlflow-skinny`), never of its database.

MLflow keeps every row, but merges equal ones. So the mirror sends each step once and, after a crash, the identical rows. A run
is found again by its tag, since MLflow chooses the ids of runs itself.
"""

import hashlib
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from trainmaster.ports.tracker import (
    Begun,
    Run,
    RunGoneError,
    RunPoint,
    RunRefusedError,
    RunStatus,
    RunTroubledError,
    TrackerUnreachableError,
)
from trainmaster.wire.runs import TAG_RUN

_BATCH = 1000  # maximum metrics per `runs/log-batch`
_PARAMS, _TAGS = 100, 100  # maximum of these per call
_VALUE_MAX, _TAG_MAX, _NAME_MAX = 6000, 5000, 250
_OUR_TAGS = "trainmaster."  # they begin so
_TAG_CUT = "trainmaster.cut"  # params and tags that are longer than what MLflow takes
_TIMEOUT_S = 20
_ODD = re.compile(r"[^\w\-. /:]")
_MISREAD = re.compile(r"[#?]|%[0-9A-Fa-f]{2}")  # in a file's name: MLflow's client puts it into a URL as it is
_FIVE_HUNDRED = "too many 500 error responses"
_FILE_REFUSED = (400, 404, 405, 411, 413, 414, 415, 422)  # statuses that concern one file, not the server or the password
_REFUSALS = ("INVALID_PARAMETER_VALUE", "INVALID_STATE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(_TIMEOUT_S))
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")  # the mirror retries itself, and reports the reason meanwhile
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # the mirror's last lines say why it ended

from mlflow import MlflowClient  # noqa: E402  its settings are read on import
from mlflow.entities import Metric, Param, RunTag  # noqa: E402
from mlflow.entities import Run as MlflowRun  # noqa: E402
from mlflow.exceptions import MlflowException, RestException  # noqa: E402
from requests import HTTPError  # type: ignore[import-untyped]  # noqa: E402


class MlflowTracker:
    """`trainmaster.ports.tracker.Tracker` for the MLflow server at `uri`; `shown` is its address for people."""

    def __init__(self, uri: str, shown: str | None = None) -> None:
        self._client = MlflowClient(tracking_uri=uri)
        self._shown = without_credentials(shown or uri)
        self._experiments: dict[str, str] = {}

    def begin(self, run: Run) -> Begun:
        """See the port. If several runs have this id, because someone copied the tag, the oldest is used."""
        with translated():
            try:
                return self._found(run)
            except RunGoneError:  # the server was wiped, the experiment with it
                self._experiments.clear()
                return self._found(run)

    def _found(self, run: Run) -> Begun:
        with translated():
            experiment = self._experiment(run.experiment)
            query = f"tags.`{TAG_RUN}` = '{run.id}'"
            found = self._client.search_runs([experiment], query, order_by=["attributes.start_time ASC"], max_results=1)
            if found:
                return Begun(found[0].info.run_id, self._url(found[0]), self._logged(found[0]))
            tags = {TAG_RUN: run.id}
            made = self._client.create_run(experiment, int(run.created_s * 1000), tags, run_name=run.job)
            return Begun(made.info.run_id, self._url(made))

    def tell(self, ref: str, run: Run, before: Run | None) -> None:
        """See the port. A param keeps its first value, as in MLflow."""
        with translated():
            known = self._client.get_run(ref).data if before is None else None
            params = known.params if known is not None else _cleaned(before.params) if before is not None else {}
            old_tags = known.tags if known is not None else _tags(before) if before is not None else {}
            new_params = [Param(k, v[:_VALUE_MAX]) for k, v in _cleaned(run.params).items() if k not in params]
            new_tags = [RunTag(k, v[:_TAG_MAX]) for k, v in _tags(run).items() if old_tags.get(k) != v]
            self._log_texts(ref, new_params, new_tags)
            for name in sorted(set(old_tags) - set(_tags(run))):
                if before is not None or name.startswith(_OUR_TAGS):
                    self._delete_tag(ref, name)
            if before is None or (before.status, before.ended_s) != (run.status, run.ended_s):
                self._set_status(ref, run)

    def log(self, ref: str, points: Sequence[RunPoint], mark: str) -> str:
        """See the port. MLflow merges equal rows, so a repetition needs no mark."""
        with translated():
            metrics = [Metric(_name(p.name), p.value, int(p.time_s * 1000), p.step) for p in points]
            for start in range(0, len(metrics), _BATCH):
                self._client.log_batch(ref, metrics=metrics[start : start + _BATCH])
        return mark

    def named(self, metric: str) -> str:
        """See the port."""
        return _name(metric)

    def keep(self, ref: str, path: str, source: Path) -> None:
        """See the port."""
        plain = posixpath.normpath(path).lstrip("/")
        if plain.startswith("..") or not plain.isprintable():
            raise RunRefusedError(f"MLflow does not take an artifact named {path!r}")
        with translated():
            if _MISREAD.search(plain) and not self._stored_directly(ref):
                raise RunRefusedError(f"MLflow's client would send {path!r} under another name: it has #, ? or %")
            try:
                self._client.log_artifact(ref, str(source), posixpath.dirname(plain) or None)
            except HTTPError as error:
                if error.response is not None and error.response.status_code in _FILE_REFUSED:
                    raise RunRefusedError(f"MLflow does not take the file: it answers {error.response.status_code}") from error
                raise

    def _stored_directly(self, ref: str) -> bool:
        """Whether MLflow's client writes the run's files itself, and does not send them to the server."""
        return urlsplit(self._client.get_run(ref).info.artifact_uri).scheme not in ("mlflow-artifacts", "http", "https")

    def settle(self, ref: str, run: Run, mark: str) -> None:
        """See the port. The status is set again if someone has changed the run meanwhile."""
        with translated():
            if self._client.get_run(ref).info.status != run.status.value:
                self._set_status(ref, run)

    def holds(self, ref: str) -> bool:
        """See the port."""
        with translated():
            try:
                return bool(self._client.get_run(ref).info.run_id)
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    return False
                raise

    def close(self) -> None:
        """See the port."""

    def _log_texts(self, ref: str, params: list[Param], tags: list[RunTag]) -> None:
        """Log params and tags. A param that someone else has logged with another value keeps that one."""
        try:
            self._log_all(ref, params, tags)
        except MlflowException as error:
            known = self._client.get_run(ref).data.params if error.error_code == "INVALID_PARAMETER_VALUE" else {}
            left = [param for param in params if param.key not in known]
            if len(left) == len(params):
                raise
            self._log_all(ref, left, tags)

    def _log_all(self, ref: str, params: list[Param], tags: list[RunTag]) -> None:
        for start in range(0, max(len(params), len(tags)), _PARAMS):
            some_tags = tags[start : start + _TAGS]
            self._client.log_batch(ref, params=params[start : start + _PARAMS], tags=some_tags)

    def _delete_tag(self, ref: str, name: str) -> None:
        """Remove a tag that the job no longer has. Someone may have removed it in MLflow."""
        try:
            self._client.delete_tag(ref, name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST" or name in self._client.get_run(ref).data.tags:
                raise

    def _set_status(self, ref: str, run: Run) -> None:
        if run.status.ended:
            ended_ms = None if run.ended_s is None else int(run.ended_s * 1000)
            self._client.set_terminated(ref, run.status.value, ended_ms)
        elif run.status is not RunStatus.SCHEDULED or run.started_s is not None:
            self._client.update_run(ref, run.status.value)
        else:
            self._client.update_run(ref, RunStatus.SCHEDULED.value)

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            found = self._client.get_experiment_by_name(name)
            if found is None:
                self._experiments[name] = self._client.create_experiment(name)
            else:
                if found.lifecycle_stage == "deleted":  # by a person: it stays so
                    raise RunRefusedError(f"the experiment {name} was deleted in MLflow", "restore it there, or name another")
                self._experiments[name] = found.experiment_id
        return self._experiments[name]

    def _logged(self, found: MlflowRun) -> dict[str, Counter[int]]:
        """What the run contains. Linear in its size; used only for a run without stored state."""
        history = {key: self._client.get_metric_history(found.info.run_id, key) for key in found.data.metrics}
        return {key: Counter(metric.step for metric in metrics) for key, metrics in history.items()}

    def _url(self, run: MlflowRun) -> str:
        if not self._shown.startswith("http"):
            return f"{self._shown}: run {run.info.run_id}"
        return f"{self._shown.rstrip('/')}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"


@contextmanager
def translated() -> Iterator[None]:
    """Translate MLflow's errors. Raises: TrackerUnreachableError, RunGoneError, RunRefusedError, RunTroubledError."""
    try:
        yield
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            raise RunGoneError(_first_line(error)) from error
        if error.error_code in _REFUSALS:
            raise RunRefusedError(_first_line(error)) from error
        if _failed(error):
            raise RunTroubledError(_first_line(error)) from error
        raise TrackerUnreachableError(_first_line(error)) from error
    except OSError as error:  # raised by `requests` where MLflow does not wrap it
        raise TrackerUnreachableError(str(error)) from error


def without_credentials(uri: str) -> str:
    """A URI without user and password, for display."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _failed(error: MlflowException) -> bool:
    """Whether the server answered 500: it is available, but failed on this request."""
    if isinstance(error, RestException):
        return bool(error.error_code == "INTERNAL_ERROR")
    return _FIVE_HUNDRED in str(error)  # the message of `requests`, which treats such a response as retryable


def _first_line(error: MlflowException) -> str:
    """A one-line description of the error, without credentials."""
    text = re.sub(r"//[^/\s@]*@", "//", str(error)).strip() or type(error).__name__
    asked = re.search(r"https?://[^/\s]+", text)
    where = asked[0] if asked else "the server"
    if "NewConnectionError" in text or "NameResolutionError" in text:
        return f"{where} cannot be reached"
    if _FIVE_HUNDRED in text:
        return f"{where} answers 500, an error of its own"
    if "timed out" in text:
        return f"{where} does not answer within {_TIMEOUT_S} s"
    return text.splitlines()[0][:200]


def _tags(run: Run) -> dict[str, str]:
    """The tags, and one that names what MLflow cannot take whole."""
    long = {name: value for name, value in run.params.items() if len(value) > _VALUE_MAX}
    long |= {name: value for name, value in run.tags.items() if len(value) > _TAG_MAX}
    cut = {_TAG_CUT: ", ".join(f"{name} ({len(value):,} characters)" for name, value in long.items())} if long else {}
    return {**_cleaned(run.tags), **cut}


def _cleaned(values: Mapping[str, str]) -> dict[str, str]:
    return {_name(name): value for name, value in values.items()}


def _name(name: str) -> str:
    """A name that MLflow accepts. A name that must be changed gets a short digest, so that names stay distinct."""
    plain = posixpath.normpath(_ODD.sub("_", name)).strip("/. ")[:_NAME_MAX] if name else ""
    if plain and plain == name:
        return name
    digits = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:6]
    return f"{plain[: _NAME_MAX - 7]}-{digits}" if plain else digits
