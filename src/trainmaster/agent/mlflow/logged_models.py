"""MLflow's logged models, as `log_model` and autolog use them: each is a directory among the job's artifacts."""

from __future__ import annotations

import hashlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Body = dict[str, Any]

_STATUS = {1: "LOGGED_MODEL_PENDING", 2: "LOGGED_MODEL_READY", 3: "LOGGED_MODEL_UPLOAD_FAILED"}


class NotAnswered(Exception):
    """The call has a part that would be ignored."""


class Models:
    """The models of one attempt. The caller holds a lock around each call."""

    def __init__(self, experiment_id: str) -> None:
        self._experiment_id = experiment_id
        self._models: dict[str, Body] = {}
        self._places: dict[str, str] = {}

    def has(self, model_id: str) -> bool:
        """Whether the model exists."""
        return model_id in self._places

    def place(self, model_id: str) -> str:
        """The directory of a model's files among the job's artifacts. Raises: KeyError."""
        return self._places[model_id]

    def answer(self, method: str, name: str, body: Body, now_ms: int) -> Body:
        """JSON answer to a request below `logged-models`. Raises: KeyError for an unknown model, NotAnswered."""
        parts = name.split("/")[1:]
        if not parts:
            return self._create(body, now_ms)
        if parts == ["search"]:
            asked = [field for field in ("filter", "order_by", "datasets") if body.get(field)]
            if asked:
                raise NotAnswered(f"a search of models by {' and '.join(asked)} is not answered within a job")
            return {"models": list(self._models.values())}
        model = self._models[parts[0]]
        info = model["info"]
        call = (method, *parts[1:2])
        if call == ("PATCH",):
            status = body.get("status", 2)
            info.update(status=_STATUS.get(status, status), last_updated_timestamp_ms=now_ms)
        elif call == ("PATCH", "tags"):
            changed = {tag["key"]: tag for tag in [*info["tags"], *(body.get("tags") or [])]}
            info["tags"] = list(changed.values())
        elif call == ("DELETE", "tags"):
            info["tags"] = [tag for tag in info["tags"] if tag["key"] != "/".join(parts[2:])]
        elif call == ("POST", "params"):
            model["data"]["params"] += body.get("params") or []
        elif call != ("GET",):
            raise NotAnswered(f"{method} {name} is not answered within a job")
        return {"model": model}

    def _create(self, body: Body, now_ms: int) -> Body:
        number = len(self._models) + 1
        name = str(body.get("name") or "model")
        model_id = f"m-{hashlib.sha256(f'{self._experiment_id}/{now_ms}/{number}'.encode()).hexdigest()[:32]}"
        taken = set(self._places.values())
        place, again = name.replace("/", "-"), 1
        while place in taken:
            again += 1
            place = f"{name}-{again}"
        self._places[model_id] = place
        info = {
            "model_id": model_id, "experiment_id": self._experiment_id, "name": name, "creation_timestamp_ms": now_ms,
            "last_updated_timestamp_ms": now_ms, "status": _STATUS[1], "model_type": str(body.get("model_type") or ""),
            "source_run_id": str(body.get("source_run_id") or ""), "tags": list(body.get("tags") or []),
            "artifact_uri": f"mlflow-artifacts:/{self._experiment_id}/models/{model_id}/artifacts",
        }  # fmt: skip
        self._models[model_id] = {"info": info, "data": {"params": list(body.get("params") or []), "metrics": []}}
        return {"model": self._models[model_id]}
