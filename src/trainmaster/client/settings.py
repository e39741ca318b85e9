"""Which server a client talks to: argument > environment > project file > user file > /etc > the embedded one.

`trainmaster.toml` knows `server = "https://…"`; outside of projects also `token = "…"` (for that very server) and a
table `[tokens]` from URL to token. A project's file never holds a token, and a token in a person's own file goes to
the server that it is written beside and to no other, so that a cloned repository cannot collect it.
"""

import os
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.errors import AuthenticationError, UsageError
from trainmaster.home import Home

FILE = "trainmaster.toml"
ENV_SERVER, ENV_TOKEN = "TRAINMASTER_SERVER", "TRAINMASTER_TOKEN"


@dataclass(frozen=True, slots=True)
class Target:
    """A configured server. `source` says who named it: an argument, a variable or a file."""

    url: str
    token: str
    source: str


def configured(server: str | None = None, token: str | None = None, directory: Path | None = None) -> Target | None:
    """The server that was named, with its token; None means the embedded server of this machine.

    Raises: UsageError (a file that cannot be read), AuthenticationError (a token others can read).
    """
    directory = directory or Path.cwd()
    given_token = token or os.environ.get(ENV_TOKEN, "")
    named = _named(server, directory)
    if named is None:
        return None
    url, source = named[0].rstrip("/"), named[1]
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{source} names the server {url!r}, which is no URL", "write http://HOST:PORT")
    return Target(url, given_token or _stored_token(url), source)


def _named(server: str | None, directory: Path) -> tuple[str, str] | None:
    """URL and who named it."""
    if server:
        return server, "--server"
    if os.environ.get(ENV_SERVER):
        return os.environ[ENV_SERVER], f"${ENV_SERVER}"
    for path in (*_project_files(directory), *_own_files()):
        found = _read(path).get("server")
        if isinstance(found, str) and found:
            return found, str(path)
    return None


def _project_files(directory: Path) -> list[Path]:
    """`trainmaster.toml` and pyproject.toml from `directory` up to the root of the git repository."""
    found: list[Path] = []
    for level in (directory, *directory.parents):
        found += [path for path in (level / FILE, level / "pyproject.toml") if path.is_file()]
        if (level / ".git").exists():
            return found
    return [path for path in found if path.parent == directory]  # outside of git only the directory itself counts


def _own_files() -> list[Path]:
    """The person's file, then the machine's."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return [path for path in (Path(config) / "trainmaster" / FILE, Path("/etc/trainmaster") / FILE) if path.is_file()]


def _read(path: Path) -> dict[str, Any]:
    """Our part of a TOML file. Raises: UsageError."""
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if path.name != FILE:
            return {}  # somebody else's file: whoever owns it will hear of it from its own tools
        raise UsageError(f"{path} cannot be read: {error}", "correct the file, or name the server with --server URL") from error
    if path.name != FILE:
        value = value.get("tool", {}).get("trainmaster", {})
    return value if isinstance(value, dict) else {}


def _stored_token(url: str) -> str:
    """The token that a person's or the machine's file keeps for this very server; empty when there is none."""
    for path in _own_files():
        value = _read(path)
        tokens = {address.rstrip("/"): token for address, token in value.get("tokens", {}).items()}
        if isinstance(value.get("server"), str) and isinstance(value.get("token"), str):
            tokens.setdefault(value["server"].rstrip("/"), value["token"])
        if isinstance(tokens.get(url), str):
            _refuse_readable(path)
            return str(tokens[url])
    return ""


def _refuse_readable(path: Path) -> None:
    if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise AuthenticationError(f"{path} holds a token and can be read by others", f"chmod 600 {path}")


def embedded_token(home: Home) -> str:
    """The token of this machine's own server; empty before its first start."""
    given = os.environ.get(ENV_TOKEN, "")
    try:
        return home.token_file.read_text(encoding="utf-8").strip() or given
    except OSError:
        return given
