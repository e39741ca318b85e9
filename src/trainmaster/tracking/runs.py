"""Maps a job to a tracker's run. Pure; the only place that decides names of runs, experiments and tags."""

import re

from trainmaster.model.job import Job, State
from trainmaster.model.redaction import logged, shown
from trainmaster.model.spec import DEFAULT_PROJECT, CodeCopy, JobSpec
from trainmaster.ports.tracker import FeedPoint, Run, RunPoint, RunStatus
from trainmaster.wire.runs import TAG_RUN, run_id

_RANK = re.compile(r"/rank\d+\Z")
_STATUS = {
    State.HELD: RunStatus.SCHEDULED,
    State.QUEUED: RunStatus.SCHEDULED,
    State.STARTING: RunStatus.RUNNING,
    State.RUNNING: RunStatus.RUNNING,
    State.STOPPING: RunStatus.RUNNING,
    State.SUCCEEDED: RunStatus.FINISHED,
    State.FAILED: RunStatus.FAILED,
    State.CANCELLED: RunStatus.KILLED,
}


def run_of(job: Job, server: str) -> Run:
    """The run of a job. Its experiment is the job's, prefixed with the project unless that is the default one."""
    spec, id = shown(job.spec), run_id(server, job.id)
    began_s, ended_s = job.span
    project = "" if spec.project == DEFAULT_PROJECT else f"{spec.project}/"
    return Run(
        id=id,
        job=job.id,
        experiment=f"{project}{spec.experiment}",
        status=_STATUS[job.state],
        created_s=job.created_s,
        started_s=began_s,
        ended_s=ended_s,
        params={**{name: str(value) for name, value in spec.params.items()}, **logged(job.run_params, job.spec)},
        tags={**spec.tags, **logged(job.run_tags, job.spec), **_own_tags(job, spec), TAG_RUN: id},
    )


def point_of(point: FeedPoint) -> RunPoint:
    """Convert a point. Rank 0 uses the metric's name, any other rank `name/rankN`; so does rank 0 for a name that ends so."""
    plain = point.rank == 0 and not _RANK.search(point.name)
    name = point.name if plain else f"{point.name}/rank{point.rank}"
    return RunPoint(name, point.step, point.value, point.time_s)


def _own_tags(job: Job, spec: JobSpec) -> dict[str, str]:
    origin = job.origin
    command = spec.command if isinstance(spec.command, str) else " ".join(spec.command)
    tags = {
        "trainmaster.job": job.id,
        "trainmaster.project": spec.project,
        "trainmaster.state": job.state.value,
        "trainmaster.attempts": str(job.attempt.number if job.attempt is not None else 0),
        "trainmaster.failure": job.failure.message if job.failure is not None and job.state is State.FAILED else "",
        "trainmaster.code": _code(job.code),
        "mlflow.user": job.owner,
        "mlflow.source.type": "JOB",
        "mlflow.source.name": command,
        "mlflow.source.git.commit": origin.git_commit or "",
    }
    return {name: value for name, value in tags.items() if value}


def _code(code: CodeCopy) -> str:
    return "in place" if code.in_place else code.digest or ""
