"""Says what a reproduction keeps equal and what it cannot, one line each. Shown when the reproduction is submitted.

Packages and machine are compared between now and the record of the job's last attempt that has one. "Now" means this server's
machine, which is where its engine runs jobs.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainmaster.agent.environment import machine
from trainmaster.agent.environment.installed_packages import Installation
from trainmaster.model import redaction
from trainmaster.model.job import Job
from trainmaster.model.spec import DataVersion
from trainmaster.server.record.command_reading import BY_ITSELF, unrecorded
from trainmaster.server.record.data_seen import NO_FILES, doubted
from trainmaster.server.record.provenance import recorded
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.views.resources import all_attempts
from trainmaster.wire.environment import EnvironmentRecord

_PACKAGES = 10  # packages listed by name
_MACHINE = (("host", "host"), ("cpu", "processor"), ("kernel", "kernel"), ("driver", "driver"), ("libc", "C library"))


def comparison(api: Runtime, job: Job, data: Sequence[DataVersion]) -> dict[str, Any]:
    """`equal`: what is kept; `unequal`: what is not. `data`: the present versions of the job's data."""
    variables = {**job.origin.variables, **job.spec.environment.variables}
    attempts = all_attempts(job, api.services.events.attempts(job.id))
    ran = next((one for one in reversed(attempts) if one.nodes[0].environment is not None), None)
    record = recorded(api.services, ran.nodes[0].environment if ran is not None else None)
    known, doubts = None if isinstance(record, str) else record, doubted(job, attempts)
    unequal = [*_unequal_job(job, known), *unequal_data(job, data, doubts), *_unequal_environment(record, variables)]
    if ran is not None and ran is not attempts[-1]:
        last, earlier = attempts[-1].number, ran.number
        unequal.append(f"environment: nothing is recorded of attempt {last}, so that of attempt {earlier} was compared")
    return {"equal": list(_held(job, equal_data(job, data, doubts))), "unequal": [*unequal, BY_ITSELF]}


def _held(job: Job, data: Sequence[str]) -> Iterator[str]:
    """What the new job shares with the original, by content."""
    if job.code.digest is not None:
        commit = f" (git {job.origin.git_commit[:8]})" if job.origin.git_commit else ""
        yield f"code {job.code.digest[:12]}{commit}"
    yield "spec"
    if data:
        yield f"data {', '.join(data)}"
    if job.spec.params:
        yield "parameters " + ", ".join(f"{name}={value}" for name, value in redaction.values(job.spec.params).items())
    if job.lineage is not None and job.lineage.checkpoint is not None:
        start = job.lineage.checkpoint
        yield f"start from the checkpoint of {job.lineage.owner} at {start.place or 'an unknown step'}"


def _unequal_job(job: Job, record: EnvironmentRecord | None) -> Iterator[str]:
    """What the job itself does not pin."""
    if job.code.in_place:
        yield f"code: it ran in {job.origin.directory} itself and will use what is there now"
    elif job.code.linked:
        yield f"files: {job.code.linked} paths were linked, not copied, and are read as they are now"
    for name, place in job.origin.editable.items():
        yield f"package {name}: it is imported from {redaction.text(place)} and will be what is there now"
    path = {**job.origin.variables, **job.spec.environment.variables}.get("PYTHONPATH")
    if path:
        yield f"PYTHONPATH: what {redaction.text(path)} has now is read"
    yield from unrecorded(job, record)
    broken = job.attempt.number - 1 if job.attempt is not None else 0
    if broken:
        times = "once" if broken == 1 else f"{broken} times"
        yield f"course: {job.id} was interrupted {times}; this job is only if something breaks, or if it has to make room"


def equal_data(job: Job, now: Sequence[DataVersion], doubts: Mapping[str, str]) -> list[str]:
    """Names of the data whose files and directories are those that the job read. `doubts`: of `data_seen`."""
    current = {version.name: version for version in now}
    proven = [one for one in job.data if one.exact and one == current.get(one.name) and one.name not in doubts]
    return [one.name for one in proven if one.listing is not None and one.listing == current[one.name].listing]


