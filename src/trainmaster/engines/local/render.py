"""Builds the agent's launch from a submission. A pure function, except for checks whether an interpreter is a venv's."""

import json
import os
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

from trainmaster import agent
from trainmaster.engines.local.cgroups import AttemptCgroups
from trainmaster.engines.local.settings import Site
from trainmaster.model.job import Attempt, Job
from trainmaster.model.options.placeholders import filled, values_of
from trainmaster.model.spec import DataVersion, JobSpec, Origin
from trainmaster.ports.engine import Submission
from trainmaster.wire.launch import CodeLayout, DataLaunch, Launch, Requirements, ResumePoint, RoleLaunch, RunIdentity
from trainmaster.wire.names import ENV_ARRAY_INDEX, ENV_TRACKER, data_variable, is_url
from trainmaster.wire.runs import experiment_id, run_id

_NO_CGROUPS = AttemptCgroups()
BLANK = "(not shown)"
_RUNNER = os.path.join(os.path.dirname(agent.__file__), "launch", "function.py")  # the job's Python may lack this package
_PATH = "/usr/local/bin:/usr/bin:/bin"
_COLUMNS = "200"  # where there is no terminal, rich takes 80 and breaks the line of its bar, whose values are then not read


def launch(submission: Submission, site: Site, made: AttemptCgroups = _NO_CGROUPS) -> Launch:
    """The complete launch of an agent.

    Raises: ValueError if the submission's key is not an attempt or node of its job.
    """
    key, job = submission.key, submission.job
    attempt = job.attempt
    if attempt is None or attempt.number != key.attempt or not 0 <= key.node_index < len(attempt.allocation.shares):
        raise ValueError(f"{key} is not part of the job's current attempt")
    share, blobs = attempt.allocation.shares[key.node_index], site.blobs
    spec = replace(job.spec, resources=job.spec.resources.chosen(attempt.allocation.choice))
    in_place = job.code.in_place
    return Launch(
        key=str(key),
        home=site.home_id,
        job=job.id,
        attempt=key.attempt,
        node_index=key.node_index,
        nodes=len(attempt.allocation.shares),
        ranks=spec.resources.ranks,
        cpus=spec.resources.cpus,
        distributed=job.spec.resources.distributed,
        command=command(spec, job.origin),
        shell=isinstance(spec.command, str),
        environment=environment(job, site, real=bool(share.devices) and site.real_devices),
        sdk=site.sdk,
        devices=_visible(_own(spec, key.node_index, share.devices)[0], site),
        work=job.origin.directory if in_place else str(site.home.work(job.id, share.node)),
        umask=job.origin.umask,
        in_place=in_place,
        before=str(site.home.attempts(job.id) / "before.json"),
        fresh=False,  # this engine proves that the older attempt is gone before the next one starts
        code=_code(job, site),
        checkpoint_path=spec.checkpoint.path,
        checkpoint_interval_s=spec.checkpoint.interval_s,
        resume_arguments=spec.checkpoint.resume_arguments,
        checkpoint_store=str(blobs / "checkpoints" / job.id),
        resume=_resume(job, attempt, site),
        forked=job.lineage is not None and job.lineage.inherited is not None,
        metrics_pattern=spec.metrics.pattern,
        metrics_automatic=spec.metrics.automatic,
        metrics_files=list(spec.metrics.files),
        metrics_primary=spec.metrics.primary,
        epoch_first=job.epoch_counts[0],
        epoch_steps=job.epoch_counts[1],
        epoch_anew=job.epoch_counts[2],
        pattern_engine=_pattern_engine() if spec.metrics.pattern else None,
        artifacts=list(spec.artifacts),
        artifact_store=str(blobs / "artifacts" / job.id),
        pickle_models=spec.project in site.settings.pickle_projects,
        environment_store=str(site.home.environments),
        params=dict(spec.params),
        data=[_data_launch(one) for one in job.data if one.stamp],
        roles=_roles(spec, job.origin, share.devices, site) if key.node_index == 0 else [],
        requirements=_requirements(spec, job.origin, site),
        memory_bytes=memory_bytes(spec, key.node_index),
        cgroup=made.limited,
        contained=list(made.contained),
        address=share.address,
        address_shared=True,
        server_socket=str(site.home.socket("api")),
        server_url=None, server_authority=None, apart=False,  # it runs on the server's machine
        credential=submission.credential,
        log_max_bytes=site.settings.log_max_bytes,
        points=str(site.home.points(str(key))),
        run=run_identity(job, site),
        grace_s=site.settings.grace_s,
        remote=site.settings.remote_store,
    )


