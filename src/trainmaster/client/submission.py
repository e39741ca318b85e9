"""Submitting from Python and from the command line alike: options or a file become one spec, the code goes along.

`submit("python train.py", gpus=2, ranks=2, checkpoint="out/*.pt")` makes the very job that
`tm submit --gpus 2 --ranks 2 --checkpoint 'out/*.pt' -- python train.py` makes.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

from trainmaster.client.api import Client, Row, follow, new_key, server_known
from trainmaster.client.code_copy.gather import Gathered, gather, pack_zip
from trainmaster.client.code_copy.git import Differ, Patch, recorded
from trainmaster.client.code_copy.listing import git_state
from trainmaster.client.origin import origin
from trainmaster.client.settings import DEFAULT_PROJECT, code_include, default_project, default_tags
from trainmaster.errors import ChangedError, ConflictError, OperationError, UsageError
from trainmaster.home import Home
from trainmaster.spec.shorthand import from_options
from trainmaster.wire.code import digest

Answer = TypeVar("Answer")
_TRIES = 5  # to find the work directory at rest
_ARCHIVE_BYTES = 48 * 1024 * 1024  # of objects sent at once


class Options(TypedDict, total=False):
    """Everything that may be said of a job without a file; the command line has an option for each."""

    name: str
    project: str
    experiment: str
    priority: int
    work: str  # the workload class
    pool: str
    nodes: int
    nodes_max: int
    gpus: int | str | Sequence[str]  # several: any of these
    choose: str  # finish | cost
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
    params: Mapping[str, Any] | Sequence[str]
    metrics_pattern: str
    primary: str
    mode: str
    tags: Mapping[str, str] | Sequence[str]
    artifacts: Sequence[str]
    workdir: str


class Submission(Options, total=False):
    """Options, and how the job is handed in."""

    in_place: bool
    hold: str | None
    urgent: str | None  # why it cannot wait for its turn
    key: str | None  # the same one never makes a second job; None: a fresh one
    client: Client


class Draft(NamedTuple):
    """What is about to be submitted: a spec as a mapping, its work directory, absolute, and the file that it stands in."""

    spec: Mapping[str, Any]
    directory: Path
    in_place: bool = False
    hold: str | None = None
    file: Path | None = None
    urgent: str | None = None  # why it cannot wait for its turn
    key: str | None = None  # its Idempotency-Key; None: a fresh one


class Parcel(NamedTuple):
    """A submission: the request's body, the code as it was found (None: it runs in place), the patch to what is committed."""

    body: dict[str, Any]
    gathered: Gathered | None = None
    patch: Patch | None = None


class JobHandle(NamedTuple):
    """A submitted job."""

    id: str
    client: Client

    def wait(self, timeout_s: float | None = None) -> Row:
        """The job once it has ended. Raises: WaitTimeoutError."""
        return self.client.wait(self.id, timeout_s)

    def show(self) -> Row:
        """Everything about it, as it is now."""
        return self.client.job(self.id)

    def logs(self, rank: int | None = None) -> str:
        """What it printed so far, all attempts; of one rank or of all."""
        return "".join(chunk["text"] for page in pages(self.client, self.id, rank) for chunk in page["chunks"])

    def follow(self, rank: int | None = None) -> Iterator[str]:
        """What it prints, from its beginning until it ends."""
        for page in follow(self.client, self.id, rank=rank, wait_s=5.0):
            for chunk in page["chunks"]:
                yield chunk["text"]

    def metrics(self, name: str | None = None) -> dict[str, list[list[float]]]:
        """`[step, value]` pairs by metric name."""
        return self.client.metrics(self.id, name)

    def cancel(self, reason: str = "") -> None:
        """End it."""
        self.client.cancel(self.id, reason)


