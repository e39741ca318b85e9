"""Submitting from Python and from the command line alike: options or a file become one spec, the code goes along.

`submit("python train.py", gpus=2, ranks=2, checkpoint="out/*.pt")` makes the very job that
`tm submit --gpus 2 --ranks 2 --checkpoint 'out/*.pt' -- python train.py` makes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from trainmaster.client.api import Client, Row, follow
from trainmaster.client.code import Gathered, gather, pack_zip
from trainmaster.client.listing import git_state
from trainmaster.client.origin import origin
from trainmaster.errors import OperationError, UsageError
from trainmaster.home import Home
from trainmaster.model.spec import CodeCopy, JobSpec
from trainmaster.spec.document import from_mapping, load_file, to_mapping, workdir_path
from trainmaster.spec.shorthand import from_options

_ARCHIVE_BYTES = 48 * 1024 * 1024  # of objects sent at once


class Options(TypedDict, total=False):
    """Everything that may be said of a job without a file; the command line has an option for each."""

    name: str
    project: str
    experiment: str
    priority: int
    nodes: int
    gpus: int | str
    cpus: float
    memory: str
    ranks: int
    time_limit: str | float
    checkpoint: str
    keep: int
    resume_arguments: str
    restarts: int
    python: str
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
    client: Client


@dataclass(frozen=True, slots=True)
class Draft:
    """A valid spec that nobody has been told of yet. `directory` is its work directory, absolute."""

    spec: JobSpec
    directory: Path
    in_place: bool = False
    hold: str | None = None


@dataclass(frozen=True, slots=True)
class JobHandle:
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


def draft_command(command: str | Sequence[str], options: Options, in_place: bool = False, hold: str | None = None) -> Draft:
    """A draft from a command and options. Raises: SpecError."""
    spec = from_mapping(from_options(options, command))
    return _draft(spec, None, in_place, hold)


def draft_file(path: Path, options: Options, in_place: bool = False, hold: str | None = None) -> Draft:
    """A draft from a spec file, `options` winning over it. Raises: SpecError with file, line and column."""
    spec = load_file(path)
    directory = workdir_path(spec, path)
    if options:
        mapping = to_mapping(spec)
        more = from_options(options, mapping["command"])
        followed = spec.resources.ranks == (spec.resources.gpus or 1)
        if "gpus" in options and followed:
            del mapping["resources"]["ranks"]  # one rank per GPU: it follows the new number
        spec = from_mapping(_merged(mapping, more))
        if "workdir" in options:
            directory = workdir_path(spec, None)  # said on the command line: relative to where that is
    return _checked(Draft(spec, directory, in_place, hold))


def _draft(spec: JobSpec, file: Path | None, in_place: bool, hold: str | None) -> Draft:
    return _checked(Draft(spec, workdir_path(spec, file), in_place, hold))


def _checked(draft: Draft) -> Draft:
    if not draft.directory.is_dir():
        raise UsageError(f"the work directory {draft.directory} does not exist", "name another with workdir, or --workdir")
    return draft


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with what `over` says, section by section."""
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged


def send(client: Client, draft: Draft, say: Callable[[str], None] = lambda text: None, key: str | None = None) -> str:
    """Hand a draft in, its code first; the job's id. `say` hears of copies that take a while."""
    if draft.in_place:
        code, git = CodeCopy(in_place=True), git_state(str(draft.directory))
    else:
        state = _state(draft.directory)
        own = [glob for glob in (draft.spec.checkpoint.path, *draft.spec.artifacts, *state) if glob]
        gathered = gather(draft.directory, own=own)
        for note in gathered.notes:
            if not any(note.startswith(f"{place}/") or f" {place!r} " in note for place in state):
                say(note)
        code, git = copy_code(client, gathered, say), (gathered.git_commit, gathered.git_dirty)
    place = asdict(origin(draft.directory, git))
    return client.submit({"spec": to_mapping(draft.spec), "origin": place, "code": asdict(code), "hold": draft.hold}, key)


def _state(directory: Path) -> list[str]:
    """This machine's own server's files, where they lie in a work directory: they hold its token and are no code."""
    root = Home.default().root
    return [root.relative_to(directory).as_posix()] if root != directory and root.is_relative_to(directory) else []


def copy_code(client: Client, gathered: Gathered, say: Callable[[str], None]) -> CodeCopy:
    """Bring what the server lacks of a work directory there. Raises: TooLargeError, OperationError."""
    digest, missing = client.code_missing(gathered.tree)
    if missing:
        say(f"copying {len(missing)} of {gathered.files} files to the server")
        sizes = {entry["sha256"]: entry["bytes"] for entry in gathered.tree["entries"] if "sha256" in entry}
        for group in _grouped(missing, sizes):
            client.code_store(pack_zip(gathered, group))
        digest, missing = client.code_missing(gathered.tree)
    if missing:
        raise OperationError(f"the server still lacks {len(missing)} files of the code copy", "submit again")
    return CodeCopy(digest, gathered.files, gathered.bytes, gathered.linked)


def _grouped(digests: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Objects in groups that one request can carry."""
    group: list[str] = []
    size = 0
    for digest in digests:
        if group and size + sizes.get(digest, 0) > _ARCHIVE_BYTES:
            yield group
            group, size = [], 0
        group.append(digest)
        size += sizes.get(digest, 0)
    if group:
        yield group


def submit(command: str | Sequence[str], **options: Unpack[Submission]) -> JobHandle:
    """Submit a training program; a string is a line for bash, a sequence is argv.

    Starts a server on this machine where none is configured. Raises: SpecError, UnreachableError, AuthenticationError,
    ImpossibleError, TooLargeError.
    """
    given: dict[str, Any] = dict(options)
    in_place, hold, client = given.pop("in_place", False), given.pop("hold", None), given.pop("client", None)
    draft = draft_command(command, given, in_place, hold)  # type: ignore[arg-type]
    client = client or Client()
    return JobHandle(send(client, draft), client)
