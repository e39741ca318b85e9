"""`tm artifacts` and `tm get`: list and download a job's artifacts. Downloads are checked against their digests."""

import difflib
import fnmatch
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import click

from trainmaster.cli.render import human
from trainmaster.cli.session import JOB, Session, quiet_option, remote
from trainmaster.cli.whole_file import whole_file
from trainmaster.client.api import Client, Row
from trainmaster.errors import ConflictError, NotFoundError, OperationError, UsageError
from trainmaster.wire.names import is_artifact_name

KINDS = ("file", "metrics", "plot", "confusion_matrix", "model", "pickle")
_NAMING = "to store files, name them in its spec: artifacts: [out/*.png]"
_HEADERS = ("PATH", "KIND", "SIZE", "SHA-256", "TRY")
_BLOCK_BYTES = 1024 * 1024


class _CannotWriteError(OperationError):
    """One file cannot be written; others may be."""


@click.command()
@click.argument("job", type=JOB)
@click.option("--kind", type=click.Choice(KINDS), help="Only artifacts of this kind.")
@quiet_option("Print paths only.")
@remote
def artifacts(session: Session, job: str, kind: str | None) -> None:
    """List a job's artifacts: path, kind, size, digest, attempt."""
    answer = session.client().artifacts(job, kind)
    if not answer["artifacts"] and answer["total"] and not session.out.json:
        session.out.note(f"{answer['id']} has no artifact of kind {kind}; all of them: tm artifacts {answer['id']}")
        return
    _list(session, answer)


@click.command()
@click.argument("job", type=JOB)
@click.argument("path", required=False)
@click.option("--all", "everything", is_flag=True, help="All artifacts of the job.")
@click.option("-o", "--output", metavar="PLACE", help="The file, or the directory for several; - is standard output.")
@click.option("-f", "--force", is_flag=True, help="Replace existing files with other contents.")
@remote
def get(  # noqa: PLR0913  a command's options
    session: Session, job: str, path: str | None, everything: bool, output: str | None, force: bool
) -> None:
    """Download the artifact at PATH, all that match PATH as a glob, or with --all everything; without these, list them.

    One file is written here under its own name. Several keep their paths below the current directory, or below PLACE. In a
    glob `*` matches `/` too: tm get JOB '*.png'.
    """
    client = session.client()
    if everything and path is not None:
        raise UsageError("both a path and --all are given", "give one of them")
    answer = client.artifacts(job, path=path)
    job, found = answer["id"], answer["artifacts"]
    if path is None and not everything:
        _list(session, answer)
        return
    if path is not None and found:
        _get_one(session, job, found[0], (output, force))
        return
    if path is not None:
        found = client.artifacts(job)["artifacts"]
    chosen = found if path is None else [one for one in found if fnmatch.fnmatchcase(one["path"], path)]
    if not chosen:
        raise _none(session, job, path, [one["path"] for one in found])
    if output == "-":
        raise UsageError(f"{len(chosen)} artifacts cannot all go to standard output", "name one, or a directory with -o")
    _get_several(session, job, chosen, (Path(output or "."), force))


def _list(session: Session, answer: Row) -> None:
    out, job, found = session.out, answer["id"], answer["artifacts"]
    if out.json:
        out.value(found)
    elif out.quiet:
        for one in found:
            out.data(one["path"])
    elif not found:
        out.note(f"{job} has no artifacts; {_keeping(session, job)}; see also: tm show {job}")
    else:
        rows = [[one["path"], one["kind"], human.size(one["bytes"]), one["digest"][:12], str(one["attempt"])]
                for one in found]  # fmt: skip
        out.table(_HEADERS, rows)
        total = human.size(sum(one["bytes"] for one in found))
        removed = answer.get("removed")  # a server of an older version does not say so
        more = "removed to free space" if removed else f"download: tm get {job} PATH, tm get {job} --all -o DIR"
        out.note(f"{human.plural(len(found), 'artifact')}, {total}; {more}")


def _keeping(session: Session, job: str) -> str:
    """A hint for a job without artifacts."""
    named = session.client().job(job)["spec"].get("artifacts")
    return f"its spec names {', '.join(named)}" if named else _NAMING


