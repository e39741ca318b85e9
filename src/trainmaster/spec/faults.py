"""Faults in a spec, each with its position, and one error that lists them all."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trainmaster.errors import SpecError

FAULTS_MAX = 100  # listed in an error; the rest is counted


class Fault(NamedTuple):
    """One fault. `line` and `column` count from 1; they and `file` are None without a file."""

    field: str
    message: str
    expected: str = ""
    got: str = ""
    nearest: str | None = None
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = "" if self.file is None else f"{self.file}:{self.line}:{self.column}: "
        field = f"{self.field}: " if self.field else ""
        return place + field + self.message


def spec_error(faults: Iterable[Fault], hint: str = "`tm schema` lists every field.") -> SpecError:
    """One error for all `faults`, in the order of the file."""
    ordered = sorted(faults, key=lambda f: (f.line or 0, f.column or 0))
    lines = [str(fault) for fault in ordered[:FAULTS_MAX]]
    if len(ordered) > FAULTS_MAX:
        lines.append(f"and {len(ordered) - FAULTS_MAX} more")
    return SpecError("\n".join(lines), hint, [f._asdict() for f in ordered[:FAULTS_MAX]])


def describe(value: object) -> str:
    """A short description of `value` for a message."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value!r}" if isinstance(value, float) or abs(value) < 10**40 else "a very large number"
        case str():
            return repr(value) if len(value) <= 60 else repr(value[:57] + "…")
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
    return f"a {type(value).__name__}"


def nearest(name: str, names: Sequence[str], cutoff: float = 0.6) -> str | None:
    """The most similar one of `names`; None if none is similar."""
    lowered = name.lower().replace("-", "_")
    if lowered in names:
        return lowered
    import difflib  # noqa: PLC0415  # needed for typing errors only

    found = difflib.get_close_matches(lowered[:80], names, n=1, cutoff=cutoff)
    return found[0] if found else None
