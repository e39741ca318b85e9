"""Patterns of users for metrics, searched in linear time: by RE2, never by the backtracking `re`.

RE2 (the package `google-re2`) is the one module outside the standard library that an agent imports, and only for a job
that has a pattern (docs/decisions/0012-hostile-text.md). Specs are checked by the same function, with the same limits.
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
            """The groups' numbers by name."""

        def search(self, text: str) -> Optional[Match[str]]:
            """The first match."""

TEXT_MAX = 1000  # characters of a pattern
GROUPS_MAX = 32  # in all: what they hold is copied at each step of a search
_PROGRAM_MAX = 2000  # instructions: a search does each of them at most once for a byte
_MEMORY_BYTES = 256 * 1024  # of the compiled pattern and of what a search may remember
_REASONS = (  # what RE2 says of an operator it has not got, in words
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
    """A pattern that is not taken; the text says why."""


class _Off:
    """In place of a pattern that this node can't search for: nothing is found."""

    groupindex: Mapping[str, int] = {"step": 0}

    def search(self, text: str) -> Optional[Match[str]]:
        """None."""
        return None


def of_launch(launch: Launch, outbox: Outbox) -> Optional[Search]:
    """The launch's pattern, None where there is none. One that can't be had is off, and the job is told so."""
    text = launch["metrics_pattern"]
    if not text:
        return None
    try:
        return compiled(text, launch.get("pattern_engine"))
    except ImportError as error:
        why = f"this node's Python has no RE2 ({error}); install google-re2 there"
    except PatternError as error:
        why = f"it is not taken any more: {error}"
    outbox.warn("pattern", f"metrics.pattern is off, and no metric is read from the output: {why}")
    return _Off()


def compiled(text: str, place: Optional[str] = None) -> Search:
    """A pattern with `search` and `groupindex`; `place` is the directory that RE2 lies in where it is not on the path.

    Milliseconds at most. Raises: PatternError, ImportError (RE2 is not there).
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
    """Raises: ImportError."""
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