def _none(session: Session, job: str, path: str | None, known: Sequence[str]) -> NotFoundError:
    if not known:
        return NotFoundError(f"{job} has no artifacts", f"{_keeping(session, job)}; see also: tm show {job}")
    if path is not None and any(mark in path for mark in "*?["):
        return NotFoundError(f"{job} has no artifact that matches {path!r}", f"list them: tm artifacts {job}")
    near = difflib.get_close_matches(path or "", known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"list them: tm artifacts {job}"
    return NotFoundError(f"{job} has no artifact {path!r}", hint)


def _get_one(session: Session, job: str, artifact: Row, where: tuple[str | None, bool]) -> None:
    """Download one. Without --force, a different file is replaced only if the caller named it as the target."""
    (output, force), client, out, path = where, session.client(), session.out, artifact["path"]
    if output == "-":
        _checked(client, job, artifact, sys.stdout.buffer)
        return
    target = Path(output) if output is not None else Path(Path(path).name)
    named = output is not None and not target.is_dir()
    if target.is_dir():
        target = target / Path(path).name
    if not named and not force and target.exists() and _digest(target) != artifact["digest"]:
        hint = f"another place: tm get {job} {path} -o FILE; or replace: --force"
        raise ConflictError(f"{target} exists already with other contents", hint)
    _fetch(client, job, artifact, target)
    if out.json:
        out.value(_told(artifact, target))
    else:
        out.note(f"{target}: {human.size(artifact['bytes'])}, SHA-256 verified")


def _get_several(session: Session, job: str, chosen: Sequence[Row], where: tuple[Path, bool]) -> None:
    """Download several into a directory. Without --force, nothing is downloaded if a different file would be replaced."""
    (directory, force), client, out = where, session.client(), session.out
    targets = [(one, directory / inside) for one in chosen if (inside := _inside(one["path"])) is not None]
    _refuse_equal(targets)
    there = {target for one, target in targets if target.is_file() and _digest(target) == one["digest"]}
    taken = [target for _, target in targets if target not in there and target.exists()]
    if taken and not force:
        more = f" and {len(taken) - 1} others" if len(taken) > 1 else ""
        verb = "exist" if len(taken) > 1 else "exists"
        hint = "another place: -o DIR; or replace: --force"
        raise ConflictError(f"{taken[0]}{more} {verb} already with other contents", hint)
    outside = [one["path"] for one in chosen if _inside(one["path"]) is None]
    if outside:
        out.warn(f"not downloaded, because it would be outside {directory}: {', '.join(map(repr, outside[:3]))}"
                 f"{' and others' if len(outside) > 3 else ''}; download it alone: tm get {job} PATH -o FILE")  # fmt: skip
    failed = []
    for one, target in targets:
        if target not in there:
            try:
                _fetch(client, job, one, target)
            except _CannotWriteError as error:
                failed.append(error)
    if failed:
        missing = f"{len(failed)} of {human.plural(len(targets), 'artifact')} could not be written"
        raise OperationError(f"{missing}; the first: {failed[0].message}", failed[0].hint)
    if out.json:
        out.value([_told(one, target) for one, target in targets])
        return
    same = f", {len(there)} of them existed already" if there else ""
    total = human.size(sum(one["bytes"] for one, _ in targets))
    out.note(f"{directory}: {human.plural(len(targets), 'artifact')}, {total}, SHA-256 verified{same}")


def _refuse_equal(targets: Sequence[tuple[Row, Path]]) -> None:
    """Raises: ConflictError if one of them would replace another: `a/b` and `a/./b`."""
    first: dict[Path, str] = {}
    for one, target in targets:
        other = first.setdefault(target, one["path"])
        if other != one["path"]:
            raise ConflictError(f"{other} and {one['path']} would both be {target}", "download each alone, with -o FILE")


def _told(artifact: Row, target: Path) -> Row:
    return {"path": str(target), "artifact": artifact["path"], "bytes": artifact["bytes"], "digest": artifact["digest"]}


def _inside(path: str) -> Path | None:
    """The artifact's path, if it stays below a directory; else None (older versions accepted such paths)."""
    return Path(*(part for part in path.split("/") if part not in ("", "."))) if is_artifact_name(path) else None


def _digest(path: Path) -> str | None:
    """SHA-256 of a file; None if it is not a file."""
    if not path.is_file():
        return None
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            sha256.update(block)
    return sha256.hexdigest()


class _Digesting:
    """A sink that digests the bytes on their way."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink, self.sha256 = sink, hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        """Digest the bytes, then write them."""
        self.sha256.update(data)
        return self._sink.write(data)


def _checked(client: Client, job: str, artifact: Row, sink: BinaryIO) -> None:
    """Copy the bytes. Raises: OperationError if their digest is wrong."""
    digesting = _Digesting(sink)
    client.artifact(job, artifact["path"], digesting)
    sink.flush()
    if digesting.sha256.hexdigest() != artifact["digest"]:
        raise OperationError(f"{artifact['path']} arrived damaged: its digest is not {artifact['digest'][:12]}", "try again")


def _fetch(client: Client, job: str, artifact: Row, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as file:
            _checked(client, job, artifact, file)
    except OSError as error:
        raise _CannotWriteError(f"{target} cannot be written: {error.strerror}", "choose another place with -o") from error
