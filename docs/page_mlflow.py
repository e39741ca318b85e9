"""The page of MLflow's calls: each one is asked of the door that a job's script has, and the page says what came back.

`mlflow_calls.txt` lists the calls of the pinned MLflow server; tests/extras checks that it is complete.
"""

import re
from collections import Counter, deque
from pathlib import Path

from page import HEADER, table

from trainmaster.agent.mlflow.run_api import Runs

CALLS = Path(__file__).with_name("mlflow_calls.txt")
_RUN = "f" * 32
_TEXT = """# MLflow's calls within a job

A script's own `mlflow` calls are answered by the job's agent, from memory: [MLflow scripts](../howto/mlflow-scripts.md). This
page lists the calls of MLflow {version} and what answers each. A rejected call is answered with status 501 and a text that says
what to configure: `MLFLOW_TRACKING_URI` in the spec's `environment.variables`, or `MLFLOW_REGISTRY_URI` for the model registry.
"""


def mlflow_page() -> str:
    """A table of the answered calls, and one of the rejected ones by their first word."""
    version, *calls = CALLS.read_text().splitlines()
    answered: list[tuple[str, ...]] = []
    rejected: Counter[str] = Counter()
    for call in calls:
        method, path = call.split(" ", 1)
        by = _answered_by(method, path)
        if by:
            answered.append((f"`{method} {path.removeprefix('mlflow/')}`", by))
        else:
            rejected[path.removeprefix("mlflow/").split("/")[0]] += 1
    others = [(f"`{name}/…`", str(count)) for name, count in sorted(rejected.items())]
    parts = [
        HEADER,
        _TEXT.format(version=version),
        f"## Answered\n\n{table(('call', 'by'), answered)}",
        f"## Rejected\n\n{table(('calls', 'number'), others)}",
    ]
    return "\n".join(parts)


def _answered_by(method: str, path: str) -> str:
    """What answers a call; "" for none."""
    if path.startswith("mlflow-artifacts/artifacts"):
        return "the job's artifacts" if method in ("GET", "PUT") else ""
    if not path.startswith("mlflow/"):
        return ""
    if path == "mlflow/artifacts/list":
        return "the job's artifacts"
    identity = {"id": _RUN, "experiment_id": "1", "experiment": "digits", "name": "digits-1", "params": {}, "tags": {}}
    runs = Runs(identity, 0, deque())  # type: ignore[arg-type]
    model = runs.answer("POST", "logged-models", {}, 0)[1]["model"]["info"]["model_id"]
    name = re.sub(r"<[^>]*>", "x", path.removeprefix("mlflow/").replace("<model_id>", model))
    if runs.answer(method, name, {"run_id": _RUN}, 0)[0] == 501:
        return ""
    return "the job's models" if name.startswith("logged-models") else "the job's run"
