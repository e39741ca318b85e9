"""From a submission to the agent's launch: a function of its arguments (and of whether an interpreter is a venv's)."""

import json
import os
from dataclasses import replace

from trainmaster.engines.local.settings import Site
from trainmaster.model.job import Attempt, Job
from trainmaster.model.spec import JobSpec, Origin
from trainmaster.ports.engine import Submission
from trainmaster.wire.launch import CodeLayout, Launch, ResumePoint

BLANK = "(not shown)"
_PATH = "/usr/local/bin:/usr/bin:/bin"


def launch(submission: Submission, site: Site, cgroup: str | None = None) -> Launch:
    """The agent's complete orders.

    Raises: ValueError when the submission's key names no attempt or node of its job.
    """
    key, job = submission.key, submission.job
    attempt = job.attempt
    if attempt is None or attempt.number != key.attempt or not 0 <= key.node_index < len(attempt.allocation.shares):
        raise ValueError(f"{key} is not part of the job's current attempt")
    share, spec, blobs = attempt.allocation.shares[key.node_index], job.spec, site.home.blobs
    in_place = job.code.in_place
    return Launch(
        key=str(key),
        job=job.id,
        attempt=key.attempt,
        node_index=key.node_index,
        nodes=len(attempt.allocation.shares),
        ranks=spec.resources.ranks,
        command=command(spec, job.origin),
        shell=isinstance(spec.command, str),
        environment=environment(job, site, real=bool(share.devices) and site.real_devices),
        devices=_visible(share.devices, site),
        work=job.origin.directory if in_place else str(site.home.work(job.id, share.node)),
        in_place=in_place,
        fresh=False,  # this engine proves the older attempt gone before a next one starts
        code=_code(job, site),
        checkpoint_path=spec.checkpoint.path,
        resume_arguments=spec.checkpoint.resume_arguments,
        checkpoint_store=str(blobs / "checkpoints" / job.id),
        resume=_resume(job, attempt, site),
        metrics_pattern=spec.metrics.pattern,
        artifacts=list(spec.artifacts),
        artifact_store=str(blobs / "artifacts" / job.id),
        params=dict(spec.params),
        memory_bytes=spec.resources.memory_bytes,
        cgroup=cgroup,
        address=share.address,
        address_shared=True,
        server_socket=str(site.home.socket("api")),
        server_url=None,
        credential=submission.credential,
        log_max_bytes=site.settings.log_max_bytes,
        grace_s=site.settings.grace_s,
    )


def render(submission: Submission, site: Site) -> str:
    """The launch as JSON for people: the credential is not shown."""
    return json.dumps(launch(replace(submission, credential=BLANK), site), indent=2, sort_keys=True, ensure_ascii=False)


def command(spec: JobSpec, origin: Origin) -> list[str]:
    """argv: a line goes to bash; a list's `python` or `python3` is the spec's interpreter where it names one."""
    if isinstance(spec.command, str):
        return ["bash", "-o", "pipefail", "-c", spec.command]
    argv = list(spec.command)
    interpreter = _interpreter(spec, origin)
    if interpreter is not None and argv and argv[0] in ("python", "python3"):
        argv[0] = interpreter
    return argv


def environment(job: Job, site: Site, real: bool = False) -> dict[str, str]:
    """The ranks' environment: basics of the server's user, what was recorded at submit, what the spec says.

    `real`: the attempt holds real devices, whose indices are those of the PCI bus.
    """
    spec, origin = job.spec, job.origin
    values = {"PATH": _PATH, "PYTHONUNBUFFERED": "1"}
    if real:
        values["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # otherwise CUDA counts the fastest device first
    values |= site.basics | origin.variables | spec.environment.variables
    interpreter = _interpreter(spec, origin)
    if interpreter is not None and os.path.isabs(interpreter):
        directory = os.path.dirname(interpreter)
        values["PATH"] = f"{directory}{os.pathsep}{values['PATH']}"
        prefix = os.path.dirname(directory)
        if os.path.exists(os.path.join(prefix, "pyvenv.cfg")):
            values["VIRTUAL_ENV"] = prefix
    return values


def _interpreter(spec: JobSpec, origin: Origin) -> str | None:
    """The interpreter the spec names: a path is absolute or relative to where the job was submitted, a bare name stays."""
    named = spec.environment.python
    if not named:
        return None
    if os.sep not in named:
        return named
    return os.path.normpath(os.path.join(origin.directory, os.path.expanduser(named)))


def _visible(devices: tuple[int, ...], site: Site) -> list[int] | None:
    if devices:
        return list(devices)
    return [] if site.real_devices else None


def _code(job: Job, site: Site) -> CodeLayout | None:
    if job.code.in_place or job.code.digest is None:
        return None
    store = site.home.blobs / "code"
    return CodeLayout(
        tree=str(store / "trees" / f"{job.code.digest}.json"), objects=str(store / "objects"), source=job.origin.directory
    )


def _resume(job: Job, attempt: Attempt, site: Site) -> list[ResumePoint]:
    kept = {checkpoint.id: checkpoint for checkpoint in job.checkpoints}
    return [
        ResumePoint(
            id=name,
            step=kept[name].step,
            approximate=kept[name].approximate,
            root=str(site.home.blobs / "checkpoints" / job.id / name),
            digests={f"n{part.node_index}": part.digest for part in kept[name].parts},
        )
        for name in attempt.resume
        if name in kept
    ]
