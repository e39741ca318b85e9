"""The requirements file that a spec names, looked for before anything is handed in: the job itself would only fail on it."""

import posixpath
from pathlib import Path, PurePosixPath

from trainmaster.spec.faults import Fault, nearest, spec_error
from trainmaster.spec.yaml.reader import parse

FIELD = ("environment", "requirements")


def check(named: str, directory: Path, spec_file: Path | None) -> None:
    """`directory`: the work directory. `spec_file`: which named it, if any did.

    Raises: SpecError, with line and column where a file named it.
    """
    path = PurePosixPath(posixpath.normpath(named))
    if path.is_absolute() or ".." in path.parts or named.startswith("~"):
        return  # refused for that, with better words, where specs are validated
    if (directory / path).is_file():
        return
    near = _meant(directory, path)
    message = f"there is no file {named} in {directory}" + (f"; did you mean {near!r}?" if near else "")
    fault = Fault(".".join(FIELD), message, "a requirements file in the work directory", repr(named), near)
    raise spec_error([_placed(fault, spec_file)])


def _meant(directory: Path, path: PurePosixPath) -> str | None:
    try:
        names = [place.name for place in (directory / path.parent).iterdir() if place.is_file()]
    except OSError:
        return None
    near = nearest(path.name, names)
    return str(path.parent / near) if near else None


def _placed(fault: Fault, file: Path | None) -> Fault:
    """With its place in the file. Raises: SpecError when that is no YAML any more."""
    if file is None:
        return fault
    line, column = parse(file.read_bytes(), str(file)).where.value(FIELD)
    return Fault(fault.field, fault.message, fault.expected, fault.got, fault.nearest, str(file), line, column)
