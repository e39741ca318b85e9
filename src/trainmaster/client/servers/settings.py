"""Finds the server to use: argument > `$TRAINMASTER_SERVER` > this machine's own, if `$TRAINMASTER_HOME` names its home >
project file > user file > /etc > this machine's own server.

`trainmaster.toml` has `server = "https://…"`; outside of projects also `token = "…"` (for that server), and tables from URL to
token (`[tokens]`) and to the certificate of the server's own authority (`[authorities]`), which `tm login` writes. Every file
may have `project` and `[tags]` as defaults for jobs.

A token belongs to one server. Project files hold no tokens. A token in a user's file is sent only to the server that it
is written beside. A token from a variable or an argument is never sent to a server that only a project file names. So a
cloned repository cannot choose where a token is sent.
"""

import os
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from trainmaster.errors import AuthenticationError, UsageError
from trainmaster.home import Home

FILE = "trainmaster.toml"
DEFAULT_PROJECT = "default"
ENV_SERVER, ENV_TOKEN, ENV_TAGS = "TRAINMASTER_SERVER", "TRAINMASTER_TOKEN", "TRAINMASTER_TAGS"
ENV_HOME = "TRAINMASTER_HOME"
OWN = "this machine's own"  # the server, as a setting
_KEYS = ("server", "token", "tokens", "authorities", "project", "tags", "code")  # of our file
_PATHS = {"include": ".env", "exclude": "notes/*.pdf"}  # the keys of [code], with an example
VARIABLES = {"server": ENV_SERVER, "project": "TRAINMASTER_PROJECT"}


class Target(NamedTuple):
    """A configured server. `source`: where it was configured: an argument, a variable or a file.

    `authority`: the certificate in PEM that alone proves the server; "": the system's certificates do.
    """

    url: str
    token: str
    source: str
    authority: str = ""

    @property
    def warning(self) -> str:
        """A warning if the token is sent unencrypted; empty otherwise."""
        scheme, _, host = self.url.partition("://")
        if scheme != "http" or not self.token or is_loopback(host):
            return ""
        return f"the token is sent to {self.url} without encryption: anyone on the way can read and use it; use https://"


def is_loopback(address: str) -> bool:
    """Whether HOST[:PORT][/PATH] is certainly this machine itself."""
    try:
        host = (urlsplit(f"http://{address}").hostname or "").rstrip(".")
    except ValueError:
        return False  # not an address
    octets = host.split(".")
    numeric = len(octets) == 4 and octets[0] == "127" and all(octet.isdecimal() for octet in octets)
    return numeric or host in ("localhost", "::1") or host.endswith(".localhost")


def configured(server: str | None = None, token: str | None = None, directory: Path | None = None) -> Target | None:
    """The configured server and its token; None means this machine's own server.

    Raises: UsageError (an unreadable file), AuthenticationError (a token that others can read, or a token that would be sent
    to a server that only a project file names).
    """
    directory = directory or Path.cwd()
    given = token or os.environ.get(ENV_TOKEN, "")
    named = _named(server, directory)
    if named is None:
        return None
    url, source = named[0].rstrip("/"), named[1]
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{source} names the server {url!r}, which is not a URL", "write http://HOST:PORT")
    authority = _stored("authorities", url)
    if not given or server or not _is_the_projects(url, directory):
        return Target(url, given or _stored("tokens", url), source, authority)
    stored = _stored("tokens", url)
    if not stored:
        what = "the token that was given" if token else f"the token in ${ENV_TOKEN}"
        own = os.path.join(_config_directory(), FILE)
        raise AuthenticationError(
            f"{source} names the server {url}, and a project file must not choose where {what} is sent",
            f"if that token is for this server: export {ENV_SERVER}={shlex.quote(url)}   "
            f"or write it into {own}, in the table [tokens], beside the server's URL",
        )
    return Target(url, stored, source, authority)


def _is_the_projects(url: str, directory: Path) -> bool:
    """Whether only a project file names this server, and no variable and no file of the user or the machine."""
    projects = {str(path) for path in _project_files(directory.absolute())}
    return all(place.source in projects for place in said("server", directory) if str(place.value).rstrip("/") == url)


class Setting(NamedTuple):
    """One place that sets a key. `source` is a variable (`$NAME`), or a file, then with its line."""

    key: str
    value: Any
    source: str
    line: int | None = None


def said(key: str, directory: Path) -> list[Setting]:
    """Every place that sets `server`, `project` or `tags.NAME`, in order of precedence.

    Raises: UsageError for an unreadable file of ours.
    """
    found = []
    variable = VARIABLES.get(key)
    if variable is not None and os.environ.get(variable):
        found.append(Setting(key, os.environ[variable], f"${variable}"))
    if key == "server" and os.environ.get(ENV_HOME):
        found.append(Setting(key, OWN, f"${ENV_HOME}"))
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
    """The line in a file that sets the key: in its own table, or the line of its table."""
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
    """The URL, and where it was configured."""
    if server:
        return server, "--server"
    places = [setting for setting in said("server", directory) if isinstance(setting.value, str)]
    return (places[0].value, places[0].source) if places and places[0].value != OWN else None