def pages(client: Client, ref: str, rank: int | None = None) -> Iterator[Row]:
    """Pages of a log as far as it goes now."""
    after: str | None = None
    while True:
        page = client.logs(ref, rank=rank, after=after)
        if not page["chunks"]:
            return
        yield page
        after = page["cursor"]


def draft_command(
    command: str | Sequence[str] | None, options: Options, in_place: bool = False, hold: str | None = None
) -> Draft:
    """A draft from a command (or the option `function`) and options, as they were said: the server validates it.

    Raises: UsageError.
    """
    mapping = from_options(options, command, os.environ)
    workdir = mapping.get("workdir")
    return Draft(mapping, existing(Path(workdir if isinstance(workdir, str) else ".").expanduser()), in_place, hold)


def existing(directory: Path) -> Path:
    """`directory`, absolute. Raises: UsageError when there is none."""
    directory = directory.absolute()
    if not directory.is_dir():
        raise UsageError(f"the work directory {directory} does not exist", "name another with workdir, or --workdir")
    return directory


def send(client: Client, draft: Draft, say: Callable[[str], None] = lambda text: None) -> str:
    """Hand a draft in, its code too where the server has not got it yet; the job's id. `say` hears of copies that take
    a while. Raises: SpecError and what else the server refuses it for.
    """
    key = draft.key or new_key()
    return deliver(client, lambda: pack(draft, say), lambda parcel: client.submit(parcel.body, key), say)


def deliver(
    client: Client, make: Callable[[], Parcel], hand_in: Callable[[Parcel], Answer], say: Callable[[str], None]
) -> Answer:
    """What `hand_in` returns, which sends the parcel's body; what goes with it is sent where the server lacks it.

    The parcel is made anew where a file changes on the way: a log in the work directory grows all the time.
    Raises: ChangedError where one changes at every try.
    """
    for _ in range(_TRIES - 1):
        with suppress(ChangedError):
            return _delivered(client, make(), hand_in, say)
    return _delivered(client, make(), hand_in, say)


def _delivered(client: Client, parcel: Parcel, hand_in: Callable[[Parcel], Answer], say: Callable[[str], None]) -> Answer:
    try:
        return hand_in(parcel)
    except ConflictError:
        if parcel.gathered is None and parcel.patch is None:
            raise
    if parcel.gathered is not None:
        copy_code(client, parcel.gathered, say)  # the first submit of this code
    if parcel.patch is not None:
        client.patch_store(parcel.patch.digest, parcel.patch.data)
    return hand_in(parcel)


def foresee(client: Client, draft: Draft, say: Callable[[str], None] = lambda text: None) -> Row:
    """What would become of a draft were it submitted now; nothing is. Raises: what `send` would."""
    parcel = pack(draft, say)
    code, place = ({**parcel.body[name]} for name in ("code", "origin"))
    code.pop("digest", None)  # nothing is copied for a plan
    place.pop("git_diff", None)
    links = list(parcel.gathered.links) if parcel.gathered is not None else []
    body = {**parcel.body, "code": code, "origin": place}
    return {**client.plan(body), "linked": links, "directory": str(draft.directory)}


def pack(draft: Draft, say: Callable[[str], None] = lambda text: None) -> Parcel:
    """A draft as the server is sent it, and what goes with it.

    Raises: SpecError (no such requirements file), UsageError, TooLargeError, OperationError.
    """
    environment = draft.spec.get("environment")
    named = environment.get("requirements") if isinstance(environment, Mapping) else None
    if isinstance(named, str):
        from trainmaster.client.requirements import check  # noqa: PLC0415  # few jobs have any

        check(named, draft.directory, draft.file)
    gathered: Gathered | None = None
    if draft.in_place:
        code, git = {"in_place": True}, git_state(str(draft.directory))
        patch = Differ(str(draft.directory)).patch() if git[0] is not None and git[1] else None
    else:
        state = _state(draft.directory)
        gathered = gather(draft.directory, own=[*_own(draft.spec), *state], include=code_include(draft.directory))
        for note in gathered.notes:
            if not any(note.startswith(f"{place}/") or f" {place!r} " in note for place in state):
                say(note)
        code, git, patch = _code(gathered), (gathered.git_commit, gathered.git_dirty), gathered.git_patch
    place = {**origin(draft.directory, git), **recorded(str(draft.directory), git[0], patch)}
    body: dict[str, Any] = {"spec": _settled(draft), "origin": place, "code": code, "hold": draft.hold}
    if draft.urgent is not None:
        body["urgent"] = draft.urgent
    if draft.spec.get("data"):
        from trainmaster.client.data import versions  # noqa: PLC0415  # few jobs name their data

        body["data"] = versions(draft.spec, draft.directory)
    return Parcel(body, gathered, patch)


