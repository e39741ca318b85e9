"""What goes along with a job: the files that are copied, linked or left out and why, and the variables."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.agent.environment.installed_packages import Installation, interpreter
from trainmaster.client.api import Row
from trainmaster.client.code_copy.gather import Gathered
from trainmaster.wire.code import Entry

_NAMED_MAX = 8
_STARTER = re.compile(r"(?:(?:pypy|python)[0-9.]*|torchrun|accelerate|deepspeed)\Z")  # programs that run a module with -m
ALL = "to see all that goes along: tm plan, with the same arguments"


def goes_along(gathered: Gathered | None, spec: Mapping[str, Any], origin: Mapping[str, Any]) -> Row:
    """All of it, as JSON. Of variables only the names; `gathered` is None for a job in place."""
    entries = gathered.tree["entries"] if gathered is not None else []
    environment = spec.get("environment")
    given = environment.get("variables") if isinstance(environment, Mapping) else None
    return {
        "copied": [{"path": _shown(entry), "bytes": entry.get("bytes", 0)} for entry in entries if entry["type"] != "link"],
        "linked": [{"path": one.path, "why": one.why} for one in gathered.links] if gathered is not None else [],
        "left_out": [{"path": one.path, "why": one.why} for one in gathered.left_out] if gathered is not None else [],
        "variables": {"shell": sorted(origin["variables"]), "job": sorted(given) if isinstance(given, Mapping) else []},
        "editable": origin["editable"],
        "note": gathered.note if gathered is not None else "",
    }


def _shown(entry: Entry) -> str:
    """Its path; that of an empty directory ends with a slash."""
    return f"{entry['path']}/" if entry["type"] == "directory" else entry["path"]


def notable(gathered: Gathered, editable: Mapping[str, str]) -> list[str]:
    """What every submit says: what was left out or linked that the submitter may not expect, in one line; else nothing."""
    why: dict[str, list[str]] = {}
    for one in gathered.left_out:
        if one.notable:
            why.setdefault(one.why, []).append(one.path)
    parts = [f"not copied: {_named(paths)} ({reason})" for reason, paths in why.items()]
    linked = [one.path for one in gathered.links if one.notable]
    parts += [f"linked, not copied: {_named(linked)}"] if linked else []
    installed = [f"{name} from {source}" for name, source in editable.items()]
    parts += [f"imported from its source, not from the copy: {_named(installed)}"] if installed else []
    return [*([gathered.note] if gathered.note else []), *([f"{'; '.join(parts)}; {ALL}"] if parts else [])]


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - _NAMED_MAX:,} more" if len(paths) > _NAMED_MAX else ""
    return f"{', '.join(paths[:_NAMED_MAX])}{more}"


def editable_outside(spec: Mapping[str, Any], variables: Mapping[str, str], directory: str) -> dict[str, str]:
    """Editable installs of the job's Python -> their source, from which the job imports them instead of from its copy.

    One of the work directory itself counts unless its Python surely finds the packages of the copy first.
    """
    environment, command = spec.get("environment"), spec.get("command")
    section = environment if isinstance(environment, Mapping) else {}
    if section.get("requirements"):
        return {}  # the job has an environment of its own
    words = [command] if isinstance(command, str) else list(map(str, command)) if isinstance(command, list | tuple) else []
    named = section.get("python")
    if isinstance(named, str) and named:
        python, _ = interpreter([named], False, variables, directory)
    else:
        python, _ = interpreter(words, isinstance(command, str), variables, directory)
    sources = Installation(python, {**os.environ, **variables}).editable_sources() if python is not None else {}
    sources.pop("trainmaster", None)  # the job's programs are not part of it
    copied = _looks_in_copy(words) and not os.path.isdir(os.path.join(directory, "src"))
    return {name: source for name, source in sources.items() if source != directory or not copied}


def _looks_in_copy(lines: Sequence[str]) -> bool:
    """Whether its Python looks for packages at the top of the copy first: if a script is there, or it runs a module."""
    words = [word.strip("'\";&|)") for line in lines for word in line.split()]
    scripts = [word.removeprefix("./") for word in words if word.endswith(".py")]
    if scripts or not words:
        return not any("/" in script for script in scripts)
    starts = any(_STARTER.match(os.path.basename(word)) for word in words)
    return starts and any(word in ("-m", "-c", "-", "--module") for word in words)


def of_job_in_place(spec: Mapping[str, Any], variables: Mapping[str, str], directory: str) -> dict[str, str]:
    """Editable installs of the Python of a job in place -> their source, where that is not in its directory."""
    root = os.path.realpath(directory)
    sources = editable_outside(spec, variables, directory)
    return {name: source for name, source in sources.items() if not f"{os.path.realpath(source)}/".startswith(f"{root}/")}