def render(submission: Submission, site: Site) -> str:
    """The launch as JSON for people, without the credential."""
    return json.dumps(launch(replace(submission, credential=BLANK), site), indent=2, sort_keys=True, ensure_ascii=False)


def command(spec: JobSpec, origin: Origin) -> list[str]:
    """The argv, with placeholders replaced by parameters. A shell line is run by bash. A function is called by our runner.

    In a list, `python` or `python3` becomes the spec's interpreter if it names one; our runner uses it too.
    """
    if spec.python is not None:
        return [_interpreter(spec, origin) or "python3", _RUNNER, spec.python]
    return _argv(filled(spec.command, values_of(spec)), spec, origin)


@cache
def _pattern_engine() -> str | None:
    """The directory of RE2, for an agent that is started without site-packages. The agent uses this same interpreter."""
    found = find_spec("re2")
    return os.path.dirname(os.path.dirname(found.origin)) if found is not None and found.origin else None


def _argv(written: str | tuple[str, ...], spec: JobSpec, origin: Origin) -> list[str]:
    if isinstance(written, str):
        return ["bash", "-o", "pipefail", "-c", written]
    argv = list(written)
    interpreter = _interpreter(spec, origin)
    if interpreter is not None and argv and argv[0] in ("python", "python3"):
        argv[0] = interpreter
    return argv


