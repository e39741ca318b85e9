"""MLflow's logged models, as `log_model` and autolog use them: each is a directory among the job's artifacts."""

from __future__ import annotations

import hashlib
from urllib.parse import unquote

from trainmaster.agent.mlflow.search import MODEL_ATTRIBUTES, matching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Body = dict[str, Any]

_PAGE = 100  # models of one answer, if it is not said
_STATUS = {1: "LOGGED_MODEL_PENDING", 2: "LOGGED_MODEL_READY", 3: "LOGGED_MODEL_UPLOAD_FAILED"}


class NotAnswered(Exception):
    """The call has a part that would be ignored."""


class UnknownModel(Exception):
    """There is no such model."""


class Models:
    """The models of one attempt. The caller holds a lock around each call.

    `taken`: what the names of other artifacts begin with, those of earlier attempts' models among them.
    """

    def __init__(self, experiment_id: str, taken: set[str]) -> None:
        self._experiment_id = experiment_id
        self.taken = taken
        self._models: dict[str, Body] = {}
        self._places: dict[str, str] = {}

    def has(self, model_id: str) -> bool:
        """Whether the model exists."""
        return model_id in self._places

    def place(self, model_id: str) -> str:
        """The directory of a model's files among the job's artifacts. Raises: KeyError."""
        return self._places[model_id]

    def measured(self, model_id: str, metric: Body) -> None:
        """A metric was logged for a model. Of each name, the last value is kept."""
        if model_id in self._models:
            data = self._models[model_id]["data"]
            data["metrics"] = [*(one for one in data["metrics"] if one["key"] != metric["key"]), metric]

    def answer(self, method: str, name: str, body: Body, now_ms: int, prefix: str) -> Body:
        """JSON answer to a request below `logged-models`. Raises: UnknownModel, NotAnswered.

        `prefix`: of the run of a new model.
        """
        parts = name.split("/")[1:]
        if not parts:
            return self._create(body, now_ms, prefix)
        if parts == ["search"]:
            return self._search(body)
        model = self._models.get(parts[0])
        if model is None:
            raise UnknownModel(f"no model {parts[0]} here: a job has the models that its script has logged in this attempt")
        info = model["info"]
        call = (method, *parts[1:2])
        if call == ("PATCH",):
            status = body.get("status", 2)
            info.update(status=_STATUS.get(status, status), last_updated_timestamp_ms=now_ms)
        elif call == ("PATCH", "tags"):
            changed = {tag["key"]: tag for tag in [*info["tags"], *(body.get("tags") or [])]}
            info["tags"] = list(changed.values())
        elif call == ("DELETE", "tags"):
            info["tags"] = [tag for tag in info["tags"] if tag["key"] != unquote("/".join(parts[2:]))]
        elif call == ("POST", "params"):
            model["data"]["params"] += body.get("params") or []
        elif call != ("GET",):
            raise NotAnswered(f"{method} {name} is not answered within a job")
        return {"model": model}

    def _search(self, body: Body) -> Body:
        """Newest first, unless another order is asked for."""
        if body.get("datasets"):
            raise NotAnswered("a search of models by data sets")
        own = self._experiment_id in (body.get("experiment_ids") or [self._experiment_id])
        asked = [(one["field_name"], one.get("ascending", True)) for one in body.get("order_by") or []]
        orders = [f"{name} {'ASC' if rising else 'DESC'}" for name, rising in asked]
        try:
            newest_first = list(self._models.values())[::-1] if own else []
            found = matching(newest_first, str(body.get("filter") or ""), orders, MODEL_ATTRIBUTES)
            begin, most = max(0, int(body.get("page_token") or 0)), max(1, int(body.get("max_results") or _PAGE))
        except ValueError as error:
            raise NotAnswered(f"this search of models ({error})") from error
        more = {"next_page_token": str(begin + most)} if len(found) > begin + most else {}
        return {"models": found[begin : begin + most], **more}

    def _create(self, body: Body, now_ms: int, prefix: str) -> Body:
        number = len(self._models) + 1
        name = str(body.get("name") or "model")
        model_id = f"m-{hashlib.sha256(f'{self._experiment_id}/{now_ms}/{number}'.encode()).hexdigest()[:32]}"
        base = prefix + name.replace("/", "-")
        place, again, others = base, 1, {*self._places.values(), *self.taken}
        while place in others:
            again += 1
            place = f"{base}-{again}"
        self._places[model_id] = place
        info = {
            "model_id": model_id, "experiment_id": self._experiment_id, "name": name, "creation_timestamp_ms": now_ms,
            "last_updated_timestamp_ms": now_ms, "status": _STATUS[1], "model_type": str(body.get("model_type") or ""),
            "source_run_id": str(body.get("source_run_id") or ""), "tags": list(body.get("tags") or []),
            "artifact_uri": f"mlflow-artifacts:/{self._experiment_id}/models/{model_id}/artifacts",
        }  # fmt: skip
        self._models[model_id] = {"info": info, "data": {"params": list(body.get("params") or []), "metrics": []}}
        return {"model": self._models[model_id]}
