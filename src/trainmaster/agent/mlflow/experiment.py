"""The job's experiment, as a script's MLflow calls see it. No I/O."""

from __future__ import annotations

from trainmaster.agent.mlflow.fields import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainmaster.agent.mlflow.fields import Body

_NAMES_MAX = 1000


class Experiment:
    """Every experiment that the script names is the job's experiment."""

    def __init__(self, experiment_id: str, name: str) -> None:
        self.id = experiment_id
        self._name = name
        self._names = {name, "Default"}  # that the script may ask for
        self._tags: dict[str, str] = {}

    def get(self, body: Body, now_ms: int) -> Body:
        """Answer `experiments/get`."""
        name = str(body.get("experiment_name") or self._name)
        return {"experiment": {
            "experiment_id": self.id, "name": name, "lifecycle_stage": "active",
            "artifact_location": f"mlflow-artifacts:/{self.id}",
            "tags": [{"key": key, "value": value} for key, value in self._tags.items()],
        }}  # fmt: skip

    def get_by_name(self, body: Body, now_ms: int) -> Body:
        """Only one that the script has made, or the job's: a search in another one must not find the job's runs."""
        name = str(body.get("experiment_name") or "")
        if name not in self._names:
            raise Fault(404, "RESOURCE_DOES_NOT_EXIST", f"no experiment {name!r} here: a job has the one of its run")
        return self.get(body, now_ms)

    def create(self, body: Body, now_ms: int) -> Body:
        """From now on the script may ask for this name too."""
        if len(self._names) < _NAMES_MAX:
            self._names.add(str(body.get("name") or ""))
        return {"experiment_id": self.id}

    def search(self, body: Body, now_ms: int) -> Body:
        """There is one."""
        return {"experiments": [self.get({}, now_ms)["experiment"]]}

    def set_tag(self, name: str, value: str) -> None:
        """A tag of the experiment as this script sees it."""
        self._tags[name] = value
