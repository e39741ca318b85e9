"""Submits jobs, from Python or from the command line: makes a spec from options or a file, and uploads the code.

`submit("python train.py", gpus=2, ranks=2, checkpoint="out/*.pt")` makes the same job as
`tm submit --gpus 2 --ranks 2 --checkpoint 'out/*.pt' -- python train.py`.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

from trainmaster.client.api import Client, Row, new_key, server_known
from trainmaster.client.checks.outside_paths import outside
from trainmaster.client.checks.programs import check_programs
from trainmaster.client.code_copy.gather import Gathered, gather, pack_zip
from trainmaster.client.code_copy.git import Differ, Patch, recorded
from trainmaster.client.code_copy.listing import MIB, git_state
from trainmaster.client.goes_along import editable_outside, goes_along, notable, of_job_in_place
from trainmaster.client.log_pages import follow, pages
from trainmaster.client.origin import origin
from trainmaster.client.servers.settings import DEFAULT_PROJECT, code_paths, default_project, default_tags
from trainmaster.client.start_options import Array, start_of
from trainmaster.errors import ChangedError, ConflictError, OperationError, UsageError
from trainmaster.spec.shorthand import from_options
from trainmaster.wire.code import digest

Answer = TypeVar("Answer")
Say = Callable[[str], None]
Explain = Callable[[Mapping[str, Any]], None]
_TRIES = 5  # if files in the work directory change during the copy
_ARCHIVE_BYTES = 48 * 1024 * 1024  # of objects per upload


class Options(TypedDict, total=False):
    """All job options without a file; the command line has an option for each."""

    name: str
    project: str
    experiment: str
    priority: int
    work: str  # the class: `--class`
    pool: str
    nodes: int
    nodes_max: int
    gpus: int | str | Sequence[str]  # a sequence means any of these
    choose: str  # finish or cost
    cpus: float
    memory: str
    disk: str
    network: str
    accelerators: Mapping[str, int] | Sequence[str]
    custom: Mapping[str, float] | Sequence[str]
    ranks: int
    time_limit: str | float
    checkpoint: str
    keep: int
    checkpoint_interval: str | float
    resume_arguments: str
    restarts: int
    python: str
    requirements: str
    function: str
    roles: Mapping[str, Any]
    data: Mapping[str, str] | Sequence[str]
    env: Mapping[str, str] | Sequence[str]
    env_file: str | Sequence[str]  # files of NAME=VALUE lines, as docker reads them
    params: Mapping[str, Any] | Sequence[str]
    metrics_pattern: str
    metrics_files: Sequence[str]
    primary: str
    mode: str
    tags: Mapping[str, str] | Sequence[str]
    artifacts: Sequence[str]
    notify: Sequence[str]  # https://…, an e-mail address, or run:COMMAND
    notify_on: str  # end or failure
    max_running: int  # it starts while fewer of the owner's jobs run
    workdir: str


class Submission(Options, total=False):
    """Job options, and options of the submit."""

    in_place: bool
    hold: str | None  # the reason: a person must release it; None: it is not held
    urgent: str | None  # the reason
    key: str | None  # Idempotency-Key: the same key never makes a second job; None: a fresh one
    after: Sequence[str]  # JOB, JOB:ok, JOB:any or JOB:failed: other jobs that must end first
    begin: str | float  # 22:00, a date, +2h, or seconds since the epoch
    client: Client


class Draft(NamedTuple):
    """A job before its submit: the spec as a mapping, its absolute work directory, and the spec's file if any."""

    spec: Mapping[str, Any]
    directory: Path
    in_place: bool = False
    hold: str | None = None
    file: Path | None = None
    urgent: str | None = None  # the reason
    key: str | None = None  # Idempotency-Key; None: a fresh one
    notes: tuple[str, ...] = ()  # what a batch script of Slurm means here
    set_params: tuple[str, ...] = ()  # parameters set by hand: refused if nothing would read them
    start: Mapping[str, Any] | None = None  # its start conditions, as in a request
    array: Array | None = None


class Prepared(NamedTuple):
    """A complete submission: the request body, the gathered code (None: in place), the patch to the commit.

    `along`: all that goes along (`goes_along`). `notes`: what is said of it at a submit. `doubts`: what is said in any case.
    """

    body: dict[str, Any]
    gathered: Gathered | None = None
    patch: Patch | None = None
    along: Mapping[str, Any] = MappingProxyType({})
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


class JobHandle(NamedTuple):
    """A submitted job: its `id`, and the `client` through which it was submitted."""

    id: str
    client: Client

    def wait(self, timeout_s: float | None = None) -> Row:
        """Wait until the job has ended. Raises: WaitTimeoutError."""
        return self.client.wait(self.id, timeout_s)

    def show(self) -> Row:
        """Everything about the job at this moment."""
        return self.client.job(self.id)

    def logs(self, rank: int | None = None) -> str:
        """The output so far, all attempts; of one rank or of all."""
        return "".join(chunk["text"] for page in pages(self.client, self.id, rank) for chunk in page["chunks"])

    def follow(self, rank: int | None = None) -> Iterator[str]:
        """Yield the output from its beginning until the job ends."""
        for page in follow(self.client, self.id, rank=rank, wait_s=5.0):
            for chunk in page["chunks"]:
                yield chunk["text"]

    def metrics(self, name: str | None = None) -> dict[str, list[list[float]]]:
        """`[step, value]` pairs by metric name."""
        return self.client.metrics(self.id, name)

    def cancel(self, reason: str = "") -> None:
        """Cancel the job."""
        self.client.cancel(self.id, reason)


