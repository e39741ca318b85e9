"""Reads and validates `server.toml`, the administrator's configuration of a server, for api and control.

The file of a home is `$TRAINMASTER_HOME/server.toml`; if missing, `/etc/trainmaster/server.toml`; if both are missing, the
defaults apply. Settings of `tm up` (ports, declared nodes) are not in it. Credentials must not be in it: object stores take
theirs from the server's environment, as their own clients do.

Standard library only.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from trainmaster.errors import UsageError
from trainmaster.home import Home

SYSTEM_FILE = Path("/etc/trainmaster/server.toml")
SINKS = ("mlflow", "tensorboard", "wandb")
_URL = re.compile(r"[a-z][a-z0-9+.:_-]*://\S")  # also fsspec's chains: dir::file:///data


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Where checkpoints, artifacts, code copies and provenance are stored."""

    url: str | None = None  # any fsspec URL, `s3://bucket/prefix`; None: the home's own `blobs/`
    endpoint: str | None = None  # of an S3-compatible server
    region: str | None = None
    cache_gib: float = 20.0  # limit of the local cache of a remote store, GiB
    reserve_mib: float = 16.0  # of the home's disk, reserved for ending jobs when it is full, MiB; 0: none

    def directory(self, home: Home) -> Path | None:
        """The directory that is the store; None where it is elsewhere."""
        if self.url is None:
            return home.blobs
        scheme, found, path = self.url.partition("://")
        if not found or scheme == "file":
            return (home.root / (path if found else self.url)).absolute()
        return None


@dataclass(frozen=True, slots=True)
class TrackingSettings:
    """Trackers that runs are mirrored into. `sinks` applies to every project that names none itself."""

    sinks: tuple[str, ...] = ()
    mlflow: str | None = None  # URI of the MLflow server; None: the one that `tm up --mlflow` runs
    directory: str | None = None  # of TensorBoard and offline W&B files; None: `tracking/` in the home


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """What is removed of finished jobs, and when. 0: never. Only a person removes checkpoints and artifacts."""

    work_days: float = 30.0  # work directories, after the job's end
    logs_days: float = 180.0  # output of ranks, and files of agents
    metrics_days: float = 180.0  # after that, curves are thinned to `metrics_points` each; best and last values stay
    metrics_points: float = 2000.0
    free_percent: float = 5.0  # if less of the home's disk is free, work directories and output are removed earlier,
    # the oldest first, except those of jobs that ended less than a day ago


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """How notifications by e-mail are sent."""

    smtp: str | None = None  # "host" or "host:port" of a mail server that takes mail from this machine; None: no e-mail
    sender: str | None = None  # address; None: trainmaster@ this host


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """Settings for the jobs of one project."""

    required_tags: tuple[str, ...] = ()
    sinks: tuple[str, ...] | None = None  # None: those of `[tracking]`
    pickle_models: bool = False  # whether a pickle may be kept as a model


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Resources of each node of this machine that cannot be measured, or that override the measured ones."""

    disk: str | None = None  # "500GiB"; None: the free space of the home's file system
    network: str | None = None  # "100Gbps"
    accelerators: dict[str, int] = field(default_factory=dict)
    custom: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The complete configuration of one server."""

    storage: StorageSettings = StorageSettings()
    tracking: TrackingSettings = TrackingSettings()
    nodes: NodeSettings = NodeSettings()
    retention: RetentionSettings = RetentionSettings()
    notify: NotifySettings = NotifySettings()
    projects: dict[str, ProjectSettings] = field(default_factory=dict)
    idle_stop_s: float | None = None  # an embedded server without work or clients ends after this time
    source: Path | None = None  # the file it was read from

    def project(self, name: str) -> ProjectSettings:
        """The settings of one project; the defaults if the file does not name it."""
        return self.projects.get(name, ProjectSettings())

    def sinks(self, project: str) -> tuple[str, ...]:
        """The trackers that a project's runs are mirrored into."""
        own = self.project(project).sinks
        return self.tracking.sinks if own is None else own

    @property
    def all_sinks(self) -> tuple[str, ...]:
        """Every tracker that runs of some project are mirrored into."""
        wanted = {sink for settings in self.projects.values() for sink in settings.sinks or ()}.union(self.tracking.sinks)
        return tuple(sink for sink in SINKS if sink in wanted)


def file_of(home: Home) -> Path | None:
    """The configuration file of a home, if there is one."""
    return next((path for path in (home.root / "server.toml", SYSTEM_FILE) if os.path.lexists(path)), None)


def load(home: Home) -> Configuration:
    """The configuration of a home. Raises: UsageError with file and line for any fault.

    `tm up --mlflow` adds a sink for all projects that do not name their own.
    """
    path = file_of(home)
    found = Configuration() if path is None else parse(_text(path), path)
    if not runs_mlflow(home) or "mlflow" in found.tracking.sinks:
        return found
    return replace(found, tracking=replace(found.tracking, sinks=("mlflow", *found.tracking.sinks)))


