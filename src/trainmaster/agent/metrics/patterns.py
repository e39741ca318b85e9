"""Users' metric patterns, searched in linear time with RE2 instead of the backtracking `re`.

RE2 (the package `google-re2`) is the only module outside the standard library that an agent imports, and only for a job
with a pattern (docs/decisions/0012-hostile-text.md). Specs are validated by the same function, with the same limits.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Match, Optional, Protocol

    from trainmaster.agent.transport.outbox import Outbox
    from trainmaster.wire.launch import Launch

    class Search(Protocol):
        """A compiled pattern."""

        @property
        def groupindex(self) -> Mapping[str, int]:
            """Group numbers by name."""

        def search(self, text: str) -> Optional[Match[str]]:
            """The first match."""

TEXT_MAX = 1000  # characters of a pattern
GROUPS_MAX = 32  # in total: each step of a search copies the groups
_NOT_MEASURED = ("step", "epoch", "lr")
_PROGRAM_MAX = 2000  # instructions: a search executes each at most once per byte
_MEMORY_BYTES = 256 * 1024  # for the compiled pattern and the state of a search
_REASONS = (  # RE2's error for an operator that it lacks -> our message
    ("(?=", "a look-ahead (?=…) cannot be matched in linear time"),
    ("(?!", "a negative look-ahead (?!…) cannot be matched in linear time"),
    ("(?<=", "a look-behind (?<=…) cannot be matched in linear time"),
    ("(?<!", "a negative look-behind (?<!…) cannot be matched in linear time"),
    ("(?>", "an atomic group (?>…) is not needed, as every pattern is matched in linear time: write (?:…)"),
    ("(?(", "a conditional (?(…)…) cannot be matched in linear time"),
    ("(?P", "a back-reference (?P=name) cannot be matched in linear time"),
    ("\\Z", "the end of the text is written \\z"),
    ("++", "a possessive repeat '++' is not needed, as every pattern is matched in linear time: write '+'"),
    ("*+", "a possessive repeat '*+' is not needed, as every pattern is matched in linear time: write '*'"),
)
_TOO_LARGE = "it is too large when its repeats are written out: make the numbers in {…} smaller"


class PatternError(ValueError):
    """The pattern is rejected; the text says why."""


def of_launch(launch: Launch, outbox: Outbox) -> Optional[Search]:
    """The launch's pattern; None if there is none. A pattern that cannot be compiled is switched off with a warning."""
    text = launch["metrics_pattern"]
    if not text:
        return None
    try:
        return compiled(text, launch.get("pattern_engine"))
    except ImportError as error:
        why = f"this node's Python has no RE2 ({error}); install google-re2 there"
    except PatternError as error:
        why = f"it is no longer accepted: {error}"
    outbox.warn("pattern", f"metrics.pattern is off, and nothing is read by it: {why}")
    return None


def named(launch: Launch, pattern: Optional[Search]) -> frozenset[str]:
    """The measured values that the user named: the primary metric, and the groups of the pattern."""
    groups = () if pattern is None else pattern.groupindex
    primary = launch.get("metrics_primary")
    return frozenset((*groups, *((primary,) if primary else ()))).difference(_NOT_MEASURED)


def compiled(text: str, place: Optional[str] = None) -> Search:
    """Compile a pattern. `place`: the directory of RE2 if it is not on the path.

    Takes milliseconds at most. Raises: PatternError, ImportError (RE2 is not installed).
    """
    if len(text) > TEXT_MAX:
        raise PatternError(f"it has {len(text):,} characters; at most {TEXT_MAX:,} are taken")
    re2 = _engine(place)
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        raise PatternError(_reason(error)) from None
    except UnicodeError:
        raise PatternError("it is not valid text") from None
    if pattern.groups > GROUPS_MAX:
        raise PatternError(f"it has {pattern.groups} groups; at most {GROUPS_MAX} are taken. (?:…) groups without counting")
    if pattern.programsize > _PROGRAM_MAX:
        raise PatternError(_TOO_LARGE)
    search: Search = pattern
    return search


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    said = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    kind, _, found = said.partition(": ")
    if kind.startswith("pattern too large"):
        return _TOO_LARGE
    if kind == "invalid escape sequence" and found[1:2].isdigit():
        return f"a back-reference {found} cannot be matched in linear time"
    operator = kind in ("invalid perl operator", "invalid escape sequence", "bad repetition operator")
    return next((words for mark, words in _REASONS if operator and found.startswith(mark)), said)


def _engine(place: Optional[str]) -> Any:
    """The RE2 module. Raises: ImportError."""
    try:
        import re2  # noqa: PLC0415 - only for a job with a pattern
    except ImportError:
        if place is None:
            raise
        sys.path.append(place)  # this process was started without site-packages
        try:
            import re2  # noqa: PLC0415
        finally:
            sys.path.remove(place)
    return re2
