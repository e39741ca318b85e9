"""Finds what a program said of its end without a traceback of Python: C++, Rust, Go, Java, R, its last line. Pure, linear."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

_NEAR = 4  # lines in which the message of an error follows
_THROWN = re.compile(r"terminate called after throwing an instance of '([^']{1,200})'")
_WHAT = re.compile(r"\bwhat\(\): {1,4}(\S.*)")
_UNCAUGHT = re.compile(r"terminating (?:due to|with) uncaught exception of type (\S.*)")  # libc++
_PANIC = re.compile(r"thread '[^']{0,100}'(?: \(\d{1,19}\))? (panicked at .*)")
_GO = re.compile(r"(?:panic|fatal error): \S")
_JAVA = re.compile(r'Exception in thread "[^"]{1,200}" ([\w.$]{1,200}(?:Exception|Error|Throwable)\b.*)')
_R_END = "Execution halted"
_TELLS = re.compile(  # of a last line: `t.py: error: unrecognized arguments`, `ERROR: no data`, `pythn: command not found`
    r"\b(?:error|fatal|cannot|can't|unable to|failed to|not found|no such file|permission denied|invalid)\b", re.IGNORECASE
)
_MEASURED = re.compile(r"\b(?:step|iter|iteration|epoch)\b[^\w]{0,3}\d|\berror\b[ :=]{1,4}[\d.]", re.IGNORECASE)  # error 0.3
_PREFIX = re.compile(r"(?:\[rank\d{1,9}\]: {0,2}|\[\d{1,4},\d{1,9}\]<\w{3,6}>: {0,2}|\([\w-]{1,40} pid=\d{1,9}[^()]{0,60}\) )")


def crash(texts: List[str]) -> Optional[str]:
    """The error that ended a program that is not Python's, `std::runtime_error: no such file`; None if there is none."""
    for at in range(len(texts) - 1, -1, -1):
        found = _at(_PREFIX.sub("", texts[at], count=1), texts[at + 1 : at + 1 + _NEAR])
        if found is not None:
            return found
    return None


def last_words(texts: List[str]) -> Optional[str]:
    """The last line, if it tells of an error. Usage and notes of a tool may stand before it."""
    last = _PREFIX.sub("", texts[-1], count=1).strip() if texts else ""
    if last == _R_END:
        return next((text.strip() for text in reversed(texts[-_NEAR:]) if text.startswith("Error")), last)
    return last if _TELLS.search(last) and not _MEASURED.search(last) else None


def _at(text: str, after: List[str]) -> Optional[str]:
    thrown = _THROWN.search(text)
    if thrown is not None:
        what = next((match[1] for match in map(_WHAT.search, after) if match is not None), "")
        return f"{thrown[1]}: {what}"
    panic = _PANIC.search(text)
    if panic is not None:
        return f"{panic[1]} {after[0].strip()}" if panic[1].endswith(":") and after else panic[1]
    uncaught = _UNCAUGHT.search(text) or _JAVA.match(text)
    if uncaught is not None:
        return uncaught[1]
    return text if _GO.match(text) and any(line.startswith(("goroutine ", "[signal ")) for line in after) else None
