"""Converts command-line options and arguments of `trainmaster.submit` into the mapping of a spec file.

Only the form of `NAME=VALUE` is checked here. Like any other mapping, the result is validated by `document.from_mapping`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.errors import UsageError
from trainmaster.spec.environment_files import variables_of
from trainmaster.spec.environment_passing import assignments, lacking, names_of
from trainmaster.spec.faults import nearest
from trainmaster.spec.yaml.scalars import scalar

_PLACES: dict[str, tuple[str, ...]] = {  # option -> field
    **{name: (name,) for name in ("name", "project", "experiment", "priority", "workdir", "time_limit", "max_running")},
    **{name: ("resources", name) for name in ("nodes", "gpus", "cpus", "memory", "ranks")},
    **{name: ("resources", name) for name in ("disk", "network", "accelerators", "custom")},
    "work": ("class",),
    "pool": ("placement", "pool"),
    "choose": ("placement", "choose"),
    "nodes_max": ("elastic", "nodes_max"),
    "checkpoint": ("checkpoint", "path"),
    "keep": ("checkpoint", "keep"),
    "checkpoint_interval": ("checkpoint", "interval"),
    "resume_arguments": ("checkpoint", "resume_arguments"),
    "restarts": ("restarts", "program"),
    "python": ("environment", "python"),
    "requirements": ("environment", "requirements"),
    "function": ("python",),
    "metrics_pattern": ("metrics", "pattern"),
    "metrics_files": ("metrics", "files"),
    "primary": ("metrics", "primary"),
    "mode": ("metrics", "mode"),
    "env": ("environment", "variables"),
    "data": ("data",),
    "roles": ("roles",),
    "params": ("params",),
    "tags": ("tags",),
    "artifacts": ("artifacts",),
    "notify": ("notify", "to"),
    "notify_on": ("notify", "on"),
}
_NUMBERS = frozenset(
    (
        "priority", "nodes", "nodes_max", "gpus", "cpus", "ranks", "keep", "restarts", "time_limit", "checkpoint_interval",
        "max_running",
    )
)  # fmt: skip
_PAIRS = {  # option -> flag
    **{name: f"--{name}" for name in ("env", "data", "custom")},
    **{f"{name}s": f"--{name}" for name in ("param", "tag", "accelerator")},
}
_PAIRS_OF_SCALARS = frozenset(("params", "accelerators", "custom"))
_SECTIONS = frozenset(("resources", "environment", "metrics"))  # these options may hold the whole section


def from_options(
    options: Mapping[str, Any], command: str | Sequence[str] | None, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The mapping of a spec. None among `options` means not given. A single argument with blanks in it is a line for bash.

    `command` is None for a `function`. `env`, `params`, `tags`, `data`, `accelerators` and `custom` are mappings or
    `NAME=VALUE` texts; `checkpoint` and `restarts` a bare value or the whole section. A `NAME` alone in `env` takes its
    value from `environment`, if given. `NAME=VALUE` words before the command are variables, as in a shell; they take
    precedence over `env`, and `env` over the files of `env_file`.
    Raises: UsageError for an unknown option, an invalid `NAME=VALUE`, or a variable that is not set.
    """
    assigned: dict[str, str] = {}
    mapping: dict[str, Any] = {}
    if command is not None:
        assigned, command = assignments(command)
        mapping["command"] = _command(command)
    for option, value in options.items():
        if value is None or option == "env_file":
            continue
        if option == "env" and environment is not None and not isinstance(value, Mapping):
            value = _with_values([value] if isinstance(value, str) else value, environment)
        if option in _SECTIONS or (option in ("checkpoint", "restarts") and isinstance(value, Mapping)):
            _put_section(mapping, option, value)
            continue
        place = _PLACES.get(option)
        if place is None:
            near = nearest(option, (*_PLACES, *_SECTIONS, "env_file"))
            raise UsageError(f"there is no option {option!r}" + (f"; did you mean {near!r}?" if near else ""))
        _put(mapping, place, _value(option, value))
    names = names_of(mapping)
    if names is not None and environment is not None:
        known = {str(name): _value_of(name, environment) for name in names}
        mapping["environment"] = {**mapping["environment"], "variables": known}
    read = variables_of(options["env_file"], environment or {}) if options.get("env_file") is not None else {}
    if read or assigned:
        section = mapping.get("environment", {})
        given = section.get("variables") or {}
        if isinstance(given, Mapping):  # anything else is a fault, which the validation reports
            mapping["environment"] = {**section, "variables": {**read, **given, **assigned}}
    return mapping


def _command(command: str | Sequence[str]) -> str | list[str]:
    if isinstance(command, str):
        return command
    parts = list(command)
    return parts[0] if len(parts) == 1 and len(parts[0].split()) > 1 else parts


def _value(option: str, value: Any) -> Any:
    if option in _PAIRS:
        if isinstance(value, Mapping):
            return dict(value)
        texts = [value] if isinstance(value, str) else value
        pairs = dict(_pair(option, text) for text in texts)
        # `--set e=` is an empty text, as in a shell; YAML would say null
        return {name: text and _scalar(text) for name, text in pairs.items()} if option in _PAIRS_OF_SCALARS else pairs
    if option in ("artifacts", "notify", "metrics_files"):
        return [value] if isinstance(value, str) else list(value)
    if option == "gpus" and isinstance(value, str) and "," in value:
        return [text.strip() for text in value.split(",")]
    return _scalar(value) if option in _NUMBERS and isinstance(value, str) else value


def _with_values(texts: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Turn a `NAME` alone into `NAME=VALUE`."""
    named = [text and "=" not in text for text in map(str, texts)]
    return [f"{text}={_value_of(text, environment)}" if bare else text for text, bare in zip(texts, named, strict=True)]


def _value_of(name: Any, environment: Mapping[str, str]) -> str:
    message = lacking(name, environment)
    if message:
        known = str(name).partition("=")[0]  # do not repeat the value: it may be secret
        raise UsageError(f"env: {message}", f"export {known}=…   or: --env {known}=VALUE")
    return environment[name]


def _pair(option: str, text: Any) -> tuple[str, str]:
    name, equals, value = str(text).partition("=")
    if not equals or not name:
        right = "NAME=PATH" if option == "data" else "NAME=VALUE"
        raise UsageError(f"{option}: expected {right}, got {str(text)!r}", _meant(option, str(text)))
    return name, value


def _meant(option: str, text: str) -> str:
    """The flag as it may have been meant: a path of data gets the name of its file, a name alone lacks its value."""
    flag = _PAIRS[option]
    if option != "data":
        return f"{flag} {text}=…" if text.isidentifier() else f"{flag} NAME=VALUE"
    name = text.rstrip("/").rpartition("/")[2].partition(".")[0].lstrip("=")
    path = text.removeprefix("=")
    return f"{flag} {name if name.isascii() and name.isidentifier() else 'NAME'}={path or 'PATH'}"


def _scalar(text: str) -> Any:
    try:
        return scalar(text)
    except ValueError:  # more digits than a number may have: keep it as text
        return text


def _put(mapping: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    for section in place[:-1]:
        mapping = mapping.setdefault(section, {})
    mapping[place[-1]] = value


def _put_section(mapping: dict[str, Any], section: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise UsageError(f"{section}: expected a mapping")
    mapping[section] = {**mapping.get(section, {}), **value}