def draft_command(
    command: str | Sequence[str] | None, options: Options, in_place: bool = False, hold: str | None = None
) -> Draft:
    """A draft from a command (or the option `function`) and options. The server validates it.

    Raises: UsageError.
    """
    mapping = from_options(options, command, os.environ)
    workdir = mapping.get("workdir")
    return Draft(mapping, existing(Path(workdir if isinstance(workdir, str) else ".").expanduser()), in_place, hold)


def existing(directory: Path) -> Path:
    """`directory` as an absolute path. Raises: UsageError if it does not exist."""
    directory = directory.absolute()
    if not directory.is_dir():
        raise UsageError(f"the work directory {directory} does not exist", "name another with workdir, or --workdir")
    return directory


def _quiet(text: str) -> None:
    """Say nothing."""


def send(client: Client, draft: Draft, say: Say = _quiet, explain: Explain | None = None) -> str:
    """Submit a draft, and upload its code if the server lacks it; returns the job's id. `say` and `explain`: as in
    `submit_prepared`. Raises: SpecError and other errors of the server.
    """
    key = draft.key or new_key()
    return submit_prepared(client, lambda: pack(draft), lambda prepared: client.submit(prepared.body, key), say, explain)


def send_array(client: Client, draft: Draft, array: Array, say: Say = _quiet, explain: Explain | None = None) -> list[str]:
    """Submit a draft as an array: one job for each index, all or none; returns the ids in order. Raises: errors of `send`."""
    key = draft.key or new_key()

    def bodies(prepared: Prepared) -> list[dict[str, Any]]:
        turn = {"array": key, "at_most": array.at_most} if array.at_most else {}
        start = {**(draft.start or {}), **turn}
        spec = prepared.body["spec"]
        body = {**prepared.body, "start": start} if start else prepared.body
        return [{**body, "spec": {**spec, "index": index}} for index in array.indices]

    return submit_prepared(client, lambda: pack(draft), lambda made: client.submit_batch(bodies(made), key), say, explain)


def submit_prepared(
    client: Client,
    make: Callable[[], Prepared],
    send_body: Callable[[Prepared], Answer],
    say: Say,
    explain: Explain | None = None,
) -> Answer:
    """Call `send_body`, which sends the request, and return its result. Upload code and patch if the server lacks them.

    `say` is called with messages: about long copies, and about what was left out. With `explain`, that is called instead
    with all that goes along. If a file changes meanwhile, the request is made again.
    Raises: ChangedError if files change at every try.
    """
    for tried in range(1, _TRIES + 1):
        try:
            prepared = make()
            answer = _upload_and_send(client, prepared, send_body, say)
        except ChangedError:
            if tried == _TRIES:
                raise
        else:
            break
    if explain is not None:
        explain(prepared.along)
    for note in (*prepared.doubts, *(prepared.notes if explain is None else ())):
        say(note)
    return answer


def _upload_and_send(client: Client, prepared: Prepared, send_body: Callable[[Prepared], Answer], say: Say) -> Answer:
    try:
        return send_body(prepared)
    except ConflictError:
        if prepared.gathered is None and prepared.patch is None:
            raise
    if prepared.gathered is not None:
        copy_code(client, prepared.gathered, say)  # this code was never submitted before
    if prepared.patch is not None:
        client.patch_store(prepared.patch.digest, prepared.patch.data)
    return send_body(prepared)


def foresee(client: Client, draft: Draft) -> Row:
    """Plan a draft: what would happen if it were submitted. Nothing is submitted. Raises: errors of `send`."""
    prepared = pack(draft)
    code, place = ({**prepared.body[name]} for name in ("code", "origin"))
    code.pop("digest", None)  # a plan copies nothing
    place.pop("git_diff", None)
    body = {**prepared.body, "code": code, "origin": place}
    return {**client.plan(body), **prepared.along, "directory": str(draft.directory), "in_place": draft.in_place}


