"""Which server a client talks to: argument > environment > project file > user file > /etc > the embedded one.

`trainmaster.toml` knows `server = "https://…"`; outside of projects also `token = "…"` (for that very server) and a
table `[tokens]` from URL to token. Everywhere it knows `project` and
`[tags]`, for jobs that say nothing of their own. A project's file
never holds a token, and a token in a person's own file goes to the server that it is written beside and to no other, so
that a cloned repository cannot collect it.
"""

import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster.errors import AuthenticationError, UsageError
from trainmaster.home import Home

FILE = "trainmaster.toml"
DEFAULT_PROJECT = "default"
ENV_SERVER, ENV_TOKEN, ENV_TAGS = "TRAINMASTER_SERVER", "TRAINMASTER_TOKEN", "TRAINMASTER_TAGS"
VARIABLES = {"server": ENV_SERVER, "project": "TRAINMASTER_PROJECT"}


class Target(NamedTuple):
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


class Setting(NamedTuple):
    """One place that says what a key is. `source` is a variable (`$NAME`) or a file, then with its line."""

    key: str
    value: Any
    source: str
    line: int | None = None


def said(key: str, directory: Path) -> list[Setting]:
    """Every place that says what `server`, `project` or `tags.NAME` is, the one that wins first.

    Raises: UsageError for a file of ours that cannot be read.
    """
    found = []
    variable = VARIABLES.get(key)
    if variable is not None and os.environ.get(variable):
        found.append(Setting(key, os.environ[variable], f"${variable}"))
    if key.startswith("tags.") and key.removeprefix("tags.") in (tags := _variable_tags()):
        found.append(Setting(key, tags[key.removeprefix("tags.")], f"${ENV_TAGS}"))
    for path in (*_project_files(directory.absolute()), *_own_files()):
        value: Any = _read(path)
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value not in (None, ""):
            found.append(Setting(key, value, str(path), _line(path, key)))
    return found


def _line(path: Path, key: str) -> int | None:
    """Where a file says it: the line of the key in its own table, or of the table that holds it."""
    section, _, name = key.rpartition(".")
    prefix = "tool.trainmaster" if path.name != FILE else ""
    header = ".".join(part for part in (prefix, section) if part)
    inside = not header
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if text.startswith("["):
            inside = text.strip("[] ").replace(" ", "") == header
        own = inside and text.partition("=")[0].strip().strip("\"'") == name
        if own or (section and text.replace(" ", "").startswith((f"{key}=", f"{section}={{"))):
            return number
    return None


def _named(server: str | None, directory: Path) -> tuple[str, str] | None:
    """URL and who named it."""
    if server:
        return server, "--server"
    places = [setting for setting in said("server", directory) if isinstance(setting.value, str)]
    return (places[0].value, places[0].source) if places else None


def default_project(directory: Path) -> str | None:
    """The project of jobs that name none; None where nobody says."""
    places = said("project", directory)
    return str(places[0].value) if places else None


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
    import tomllib  # noqa: PLC0415  # most machines have no such file

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


def default_tags(directory: Path) -> dict[str, str]:
    """The tags that every job gets which does not say otherwise: `$TRAINMASTER_TAGS` (`owner=ada,task=vision`), then `[tags]`
    of the project's file, the person's, the machine's. Raises: UsageError.
    """
    found: dict[str, str] = {}
    for path in reversed((*_project_files(directory.absolute()), *_own_files())):
        tags = _read(path).get("tags", {})
        if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
            raise UsageError(f"{path}: tags must be a table of texts", 'write [tags] and below it: owner = "ada"')
        found |= tags
    return found | _variable_tags()


def _variable_tags() -> dict[str, str]:
    """What `$TRAINMASTER_TAGS` says. Raises: UsageError."""
    found = {}
    for pair in filter(None, os.environ.get(ENV_TAGS, "").split(",")):
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"${ENV_TAGS}: expected NAME=VALUE, got {pair!r}", f"export {ENV_TAGS}=owner=ada,task=vision")
        found[name.strip()] = value.strip()
    return found


def embedded_token(home: Home) -> str:
    """The token of this machine's own server; empty before its first start."""
    given = os.environ.get(ENV_TOKEN, "")
    try:
        return home.token_file.read_text(encoding="utf-8").strip() or given
    except OSError:
        return given
