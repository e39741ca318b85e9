"""Drafts that are validated here: from a spec file, or because there is no server yet that would do it.

Apart from `client.submission`, since the validator is half of what a submit from the command line costs.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.client.submission import Draft, Options, existing
from trainmaster.errors import UsageError
from trainmaster.model.spec import JobSpec
from trainmaster.spec.changes import remade
from trainmaster.spec.document import from_mapping, load_file
from trainmaster.spec.faults import nearest
from trainmaster.spec.mapping import to_mapping
from trainmaster.spec.shorthand import from_options


def draft_file(path: Path, options: Options, in_place: bool = False, hold: str | None = None) -> Draft:
    """A draft from a spec file, `options` winning over it. Raises: SpecError with file, line and column."""
    spec = load_file(path, os.environ)
    base = path.parent
    named = None if "requirements" in options else path
    if options:
        mapping = to_mapping(spec)
        if "function" in options:
            mapping.pop("command", None)  # what the file runs gives way to it
        spec = remade(spec, mapping, from_options(options, mapping.get("command"), os.environ))
        if "workdir" in options:
            base = Path()  # said on the command line: relative to where that is
    return Draft(to_mapping(spec), existing(base / Path(spec.workdir).expanduser()), in_place, hold, named)


def check_params(path: Path, params: Mapping[str, Any] | Sequence[str]) -> None:
    """Refuse a parameter whose name is nearly one of the file's: that was probably meant. Raises: UsageError, SpecError."""
    given = from_options({"params": params}, None).get("params") or {}
    has = load_file(path, os.environ).params if given else {}
    for name in given:
        near = nearest(str(name), list(has)) if name not in has else None
        if near:
            message = f"{path} has no parameter {str(name)!r}"
            raise UsageError(message, f"did you mean {near!r}?   a new one: --add-param {name}=…")


def check(draft: Draft) -> JobSpec:
    """The spec that a draft stands for. Raises: SpecError."""
    return from_mapping(draft.spec)
