"""`python -m trainmaster.tracking.wandb_run STAGED`: writes one offline run with W&B's library."""

import json
import sys
from pathlib import Path
from typing import Any

import wandb

from trainmaster.ports.tracker import RunStatus
from trainmaster.tracking.to_wandb import POINTS, RUN


def main(staged: Path) -> int:
    """Write the run staged in `staged`, with rows in order of their steps."""
    told = json.loads((staged / RUN).read_text())
    settings = wandb.Settings(  # what W&B would record by itself is of this process, not of the job
        console="off", disable_git=True, disable_code=True, disable_job_creation=True, x_disable_stats=True,
        x_disable_meta=True, x_save_requirements=False,
    )  # fmt: skip
    run = wandb.init(
        id=told["id"], name=told["job"], project=told["tags"].get("trainmaster.project", "trainmaster"),
        group=told["experiment"], config={**told["params"], "trainmaster": told["tags"]},
        tags=sorted({value[:64] for name, value in told["tags"].items() if "." not in name and value}), settings=settings,
    )  # fmt: skip
    for step, row in rows(staged / POINTS):
        run.log(row, step=step)
    artifacts = staged / "artifacts"
    for path in sorted(artifacts.rglob("*")) if artifacts.is_dir() else ():
        if path.is_file() and not path.name.endswith(".part"):
            run.save(str(path), base_path=str(artifacts), policy="now")
    run.finish(exit_code=0 if told["status"] == RunStatus.FINISHED else 1)
    return 0


def rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """One row per step. Negative steps are left out: W&B does not support them."""
    found: dict[int, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        name, step, value, time_s = json.loads(line)
        if step >= 0:
            row = found.setdefault(step, {})
            row[name] = float(value)
            row["_timestamp"] = max(time_s, row.get("_timestamp", 0.0))
    return sorted(found.items())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
