"""Reads files of environment variables, in the format of `docker run --env-file`.

One `NAME=VALUE` on a line. The value is everything after the `=`, unchanged: quotes belong to it, and nothing is expanded.
Empty lines and lines that begin with `#` are skipped. `NAME` alone takes the value of the submitting environment.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.errors import UsageError
from trainmaster.spec.environment_passing import is_name, lacking

_FILE_MAX_BYTES = 1024 * 1024
_SHOWN_MAX = 60
_FORM = "one NAME=VALUE on a line, without `export` and without quotes"


def variables_of(files: Any, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of one or several files; a later one takes precedence. Raises: UsageError with file and line."""
    found: dict[str, str] = {}
    for file in [files] if isinstance(files, str | os.PathLike) or not isinstance(files, Sequence) else files:
        found |= _read(str(file), environment)
    return found


def _read(file: str, environment: Mapping[str, str]) -> dict[str, str]:
    try:
        with Path(file).expanduser().open("rb") as opened:  # it may be a pipe, as in --env-file <(decrypt secrets)
            data = opened.read(_FILE_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"the file of variables {file} cannot be read: {why}", f"it has {_FORM}") from None
    if len(data) > _FILE_MAX_BYTES:
        raise UsageError(f"the file of variables {file} is larger than 1 MiB", f"it has {_FORM}")
    found: dict[str, str] = {}
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            found |= _pair(line.removesuffix(b"\r").decode(), environment)
        except UnicodeDecodeError:
            raise UsageError(f"{file}:{number}: this line is not valid UTF-8", f"it has {_FORM}") from None
        except ValueError as error:
            raise UsageError(f"{file}:{number}: {error}", f"it has {_FORM}") from None
    return found


def _pair(line: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variable of a line; empty if it has none. Raises: ValueError, which never repeats a value: it may be secret."""
    line = line.lstrip()
    if not line or line.startswith("#"):
        return {}
    name, equals, value = line.partition("=")
    if not equals:
        name = name.rstrip()
    if not is_name(name):
        known = name.removeprefix("export ").strip()
        near = f"; did you mean {known!r}?" if equals and is_name(known) else ""
        wrong = repr(name) if equals and len(name) <= _SHOWN_MAX else "this line"
        raise ValueError(f"{wrong} is not a variable's name{near}")
    if not equals:
        missing = lacking(name, environment)
        if missing:
            raise ValueError(missing)
        return {name: environment[name]}
    if "\0" in value:
        raise ValueError(f"the value of {name} contains a null byte")
    return {name: value}