def _text(path: Path) -> str:
    """Raises: UsageError for an unreadable file: since it exists, the defaults must not apply."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "check the file and its rights, or remove it") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: see byte {error.start}", "save it as UTF-8") from error


def runs_mlflow(home: Home) -> bool:
    """Whether `tm up --mlflow` was given."""
    return bool((home.read_json(home.settings_json) or {}).get("mlflow"))


def parse(text: str, path: Path) -> Configuration:
    """Parse a file. Raises: UsageError with file, line, key, the expected value and the nearest valid name."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for numbers with thousands of digits, and deeply nested lists
        raise UsageError(f"{path}: {error}", "TOML: https://toml.io") from None
    reader = _Reader(text, path)
    reader.names(document, (), ("storage", "tracking", "nodes", "retention", "notify", "projects", "idle_stop_s"))
    projects = reader.table(document, (), "projects")
    return Configuration(
        reader.section(StorageSettings, document, "storage"),
        reader.section(TrackingSettings, document, "tracking"),
        reader.section(NodeSettings, document, "nodes"),
        reader.section(RetentionSettings, document, "retention"),
        reader.section(NotifySettings, document, "notify"),
        {name: reader.section(ProjectSettings, projects, name, ("projects",)) for name in projects},
        reader.value(document, (), "idle_stop_s", "float | None", None),
        path,
    )


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_store(url: str) -> bool:
    """Whether `[storage] url` names a place: a mistyped URL would be a directory of that name in the home."""
    without_bucket = url.startswith(("s3:///", "s3a:///"))
    return url.startswith("/") or (_URL.match(url) is not None and not without_bucket)


def _table(value: object, kind: Any) -> bool:
    return isinstance(value, dict) and all(_number(item) and isinstance(item, kind) for item in value.values())


_STORES = "write /data/trainmaster, s3://BUCKET/PREFIX or the URL of another file system of fsspec, in lower case"
_EXPECTED: dict[str, tuple[str, Callable[[object], bool]]] = {
    "str | None": ("a string", lambda value: isinstance(value, str)),
    "float": ("a number of at least 0", _number),
    "float | None": ("a number of at least 0", _number),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "tuple[str, ...]": ("a list of strings", _strings),
    "tuple[str, ...] | None": ("a list of strings", _strings),
    "dict[str, int]": ("a table of whole numbers", lambda value: _table(value, int)),
    "dict[str, float]": ("a table of numbers", lambda value: _table(value, (int, float))),
}


def _type_name(found: object) -> str:
    """The text of a field's type."""
    return found.__name__ if isinstance(found, type) else str(found)


class _Reader:
    """Reads values from a parsed document, and finds the line of a fault."""

    def __init__(self, text: str, path: Path) -> None:
        self.lines, self.path = text.splitlines(), path

    def section(self, kind: type[Any], within: Mapping[str, Any], name: str, above: tuple[str, ...] = ()) -> Any:
        """The table of that name as a dataclass."""
        table, where = self.table(within, above, name), (*above, name)
        known = fields(kind)
        self.names(table, where, tuple(item.name for item in known))
        given = [item for item in known if item.name in table]
        return kind(**{item.name: self.value(table, where, item.name, _type_name(item.type), None) for item in given})

    def table(self, within: Mapping[str, Any], above: tuple[str, ...], name: str) -> Mapping[str, Any]:
        """The table of that name, empty if there is none."""
        found = within.get(name, {})
        if not isinstance(found, dict):
            raise self.fault((*above, name), "expected a table", f"write it as [{'.'.join((*above, name))}]")
        return found

    def names(self, table: Mapping[str, Any], where: tuple[str, ...], known: tuple[str, ...]) -> None:
        """Reject unknown names."""
        for name in table:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                raise self.fault((*where, name), "there is no such setting", hint)

    def value(self, table: Mapping[str, Any], where: tuple[str, ...], name: str, kind: str, default: Any) -> Any:
        """One validated value."""
        if name not in table:
            return default
        found, (expected, holds) = table[name], _EXPECTED[kind]
        if not holds(found):
            raise self.fault((*where, name), f"expected {expected}, found {found!r}", "see tm config --help")
        if name == "sinks":
            unknown = [sink for sink in found if sink not in SINKS]
            if unknown:
                near = difflib.get_close_matches(unknown[0], SINKS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(SINKS)}"
                raise self.fault((*where, name), f"there is no sink {unknown[0]!r}", hint)
        if (*where, name) == ("storage", "url") and not _is_store(found):
            raise self.fault((*where, name), f"{found!r} is neither an absolute path nor a URL", _STORES)
        return tuple(found) if isinstance(found, list) else found

    def fault(self, key: tuple[str, ...], what: str, hint: str) -> UsageError:
        """An error at the line that contains the key."""
        return UsageError(f"{self.path}:{self._line(key)}: {'.'.join(key)}: {what}", hint)

    def _line(self, key: tuple[str, ...]) -> int:
        header = re.compile(r"\s*\[" + r"\s*\.\s*".join(rf"[\"']?{re.escape(part)}[\"']?" for part in key[:-1]) + r"\s*\]")
        own = re.compile(rf"\s*([\w\"'.-]+\.)?[\"']?{re.escape(key[-1])}[\"']?\s*(=|\.)")
        whole = re.compile(r"\s*\[" + r"\s*\.\s*".join(rf"[\"']?{re.escape(part)}[\"']?" for part in key) + r"\s*[\].]")
        inside = len(key) == 1
        for number, line in enumerate(self.lines, 1):
            if whole.match(line):
                return number
            if header.match(line):
                inside = True
            elif inside and own.match(line):
                return number
        return 1
