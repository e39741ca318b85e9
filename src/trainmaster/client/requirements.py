"""Checks before the submit that the spec's requirements file exists: otherwise the job would fail."""

import posixpath
from pathlib import Path, PurePosixPath

from trainmaster.spec.faults import Fault, nearest, spec_error
from trainmaster.spec.yaml.reader import parse

FIELD = ("environment", "requirements")


def check(named: str, directory: Path, spec_file: Path | None) -> None:
    """`directory`: the work directory. `spec_file`: the file that names the requirements file, if any.

    Raises: SpecError, with line and column in `spec_file`.
    """
    path = PurePosixPath(posixpath.normpath(named))
    if path.is_absolute() or ".." in path.parts or named.startswith("~"):
        return  # the validator rejects it with a better message
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
    """The fault with its position in the file. Raises: SpecError if the file is not valid YAML any more."""
    if file is None:
        return fault
    line, column = parse(file.read_bytes(), str(file)).where.value(FIELD)
    return Fault(fault.field, fault.message, fault.expected, fault.got, fault.nearest, str(file), line, column)
