"""`tm get`: a job's artifacts, listed or fetched; what arrives is checked against its digest."""

import hashlib
import os
import sys
from pathlib import Path
from typing import BinaryIO

import click

from trainmaster.cli import words
from trainmaster.cli.session import Session, remote
from trainmaster.client.api import Client, Row
from trainmaster.errors import ConflictError, NotFoundError, OperationError


@click.command()
@click.argument("job")
@click.argument("path", required=False)
@click.option("-o", "--output", metavar="FILE", help="Where to put it; - is standard output. Default: its name, here.")
@remote
def get(session: Session, job: str, path: str | None, output: str | None) -> None:
    """List a job's artifacts, or fetch the one at PATH."""
    client, out = session.client(), session.out
    found = client.job(job)
    if path is None:
        if out.json:
            out.value(found["artifacts"])
        elif not found["artifacts"]:
            out.note(f"{found['id']} has kept no artifacts; name them in its spec: artifacts: [out/*.png]")
        else:
            rows = [[one["path"], words.size(one["bytes"]), one["digest"][:12]] for one in found["artifacts"]]
            out.table(("PATH", "SIZE", "SHA-256"), rows)
            out.note(f"fetch one: tm get {found['id']} PATH")
        return
    artifact = next((one for one in reversed(found["artifacts"]) if one["path"] == path), None)
    if artifact is None:
        raise NotFoundError(f"{found['id']} has no artifact {path!r}", f"list them: tm get {found['id']}")
    if output == "-":
        _checked(client, found, artifact, sys.stdout.buffer)
        return
    target = Path(output) if output is not None else Path(Path(path).name)
    if target.is_dir():
        target = target / Path(path).name
    if output is None and target.exists():
        raise ConflictError(f"{target} exists already", f"say where: tm get {found['id']} {path} -o FILE")
    _fetch(client, found, artifact, target)
    if out.json:
        out.value({"path": str(target), "bytes": artifact["bytes"], "digest": artifact["digest"]})
    else:
        out.note(f"{target}: {words.size(artifact['bytes'])}, SHA-256 verified")


class _Digesting:
    """A sink that digests what passes."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink, self.sha256 = sink, hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        """Digest, then pass on."""
        self.sha256.update(data)
        return self._sink.write(data)


def _checked(client: Client, job: Row, artifact: Row, sink: BinaryIO) -> None:
    """Copy, and raise OperationError when the bytes are not those that were kept."""
    digesting = _Digesting(sink)
    client.artifact(job["id"], artifact["path"], digesting)
    sink.flush()
    if digesting.sha256.hexdigest() != artifact["digest"]:
        raise OperationError(f"{artifact['path']} arrived damaged: its digest is not {artifact['digest'][:12]}", "try again")


def _fetch(client: Client, job: Row, artifact: Row, target: Path) -> None:
    """Whole or not at all: beside its place first, then renamed."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            _checked(client, job, artifact, file)
        os.replace(part, target)
    except OSError as error:
        raise OperationError(f"{target} cannot be written: {error.strerror}", "choose another place with -o") from error
    finally:
        part.unlink(missing_ok=True)
