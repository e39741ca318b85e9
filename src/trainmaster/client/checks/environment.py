"""Checks before the submit that the spec's interpreter and requirements file exist: otherwise the job would fail."""

import os
import posixpath
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from trainmaster.spec.faults import Fault, nearest, spec_error
from trainmaster.spec.yaml.reader import parse


def check(spec: Mapping[str, Any], directory: Path, spec_file: Path | None) -> None:
    """`directory`: the work directory. `spec_file`: the file that names the two, if any.

    Raises: SpecError, with line and column in `spec_file`.
    """
    environment = spec.get("environment")
    if not isinstance(environment, Mapping):
        return
    faults = [_requirements(environment.get("requirements"), directory), _python(environment, directory)]
    found = [_placed(fault, spec_file) for fault in faults if fault is not None]
    if found:
        raise spec_error(found)


def _requirements(named: object, directory: Path) -> Fault | None:
    if not isinstance(named, str):
        return None
    path = PurePosixPath(posixpath.normpath(named))
    if path.is_absolute() or ".." in path.parts or named.startswith("~"):
        return None  # the validator rejects it with a better message
    if (directory / path).is_file():
        return None
    near = _meant(directory, path)
    message = f"there is no file {named} in {directory}" + (f"; did you mean {near!r}?" if near else "")
    return Fault("environment.requirements", message, "a requirements file in the work directory", repr(named), near)


def _meant(directory: Path, path: PurePosixPath) -> str | None:
    try:
        names = [place.name for place in (directory / path.parent).iterdir() if place.is_file()]
    except OSError:
        return None
    near = nearest(path.name, names)
    return str(path.parent / near) if near else None


def _python(environment: Mapping[str, Any], directory: Path) -> Fault | None:
    named, variables = environment.get("python"), environment.get("variables")
    if not isinstance(named, str) or not named:
        return None
    if os.sep in named:
        path = os.path.normpath(os.path.join(directory, os.path.expanduser(named)))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return None
        what = "is no program that can be executed" if os.path.exists(path) else "does not exist"
        return Fault("environment.python", f"the interpreter {path} {what}", "the path or name of a Python", repr(named))
    given = variables.get("PATH") if isinstance(variables, Mapping) else None
    if shutil.which(named, path=given if isinstance(given, str) else None):
        return None
    message = f"there is no program {named!r} on the PATH"
    return Fault("environment.python", message, "the path or name of a Python", repr(named))


def _placed(fault: Fault, file: Path | None) -> Fault:
    """The fault with its position in the file, if the file has the field.

    Raises: SpecError if the file is not valid YAML any more.
    """
    if file is None:
        return fault
    path, where = tuple(fault.field.split(".")), parse(file.read_bytes(), str(file)).where
    if path not in where.values:
        return fault
    line, column = where.value(path)
    return Fault(fault.field, fault.message, fault.expected, fault.got, fault.nearest, str(file), line, column)