def environment(job: Job, site: Site, real: bool = False) -> dict[str, str]:
    """The environment of the ranks: basics of the server's user, variables recorded at submit, variables of the spec.

    `real`: the attempt holds real devices, whose indices are those of the PCI bus.
    """
    spec, origin = job.spec, job.origin
    values = {"PATH": _PATH, "PYTHONUNBUFFERED": "1", "COLUMNS": _COLUMNS}
    if real:
        values["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # otherwise CUDA counts the fastest device first
    values |= site.basics | origin.variables | spec.environment.variables | _data(job)
    if spec.index is not None:
        values[ENV_ARRAY_INDEX] = str(spec.index)
    interpreter = _interpreter(spec, origin)
    if interpreter is not None and os.path.isabs(interpreter):
        directory = os.path.dirname(interpreter)
        values["PATH"] = f"{directory}{os.pathsep}{values['PATH']}"
        prefix = os.path.dirname(directory)
        if os.path.exists(os.path.join(prefix, "pyvenv.cfg")):
            values["VIRTUAL_ENV"] = prefix
    return values


def _data(job: Job) -> dict[str, str]:
    """Variables with the paths of the job's data: as recorded at submit, else from the spec."""
    found = {name: uri if is_url(uri) else _absolute(uri, job.origin) for name, uri in job.spec.data.items()}
    found |= {version.name: version.uri for version in job.data if version.name in found and not is_url(version.uri)}
    return {data_variable(name): uri for name, uri in found.items()}


def _absolute(path: str, origin: Origin) -> str:
    return os.path.normpath(os.path.join(origin.directory, os.path.expanduser(path)))


def _interpreter(spec: JobSpec, origin: Origin) -> str | None:
    """The spec's interpreter: a path is made absolute relative to the submit directory; a bare name is unchanged."""
    if spec.environment.requirements is not None:
        return None  # the agent's virtual environment provides it
    return _named(spec, origin)


def _named(spec: JobSpec, origin: Origin) -> str | None:
    named = spec.environment.python
    if not named:
        return None
    if os.sep not in named:
        return named
    return _absolute(named, origin)


def run_identity(job: Job, site: Site) -> RunIdentity | None:
    """The job's run for a script's own `mlflow`; None if the spec sets another tracking server."""
    if ENV_TRACKER in environment(job, site):
        return None
    server = str(site.home.root) if site.settings.run_server is None else site.settings.run_server(job.seq)
    return RunIdentity(
        id=run_id(server, job.id),
        experiment_id=experiment_id(job.spec.experiment),
        experiment=job.spec.experiment,
        name=job.id,
        params={**{name: str(value) for name, value in job.spec.params.items()}, **job.run_params},
        tags={**job.spec.tags, **job.run_tags},
        prefixes={**dict.fromkeys(job.spec.roles, "role"), **job.run_prefixes},
    )


def _data_launch(version: DataVersion) -> DataLaunch:
    known = version.digest if version.exact and version.digest is not None else ""
    return DataLaunch(
        name=version.name, path=version.uri, stamp=version.stamp, digest=known, bytes=version.bytes, listing=version.listing
    )


def _roles(spec: JobSpec, origin: Origin, devices: tuple[int, ...], site: Site) -> list[RoleLaunch]:
    """The roles of node 0, each with its own devices."""
    launches = []
    for (name, role), own in zip(spec.roles.items(), _own(spec, 0, devices)[1:], strict=True):
        argv, shell = _argv(filled(role.command, values_of(spec)), spec, origin), isinstance(role.command, str)
        visible, cpus = _visible(own, site), role.resources.cpus
        launches.append(RoleLaunch(name=name, command=argv, shell=shell, devices=visible, cpus=cpus))
    return launches


def _own(spec: JobSpec, node_index: int, devices: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Divides a node's devices: first the ranks', then on the first node each role's, in the spec's order.

    Whole devices come in that order. A device of which only a part is used is the last one.
    """
    roles = spec.roles.values() if node_index == 0 else ()
    found, taken = [], 0
    for one in (spec.resources, *(role.resources for role in roles)):
        found.append(devices[taken : taken + one.gpus] + (devices[-1:] if one.gpu_share else ()))
        taken += one.gpus
    return found


def _requirements(spec: JobSpec, origin: Origin, site: Site) -> Requirements | None:
    if spec.environment.requirements is None:
        return None
    root = str(site.home.virtual_environments)
    max_bytes = site.settings.environments_max_bytes
    return Requirements(file=spec.environment.requirements, python=_named(spec, origin), root=root, max_bytes=max_bytes)


def memory_bytes(spec: JobSpec, node_index: int) -> int | None:
    """The memory limit of everything on one node; on the first node it includes what the roles request."""
    if spec.resources.memory_bytes is None:
        return None
    roles = spec.roles.values() if node_index == 0 else ()
    return spec.resources.memory_bytes + sum(role.resources.memory_bytes or 0 for role in roles)


def _visible(devices: tuple[int, ...], site: Site) -> list[int] | None:
    if devices:
        return list(devices)
    return [] if site.real_devices else None


def _code(job: Job, site: Site) -> CodeLayout | None:
    if job.code.in_place or job.code.digest is None:
        return None
    store = site.blobs / "code"
    return CodeLayout(
        tree=str(store / "trees" / f"{job.code.digest}.json"), objects=str(store / "objects"), source=job.origin.directory
    )


def _resume(job: Job, attempt: Attempt, site: Site) -> list[ResumePoint]:
    kept = {checkpoint.id: (job.id, checkpoint) for checkpoint in job.checkpoints}
    origin = job.lineage
    if origin is not None and origin.checkpoint is not None and origin.inherited is not None:
        kept[origin.inherited] = (origin.owner or origin.job, origin.checkpoint)
    return [
        ResumePoint(
            id=name,
            step=kept[name][1].step,
            approximate=kept[name][1].approximate,
            root=str(site.blobs / "checkpoints" / kept[name][0] / kept[name][1].id),
            digests={f"n{part.node_index}": part.digest for part in kept[name][1].parts},
        )
        for name in attempt.resume
        if name in kept
    ]
