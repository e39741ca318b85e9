"""Drafts that are validated here: from a spec file, or because there is no server yet that would do it.

Apart from `client.submission`, since the validator is half of what a submit from the command line costs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.client.submission import Draft, Options, existing
from trainmaster.model.spec import JobSpec
from trainmaster.spec.document import from_mapping, load_file
from trainmaster.spec.mapping import to_mapping
from trainmaster.spec.shorthand import from_options


def draft_file(path: Path, options: Options, in_place: bool = False, hold: str | None = None) -> Draft:
    """A draft from a spec file, `options` winning over it. Raises: SpecError with file, line and column."""
    spec = load_file(path)
    base = path.parent
    if options:
        mapping = to_mapping(spec)
        if "function" in options:
            mapping.pop("command", None)  # what the file runs gives way to it
        more = from_options(options, mapping.get("command"))
        followed = spec.resources.ranks == (spec.resources.gpus or 1)
        if "gpus" in options and followed:
            del mapping["resources"]["ranks"]  # one rank per GPU: it follows the new number
        spec = from_mapping(_merged(mapping, more))
        if "workdir" in options:
            base = Path()  # said on the command line: relative to where that is
    return Draft(to_mapping(spec), existing(base / Path(spec.workdir).expanduser()), in_place, hold)


def check(draft: Draft) -> JobSpec:
    """The spec that a draft stands for. Raises: SpecError."""
    return from_mapping(draft.spec)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with what `over` says, section by section."""
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged
