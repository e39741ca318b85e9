"""Drafts that are validated on the client: from a spec file, or if no server is running that would validate or plan them.

Separate from `client.submission`, because importing the validator takes half the time of a submit.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.client.api import Row
from trainmaster.client.start_options import array_of, start_of
from trainmaster.client.submission import Draft, Options, draft_command, existing, pack
from trainmaster.errors import UsageError
from trainmaster.model.options.placeholders import without_resume_arguments
from trainmaster.model.redaction import shown
from trainmaster.model.spec import JobSpec
from trainmaster.spec.changes import remade
from trainmaster.spec.document import from_mapping, load_file
from trainmaster.spec.faults import nearest
from trainmaster.spec.mapping import to_mapping
from trainmaster.spec.shorthand import from_options
from trainmaster.spec.slurm_script import read


def draft_file(path: Path, options: Options, in_place: bool = False, hold: str | None = None) -> Draft:
    """A draft from a spec file, overridden by `options`. Raises: SpecError with file, line and column."""
    spec = load_file(path, os.environ)
    base = path.parent
    named = None if {"requirements", "python"} & options.keys() else path
    if options:
        mapping = to_mapping(spec)
        if "function" in options:
            mapping.pop("command", None)  # the option replaces the file's command
        spec = remade(spec, mapping, from_options(options, None, os.environ))
        if "workdir" in options:
            base = Path()  # given on the command line, so relative to the current directory
    return Draft(to_mapping(spec), existing(base / Path(spec.workdir).expanduser()), in_place, hold, named)


def draft_script(path: Path, text: str, arguments: Sequence[str], options: Options, in_place: bool = False) -> Draft:
    """A draft from a batch script of Slurm, overridden by `options`. The script runs in the copy, with these arguments.

    Raises: UsageError with file and lines.
    """
    script = read(str(path), text)
    own = script.options
    given: dict[str, Any] = {**options}
    hold = "held at submit" if own.pop("hold") else None
    start = start_of(own.pop("after", ()), own.pop("begin", None))
    array = array_of(own.pop("array")) if "array" in own else None
    for name in ("env", "tags", "custom"):  # of these, several can be given
        if name in own and name in given:
            given[name] = (*own[name], *given[name])
    said = Options(**{**own, **given})  # type: ignore[typeddict-item]
    directory = existing(Path(said.get("workdir", ".")).expanduser())
    place = path.absolute()
    if not in_place and not place.is_relative_to(directory):
        where = f"submit it from its own directory, or add --workdir {path.parent}"
        raise UsageError(f"{path} is not below {directory}, the directory that is copied for the job", where)
    word = str(place if in_place else place.relative_to(directory))
    draft = draft_command([*script.interpreter, word, *arguments], said, in_place, hold)
    return draft._replace(notes=tuple(script.notes), start=start, array=array)


def check_params(path: Path, params: Mapping[str, Any] | Sequence[str]) -> None:
    """Reject an unknown parameter whose name resembles one in the file. Raises: UsageError, SpecError."""
    given = from_options({"params": params}, None).get("params") or {}
    has = load_file(path, os.environ).params if given else {}
    for name in given:
        near = nearest(str(name), list(has)) if name not in has else None
        if near:
            message = f"{path} has no parameter {str(name)!r}"
            raise UsageError(message, f"did you mean {near!r}?   a new one: --add-param {name}=…")


def foresee_here(draft: Draft, why: str) -> Row:
    """What `foresee` finds, as far as it is known without a server; `reason` is then `why` no scheduler decided.

    Raises: SpecError, and other errors of `pack`.
    """
    prepared = pack(draft)
    spec, code = from_mapping(prepared.body["spec"]), prepared.body["code"]
    return {
        **dict.fromkeys(("placement", "position", "eta_s", "cost")),
        "reason": why,
        "delays": [],
        "notes": without_resume_arguments(spec),
        "spec": to_mapping(shown(spec)),
        "code": {name: code.get(name, 0) for name in ("files", "bytes")},
        **prepared.along,
        "directory": str(draft.directory),
        "in_place": draft.in_place,
    }


def check(draft: Draft) -> JobSpec:
    """The validated spec of a draft. Raises: SpecError."""
    return from_mapping(draft.spec)