def pack(draft: Draft) -> Prepared:
    """Make the request for a draft, gathering code, patch and data versions.

    Raises: SpecError (the requirements file or the interpreter does not exist), UsageError, TooLargeError, OperationError.
    """
    if draft.spec.get("environment"):
        from trainmaster.client.checks.environment import check  # noqa: PLC0415  # few jobs name one

        check(draft.spec, draft.directory, draft.file)
    gathered: Gathered | None = None
    if draft.in_place:
        state = git_state(str(draft.directory))
        code, git = {"in_place": True}, (state.commit, state.dirty)
        patch = Differ(str(draft.directory), state.overlooked).patch() if state.has_patch else None
    else:
        include, exclude = (code_paths(draft.directory, key) for key in ("include", "exclude"))
        gathered = gather(draft.directory, None, _own(draft.spec), include, exclude)
        check_programs(draft.spec, gathered.left_out)
        code, git, patch = _code(gathered), (gathered.git_commit, gathered.git_dirty), gathered.git_patch
    place = {**origin(draft.directory, git), **recorded(str(draft.directory), git[0], patch)}
    installed = of_job_in_place if draft.in_place else editable_outside
    place["editable"] = installed(draft.spec, place["variables"], place["directory"])
    doubts: list[str] = []
    if draft.spec.get("params"):
        from trainmaster.client.checks.param_readers import check_set, reads_params  # noqa: PLC0415  # few jobs have parameters

        reads = reads_params(draft.spec, gathered)
        doubts = check_set(draft.spec, draft.set_params, reads)
        if reads is False:
            place["reads_params"] = False
    body: dict[str, Any] = {"spec": _settled(draft), "origin": place, "code": code, "hold": draft.hold}
    if draft.urgent is not None:
        body["urgent"] = draft.urgent
    if draft.start is not None:
        body["start"] = draft.start
    if draft.spec.get("data"):
        from trainmaster.client.data import versions  # noqa: PLC0415  # few jobs declare data

        body["data"] = versions(draft.spec, draft.directory)
    notes = [*notable(gathered, place["editable"]), *outside(draft.spec, draft.directory)] if gathered is not None else []
    return Prepared(body, gathered, patch, goes_along(gathered, draft.spec, place), tuple(notes), tuple(doubts))


def _settled(draft: Draft) -> Mapping[str, Any]:
    """The spec with default project and tags filled in; the spec's own values take precedence."""
    spec = dict(draft.spec)
    project, tags, own = default_project(draft.directory), default_tags(draft.directory), spec.get("tags") or {}
    if project is not None and spec.get("project", DEFAULT_PROJECT) == DEFAULT_PROJECT:
        spec["project"] = project
    if tags and isinstance(own, Mapping):
        spec["tags"] = {**tags, **own}
    return spec


def _own(spec: Mapping[str, Any]) -> list[str]:
    """The globs of files that the job writes. Invalid ones are ignored here: the server validates the spec."""
    checkpoint, artifacts = spec.get("checkpoint"), spec.get("artifacts")
    globs = [checkpoint.get("path") if isinstance(checkpoint, Mapping) else checkpoint]
    globs += artifacts if isinstance(artifacts, list | tuple) else []
    return [glob for glob in globs if isinstance(glob, str) and glob]


def _code(gathered: Gathered) -> Row:
    """The request's description of a code copy (`model.spec.CodeCopy`)."""
    size = {"files": gathered.files, "bytes": gathered.bytes, "linked": gathered.linked}
    return {"digest": digest(gathered.tree), **size}


def copy_code(client: Client, gathered: Gathered, say: Say) -> None:
    """Upload the objects of a work directory that the server lacks. Raises: TooLargeError, OperationError."""
    missing = client.code_missing(gathered.tree)
    if missing:
        sizes = {entry["sha256"]: entry["bytes"] for entry in gathered.tree["entries"] if "sha256" in entry}
        mib = sum(sizes.get(sha256, 0) for sha256 in missing) / MIB
        say(f"copying {len(missing)} of {gathered.files} files{f', {mib:,.0f} MiB,' if mib >= 1 else ''} to the server")
        for group in _grouped(missing, sizes):
            client.code_store(pack_zip(gathered, group))
        missing = client.code_missing(gathered.tree)
    if missing:
        raise OperationError(f"the server still lacks {len(missing)} files of the code copy", "submit again")


def _grouped(digests: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Group objects so that each group fits one request."""
    group: list[str] = []
    size = 0
    for sha256 in digests:
        if group and size + sizes.get(sha256, 0) > _ARCHIVE_BYTES:
            yield group
            group, size = [], 0
        group.append(sha256)
        size += sizes.get(sha256, 0)
    if group:
        yield group


def submit(command: str | Sequence[str] | None = None, **options: Unpack[Submission]) -> JobHandle:
    """Submit a training program. A string is a line for bash, a sequence is argv. `function` replaces a command.

    Starts a server on this machine if none is configured. Raises: SpecError, UsageError (no such project, class or pool),
    PermissionDeniedError (the class), UnreachableError, AuthenticationError, ImpossibleError, TooLargeError.
    """
    given: dict[str, Any] = dict(options)
    in_place, hold, client = given.pop("in_place", False), given.pop("hold", None), given.pop("client", None)
    urgent, key = given.pop("urgent", None), given.pop("key", None)
    start = start_of(given.pop("after", ()), given.pop("begin", None))
    draft = draft_command(command, given, in_place, hold)._replace(urgent=urgent, key=key, start=start)  # type: ignore[arg-type]
    if client is None and not server_known():
        from trainmaster.spec.document import from_mapping  # noqa: PLC0415  # a running server would validate it

        from_mapping(draft.spec)
    client = client or Client()
    return JobHandle(send(client, draft), client)
