"""What goes along with a job: the files that are copied, linked or left out and why, and the variables."""

import os
from collections.abc import Mapping
from typing import Any

from trainmaster.agent.environment.installed_packages import Installation, interpreter
from trainmaster.client.api import Row
from trainmaster.client.code_copy.gather import Gathered
from trainmaster.wire.code import Entry

_NAMED_MAX = 8
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

    One of the work directory itself counts only if a script at its top does not find the packages of the copy first.
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
    at_top = not any("/" in word for line in words for word in line.split() if word.endswith(".py"))
    copied = at_top and not os.path.isdir(os.path.join(directory, "src"))
    return {name: source for name, source in sources.items() if source != directory or not copied}
