"""`tm export`: writes this server's history to a file that `tm simulate` replays."""

import gzip
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, cast

import click

from trainmaster.cli.render import human
from trainmaster.cli.session import Session, remote
from trainmaster.cli.whole_file import whole_file
from trainmaster.errors import OperationError, UsageError


class _CountingSink:
    """A sink that counts lines."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.lines = file, 0

    def write(self, data: bytes, /) -> int:
        """Count the lines and write the bytes."""
        self.lines += data.count(b"\n")
        return self._file.write(data)


@click.command()
@click.argument("file", type=click.Path(), required=False)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@remote
def export(session: Session, file: str | None, force: bool) -> None:
    """Write the history of all jobs: their owners, their requests, how long each attempt ran.

    JSON lines: a header with the nodes, then one line per job. Commands are included as digests only; parameters, tags and
    files are left out; names of users and projects are included. FILE may end in `.gz`; without FILE it goes to standard
    output. `tm simulate FILE` replays it.

    \b
    tm export history.jsonl.gz
    tm simulate history.jsonl.gz --compare fifo,learned
    """
    if file is None:
        session.client().history(cast(BinaryIO, sys.stdout.buffer))
        return
    path = Path(file)
    if path.exists() and not force:
        raise UsageError(f"{path} is there already", "choose another name, or give --force")
    client = session.client()
    try:
        with whole_file(path) as whole, gzip.open(whole, "wb") if path.suffix == ".gz" else nullcontext(whole) as target:
            counted = _CountingSink(cast(BinaryIO, target))
            client.history(counted)
    except OSError as error:
        raise OperationError(f"{path} cannot be written: {error.strerror}", "choose another place") from error
    jobs, size = counted.lines - 1, path.stat().st_size
    if session.out.json:
        session.out.value({"path": str(path), "jobs": jobs, "bytes": size})
    else:
        session.out.note(f"{path}: {human.plural(jobs, 'job')}, {human.size(size)}; to replay it: tm simulate {path}")
