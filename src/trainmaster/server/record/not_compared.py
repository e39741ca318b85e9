"""What a comparison of jobs does not look at, because nothing of it is recorded, or not its bytes. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from trainmaster.model.job import Job
from trainmaster.model.options.credentials import is_secret_variable
from trainmaster.model.redaction import text
from trainmaster.server.record.command_reading import unrecorded
from trainmaster.server.record.data_seen import NO_FILES
from trainmaster.wire.environment import EnvironmentRecord

_NAMED_MAX = 3


def not_compared(
    jobs: Sequence[Job],
    records: Mapping[str, EnvironmentRecord] = MappingProxyType({}),
    doubts: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> list[str]:
    """Each as a clause with its reason: `data train of a-1: it is at a URL`.

    `records`: id -> what its attempt ran in. `doubts`: id -> what is doubted of its data (`data_seen`).
    """
    found: dict[str, list[str]] = {}
    for job in jobs:
        for what in _of(job, records.get(job.id), doubts.get(job.id, {})):
            found.setdefault(what, []).append(job.id)
    return [_among(what, ids, len(jobs)) for what, ids in found.items()]


def _of(job: Job, record: EnvironmentRecord | None, doubts: Mapping[str, str]) -> Iterator[str]:
    if job.code.linked:
        yield "files that were linked to the work directory, not copied"
    if job.code.in_place and job.origin.git_diff_cut:
        yield "the rest of its patch, which was too large to be stored whole"
    versions = {version.name: version for version in job.data}
    for name in job.spec.data:
        version = versions.get(name)
        if version is None or version.digest is None:
            doubt = f": {version.doubt}" if version is not None and version.doubt else ""
            yield f"data {name}: only its address is recorded{doubt}"
        elif not version.exact:
            why = version.doubt or "it is large or cannot be read whole"
            yield f"data {name}: only names, sizes and times are compared, because {why}"
        if version is not None and version.digest is not None and version.listing is None:
            yield f"data {name}: {NO_FILES} were not recorded"
    looked_at = [name for name in job.spec.data if name in versions and versions[name].digest is not None]
    if looked_at:
        yield f"permissions of the files in data {', '.join(looked_at)}"
    yield from (f"data {name}: {doubt}" for name, doubt in doubts.items())
    for name, place in job.origin.editable.items():
        kept = ": nothing of it is recorded" if job.code.in_place else " and not from the copy"
        yield f"package {name}, imported from {text(place)}{kept}"
    yield from unrecorded(job, record)
    variables = {**job.origin.variables, **job.spec.environment.variables}
    if variables.get("PYTHONPATH"):
        yield f"what PYTHONPATH leads to: {text(variables['PYTHONPATH'])}"
    doubt = "its name may be that of a credential"
    yield from (f"variable {name}: {doubt}" for name in sorted(variables) if is_secret_variable(name))
    if job.attempt is not None and len(job.attempt.nodes) > 1:
        yield "packages and machines of its other nodes: only those of the first are compared"
    if job.attempt is not None and job.attempt.number > 1:
        if job.code.digest is not None:
            yield "files of its later attempts: they ran in the directory that the first one left, which may differ"
        yield "what its earlier attempts ran with: packages and machine are those of the last"


def _among(what: str, ids: Sequence[str], jobs: int) -> str:
    if len(ids) == jobs:
        return what
    return f"{what} ({', '.join(ids[:_NAMED_MAX])}{', …' if len(ids) > _NAMED_MAX else ''})"