def _settled(draft: Draft) -> Mapping[str, Any]:
    """The spec with the project and the tags that a person or a repository gives all jobs; what it says itself wins."""
    spec = dict(draft.spec)
    project, tags, own = default_project(draft.directory), default_tags(draft.directory), spec.get("tags") or {}
    if project is not None and spec.get("project", DEFAULT_PROJECT) == DEFAULT_PROJECT:
        spec["project"] = project
    if tags and isinstance(own, Mapping):
        spec["tags"] = {**tags, **own}
    return spec


def _own(spec: Mapping[str, Any]) -> list[str]:
    """The globs of what the job itself writes, as far as they are any: the server judges the spec."""
    checkpoint, artifacts = spec.get("checkpoint"), spec.get("artifacts")
    globs = [checkpoint.get("path") if isinstance(checkpoint, Mapping) else checkpoint]
    globs += artifacts if isinstance(artifacts, list | tuple) else []
    return [glob for glob in globs if isinstance(glob, str) and glob]


def _code(gathered: Gathered) -> Row:
    """A code copy as the server is told of it (`model.spec.CodeCopy`)."""
    size = {"files": gathered.files, "bytes": gathered.bytes, "linked": gathered.linked}
    return {"digest": digest(gathered.tree), **size}


def _state(directory: Path) -> list[str]:
    """This machine's own server's files, where they lie in a work directory: they hold its token and are no code."""
    root = Home.default().root
    return [root.relative_to(directory).as_posix()] if root != directory and root.is_relative_to(directory) else []


def copy_code(client: Client, gathered: Gathered, say: Callable[[str], None]) -> None:
    """Bring what the server lacks of a work directory there. Raises: TooLargeError, OperationError."""
    missing = client.code_missing(gathered.tree)
    if missing:
        say(f"copying {len(missing)} of {gathered.files} files to the server")
        sizes = {entry["sha256"]: entry["bytes"] for entry in gathered.tree["entries"] if "sha256" in entry}
        for group in _grouped(missing, sizes):
            client.code_store(pack_zip(gathered, group))
        missing = client.code_missing(gathered.tree)
    if missing:
        raise OperationError(f"the server still lacks {len(missing)} files of the code copy", "submit again")


def _grouped(digests: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Objects in groups that one request can carry."""
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
    """Submit a training program; a string is a line for bash, a sequence is argv. `function` takes the place of a command.

    Starts a server on this machine where none is configured. Raises: SpecError, UnreachableError, AuthenticationError,
    ImpossibleError, TooLargeError.
    """
    given: dict[str, Any] = dict(options)
    in_place, hold, client = given.pop("in_place", False), given.pop("hold", None), given.pop("client", None)
    urgent, key = given.pop("urgent", None), given.pop("key", None)
    draft = draft_command(command, given, in_place, hold)._replace(urgent=urgent, key=key)  # type: ignore[arg-type]
    if client is None and not server_known():
        from trainmaster.spec.document import from_mapping  # noqa: PLC0415  # a server that runs would validate it

        from_mapping(draft.spec)
    client = client or Client()
    return JobHandle(send(client, draft), client)