def unequal_data(job: Job, now: Sequence[DataVersion], doubts: Mapping[str, str]) -> Iterator[str]:
    """Data that changed, or that cannot be compared. `doubts`: of `data_seen`."""
    known = {version.name: version for version in now}
    for name in job.spec.data:
        if name in doubts:
            yield f"data {name}: {job.id} may have read another version than the one recorded: {doubts[name]}"
        then = next((version for version in job.data if version.name == name), None)
        current = known.get(name)
        if then is None or then.digest is None:
            doubt = f": {then.doubt}" if then is not None and then.doubt else ""
            yield f"data {name}: its version was not recorded, so it cannot be compared{doubt}"
        elif current is None or current.digest is None:
            doubt = f": {current.doubt}" if current is not None and current.doubt else ""
            yield f"data {name}: version {then.digest[:12]}, and the present one is not known here{doubt}"
        elif then.digest != current.digest:
            yield f"data {name}: version {then.digest[:12]}, now {current.digest[:12]}"
        else:
            yield from _beside_digests(then, current)


def _beside_digests(then: DataVersion, now: DataVersion) -> Iterator[str]:
    """What equal digests do not prove."""
    if not (then.exact and now.exact):
        doubt = then.doubt or now.doubt or "it is too large to compare its bytes"
        yield f"data {then.name}: names, sizes and times of the files that were looked at are equal; {doubt}"
    if then.listing is None or now.listing is None:
        yield f"data {then.name}: {NO_FILES} were not recorded, so only its files are compared"
    elif then.listing != now.listing:
        yield f"data {then.name}: {NO_FILES} differ"


def _unequal_environment(then: EnvironmentRecord | str, variables: Mapping[str, str]) -> Iterator[str]:
    """`then`: the record, or why there is none."""
    if isinstance(then, str):
        yield f"environment: {then}, so packages and machine cannot be compared"
        return
    now = machine.describe()
    for name, word in _MACHINE:
        if then["machine"].get(name) != now.get(name):
            yield f"{word}: {then['machine'].get(name) or 'none'}, now {now.get(name) or 'none'}"
    devices = [[one["name"] for one in found["devices"]] for found in (then["machine"], now)]
    if devices[0] != devices[1]:
        yield f"devices: {', '.join(devices[0]) or 'none'}, now {', '.join(devices[1]) or 'none'}"
    yield from _unequal_python(then, variables)


def _unequal_python(then: EnvironmentRecord, variables: Mapping[str, str]) -> Iterator[str]:
    python = then["python"]
    if python is None:
        return
    gone = "is not there any more"
    try:
        os.stat(python["path"])
        gone = ""
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        gone = f"cannot be looked at now ({error.strerror})"
    if gone:
        yield f"Python: {python['path']} {gone}, so neither its version nor its packages can be compared"
        return
    found = Installation(python["path"], {"HOME": os.path.expanduser("~"), **variables})
    packages, editable = found.packages()
    if found.version() != python["version"]:
        yield f"Python: {python['version']}, now {found.version()}"
    built = (then["built_from"], found.built_from(editable)) if "built_from" in then else ({}, {})
    unread = found.unread()
    if unread:
        yield f"packages: {unread[0]} cannot be read now, so they cannot be compared"
    if unread or then.get("unread"):
        return
    before, now = _identified(then["packages"], built[0]), _identified(packages, built[1])
    differing = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    for name in differing[:_PACKAGES]:
        yield f"package {name}: {before.get(name, 'none')}, now {now.get(name, 'none')}"
    if len(differing) > _PACKAGES:
        yield f"packages: {len(differing) - _PACKAGES} more differ"
    for name in sorted({*then["editable"], *editable}):
        yield f"package {name}: an editable install, so its code may differ under the same version"


def _identified(packages: Mapping[str, str], built_from: Mapping[str, str]) -> dict[str, str]:
    """The version of each package, and what else identifies its code."""
    return {name: f"{version} ({built_from[name]})" if built_from.get(name) else version for name, version in packages.items()}