def default_project(directory: Path) -> str | None:
    """The default project of jobs; None if it is not configured."""
    places = said("project", directory)
    return str(places[0].value) if places else None


def _project_files(directory: Path) -> list[Path]:
    """`trainmaster.toml` and pyproject.toml from `directory` up to the root of the git repository."""
    found: list[Path] = []
    for level in (directory, *directory.parents):
        found += [path for path in (level / FILE, level / "pyproject.toml") if path.is_file()]
        if (level / ".git").exists():
            return found
    return [path for path in found if path.parent == directory]  # outside of git, only the directory itself


def _own_files() -> list[Path]:
    """The user's file, then the machine's."""
    return [path for path in (Path(_config_directory(), FILE), Path("/etc/trainmaster") / FILE) if path.is_file()]


def own_file() -> Path:
    """The user's file, which may not exist."""
    return Path(_config_directory(), FILE)


def _config_directory() -> str:
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "trainmaster")


def _read(path: Path) -> dict[str, Any]:
    """Our part of a TOML file. Raises: UsageError."""
    import tomllib  # noqa: PLC0415  # most machines have no such file

    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if path.name != FILE:
            return {}  # an invalid file of another tool: that tool will report it
        raise UsageError(f"{path} cannot be read: {error}", "correct the file, or name the server with --server URL") from error
    if path.name != FILE:
        tools = value.get("tool")
        value = tools.get("trainmaster", {}) if isinstance(tools, dict) else {}
    if not isinstance(value, dict):
        return {}
    code = value.get("code", {})
    for prefix, table, known in (("", value, _KEYS), ("code.", code if isinstance(code, dict) else {}, tuple(_PATHS))):
        for name in table:
            if name not in known:
                raise _unknown(path, f"{prefix}{name}", prefix, known)
    return value


def _unknown(path: Path, key: str, prefix: str, known: Sequence[str]) -> UsageError:
    """A misspelled key: what it was to keep out of a job, or to set, would go another way."""
    from trainmaster.spec.faults import nearest  # noqa: PLC0415  # needed for typing errors only

    line, near = _line(path, key), nearest(key.removeprefix(prefix), known)
    meant = f"; did you mean {near!r}?" if near else ""
    place = f"{path}:{line}" if line is not None else str(path)
    return UsageError(f"{place}: {key}: unknown key{meant}", f"known are {', '.join(f'{prefix}{name}' for name in known)}")


def _stored(table: str, url: str) -> str:
    """What a user's or the machine's file has for this server in `tokens` or `authorities`; empty if there is nothing.

    Raises: UsageError, AuthenticationError.
    """
    for path in _own_files():
        value = _read(path)
        told = value.get(table, {})
        if not isinstance(told, dict):
            raise UsageError(f"{path}: {table} must be a table", f'write [{table}] and below it: "https://HOST" = "…"')
        known = {address.rstrip("/"): text for address, text in told.items()}
        if table == "tokens" and isinstance(value.get("server"), str) and isinstance(value.get("token"), str):
            known.setdefault(value["server"].rstrip("/"), value["token"])
        if isinstance(known.get(url), str):
            if table == "tokens":
                _refuse_readable(path)
            return str(known[url])
    return ""


def _refuse_readable(path: Path) -> None:
    if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise AuthenticationError(f"{path} holds a token and is readable by others", f"chmod 600 {path}")


def default_tags(directory: Path) -> dict[str, str]:
    """The default tags of jobs: `$TRAINMASTER_TAGS` (`owner=ada,task=vision`), then `[tags]` in the project's file, the user's
    and the machine's. Raises: UsageError.
    """
    found: dict[str, str] = {}
    for path in reversed((*_project_files(directory.absolute()), *_own_files())):
        tags = _read(path).get("tags", {})
        if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
            raise UsageError(f"{path}: tags must be a table of texts", 'write [tags] and below it: owner = "ada"')
        found |= tags
    return found | _variable_tags()


def code_paths(directory: Path, key: str) -> list[str]:
    """`[code] include` (files to copy although they may hold credentials) or `exclude` (globs of files to leave out), from
    all files. Raises: UsageError.
    """
    found: list[str] = []
    for path in (*_project_files(directory.absolute()), *_own_files()):
        code = _read(path).get("code", {})
        paths = code.get(key, []) if isinstance(code, dict) else None
        if not isinstance(paths, list) or not all(isinstance(place, str) for place in paths):
            raise UsageError(f"{path}: {key} must be a list of paths", f'write [code] and below it: {key} = ["{_PATHS[key]}"]')
        found += paths
    return found


def _variable_tags() -> dict[str, str]:
    """The tags in `$TRAINMASTER_TAGS`. Raises: UsageError."""
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
