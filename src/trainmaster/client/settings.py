"""Which server a client talks to: argument > environment > project file > user file > /etc > the embedded one.

`trainmaster.toml` knows `server = "https://…"`; outside of projects also `token = "…"` (for that very server) and a
table `[tokens]` from URL to token. Everywhere it knows `project` and
`[tags]`, for jobs that say nothing of their own.

A token belongs to one server. A project's file holds none. A token in a person's own file goes to the server that it is
written beside and to no other; the token of a variable or an argument goes nowhere that only a project's file names. So
a cloned repository cannot choose where a token is sent.
"""

import os
import shlex
import stat
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

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

    @property
    def warning(self) -> str:
        """That the token can be read on the way; empty where it cannot, or where there is none."""
        scheme, _, host = self.url.partition("://")
        if scheme != "http" or not self.token or is_loopback(host):
            return ""
        return f"the token goes to {self.url} without encryption: anyone on the way can read it and act as you; use https://"


def is_loopback(address: str) -> bool:
    """Whether HOST[:PORT][/PATH] is this machine itself; a name counts only where it can be no other machine's."""
    try:
        host = (urlsplit(f"http://{address}").hostname or "").rstrip(".")
    except ValueError:
        return False  # no address at all
    octets = host.split(".")
    numeric = len(octets) == 4 and octets[0] == "127" and all(octet.isdecimal() for octet in octets)
    return numeric or host in ("localhost", "::1") or host.endswith(".localhost")


def configured(server: str | None = None, token: str | None = None, directory: Path | None = None) -> Target | None:
    """The server that was named, with its token; None means the embedded server of this machine.

    Raises: UsageError (a file that cannot be read), AuthenticationError (a token others can read, or one that would go
    to a server that only a project's file names).
    """
    directory = directory or Path.cwd()
    given = token or os.environ.get(ENV_TOKEN, "")
    named = _named(server, directory)
    if named is None:
        return None
    url, source = named[0].rstrip("/"), named[1]
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{source} names the server {url!r}, which is no URL", "write http://HOST:PORT")
    if not given or server or not _is_the_projects(url, directory):
        return Target(url, given or _stored_token(url), source)
    stored = _stored_token(url)
    if not stored:
        what = "the token that was given" if token else f"the token in ${ENV_TOKEN}"
        own = os.path.join(_config_directory(), FILE)
        raise AuthenticationError(
            f"{source} names the server {url}, and a project's file cannot choose where {what} goes",
            f"if that token is for this server: export {ENV_SERVER}={shlex.quote(url)}   "
            f"or write it into {own}, in the table [tokens], beside the server's URL",
        )
    return Target(url, stored, source)


def _is_the_projects(url: str, directory: Path) -> bool:
    """Whether a project's file says that this is the server, and no variable and no file of the person's or the machine's."""
    projects = {str(path) for path in _project_files(directory.absolute())}
    return all(place.source in projects for place in said("server", directory) if str(place.value).rstrip("/") == url)


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
    return [path for path in (Path(_config_directory(), FILE), Path("/etc/trainmaster") / FILE) if path.is_file()]


def _config_directory() -> str:
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "trainmaster")


def _read(path: Path) -> dict[str, Any]:
    """Our part of a TOML file. Raises: UsageError."""
    import tomllib  # noqa: PLC0415  # most machines have no such file

    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if path.name != FILE:
            return {}  # somebody else's file: whoever owns it will hear of it from its own tools
        raise UsageError(f"{path} cannot be read: {error}", "correct the file, or name the server with --server URL") from error
    if path.name != FILE:
        tools = value.get("tool")
        value = tools.get("trainmaster", {}) if isinstance(tools, dict) else {}
    return value if isinstance(value, dict) else {}


def _stored_token(url: str) -> str:
    """The token that a person's or the machine's file keeps for this very server; empty when there is none.

    Raises: UsageError, AuthenticationError.
    """
    for path in _own_files():
        value = _read(path)
        told = value.get("tokens", {})
        if not isinstance(told, dict):
            raise UsageError(f"{path}: tokens must be a table", 'write [tokens] and below it: "https://HOST" = "TOKEN"')
        tokens = {address.rstrip("/"): token for address, token in told.items()}
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


def code_include(directory: Path) -> list[str]:
    """What a code copy takes along although credentials may be in it: `[code] include = [".env"]` of any of the files.

    Raises: UsageError.
    """
    found: list[str] = []
    for path in (*_project_files(directory.absolute()), *_own_files()):
        code = _read(path).get("code", {})
        include = code.get("include", []) if isinstance(code, dict) else None
        if not isinstance(include, list) or not all(isinstance(place, str) for place in include):
            raise UsageError(f"{path}: include must be a list of paths", 'write [code] and below it: include = [".env"]')
        found += include
    return found


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
    except (OSError, UnicodeDecodeError):
        return given
