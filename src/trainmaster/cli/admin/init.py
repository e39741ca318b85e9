"""`tm init`: creates example files that run as they are."""

import json
import re
import sys
from importlib import resources
from pathlib import Path

import click

from trainmaster.cli.session import Session, offline
from trainmaster.errors import ConflictError, UsageError

STARTERS = {
    "single": "one process of plain Python, with checkpoints",
    "ddp": "PyTorch DistributedDataParallel on two ranks",
    "own": "a spec for a script you already have",
}
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_FILE = "train.yaml"


@click.command()
@click.argument("directory", default=".", metavar="[DIRECTORY]")
@click.option("--starter", type=click.Choice(list(STARTERS)), help="Which starter; on a terminal you are asked.")
@click.option("--script", metavar="FILE", help="With `own`: your script; default: the only one in the directory.")
@click.option("--no-input", is_flag=True, help="Do not ask.")
@offline
def init(session: Session, directory: str, starter: str | None, script: str | None, no_input: bool) -> None:
    """Create example files that run as they are. Existing files are not overwritten.

    \b
    single  one process of plain Python, with checkpoints
    ddp     PyTorch DistributedDataParallel on two ranks
    own     a spec for a script you already have
    """
    place, out = Path(directory), session.out
    if script is not None and starter is None:
        starter = "own"
    if starter is None:
        starter = _ask() if sys.stdin.isatty() and not no_input and not out.json else "single"
    files = _files(starter, place, script)
    there = [name for name in files if (place / name).exists()]
    if there:
        raise ConflictError(f"{place / there[0]} exists already", "name another directory: tm init DIRECTORY")
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / name).write_text(text)
    if out.json:
        out.value({"starter": starter, "directory": str(place.absolute()), "files": sorted(files)})
        return
    for name in sorted(files):
        out.data(str(place / name))
    spec = _FILE if place == Path() else str(place / _FILE)
    needs = "needs PyTorch in the python3 of your shell; " if starter == "ddp" else ""
    out.note(f"next: {needs}tm run {spec}")


def _ask() -> str:
    """Ask the user for a starter."""
    for name, line in STARTERS.items():
        click.echo(f"  {name:8} {line}", err=True)
    return str(click.prompt("starter", type=click.Choice(list(STARTERS)), default="single", err=True))


def _files(starter: str, place: Path, script: str | None) -> dict[str, str]:
    """The files of a starter: name -> text."""
    if script is not None and starter != "own":
        raise UsageError(f"the starter {starter} has its own script", "for yours: tm init --starter own --script FILE")
    name = _NAME.sub("-", place.absolute().name).strip("-._") or "train"
    root = resources.files("trainmaster") / "starters" / starter
    texts = {entry.name: entry.read_text() for entry in root.iterdir() if entry.name.endswith((".py", ".yaml"))}
    texts[_FILE] = texts[_FILE].replace("{name}", name)
    if starter == "own":
        texts[_FILE] = texts[_FILE].replace("{script}", json.dumps(_script(place, script)))
    return texts


def _script(place: Path, named: str | None) -> str:
    """The script, relative to the directory. Raises: UsageError."""
    if named is not None:
        if not (place / named).is_file():
            raise UsageError(f"{place / named} does not exist", "--script names a file in the directory")
        return named
    found = sorted(path.name for path in place.glob("*.py")) if place.is_dir() else []
    if len(found) == 1:
        return found[0]
    said = f"there are {len(found)} scripts" if found else "there is no script"
    raise UsageError(f"{said} in {place.absolute()}", "name yours: tm init --starter own --script train.py")
