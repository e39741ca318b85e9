"""Changes a `trainmaster.toml`; the rest of the file, including comments, stays as it is."""

import os
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from trainmaster.errors import OperationError, UsageError
from trainmaster.home import write_atomic

_SHARED_MODE = 0o644


def read(path: Path) -> tomlkit.TOMLDocument:
    """The file; empty if there is none. Raises: UsageError."""
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return tomlkit.document()
    except (OSError, ValueError, TOMLKitError) as error:
        raise UsageError(f"{path} cannot be read: {error}", "correct the file") from error


def write(path: Path, document: tomlkit.TOMLDocument, private: bool = False) -> None:
    """Replace the file, at the end of its links. It keeps its mode; `private`: only its owner may read it.

    Raises: OperationError.
    """
    path = Path(os.path.realpath(path))  # of people who keep their settings elsewhere, with links to them
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o600 if private else path.stat().st_mode & 0o777 if path.exists() else _SHARED_MODE
        write_atomic(path, tomlkit.dumps(document).encode(), mode)
    except OSError as error:
        raise OperationError(f"{path} cannot be written: {error}", f"check {path.parent}") from error
