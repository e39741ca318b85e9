"""Finds the exception that ended a program in the last lines of its output. Pure, in linear time.

The agent has more of these lines than it reports (`TAIL_LINES`); the server reads the reports of older agents.

An exception follows a line with "Traceback (most recent call last)" and its frames, which are indented or in a box. The last
traceback counts, except those of launchers, which only report that a child failed, of exceptions that Python ignored, and of
other ranks than the one that torchrun names as the root cause. What is chained to an exception is of its kind. Each line of a
traceback may have a prefix, such as `[rank1]: ` or `(train pid=7) `. Lines of a progress bar, of loggers and of libraries may
follow. If the program went on with its steps after the traceback, and then said why it ended, the exception was handled.
Without a traceback, what programs in C++, Rust, Go, Java and R say is found, or a last line that tells of an error, or the only
line that begins with `Error: `.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List, Optional

TAIL_LINES = 200  # searched; a traceback of rich and the report of torchrun are long
_BEYOND = 60  # lines that may follow the exception; an older one was handled
_SHOWN_MAX = 160  # characters
_HEAD = "Traceback (most recent call last)"
_COLOR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_NAMED = re.compile(r"[A-Za-z_][\w.<>]*(?::(?: .*)?)?\Z")  # directly after the frames, any name is an exception
_ERROR = re.compile(r"[A-Za-z_][\w.<>]*(?:Error|Exception|Interrupt|Exit|Warning|Group|Fault|Failure)(?::(?: .*)?)?\Z")
_PY4J = re.compile(r"[\w.]{0,100}Py4JJavaError: .*\.\Z")
_STEPS = re.compile(r"\b(?:step|iter|iteration|epoch)\b[^\w]{0,3}\d", re.IGNORECASE)
_FATAL = re.compile(r"Fatal Python error: .")
_GROUP = re.compile(r" {0,60}\| ?")  # of an ExceptionGroup
_IGNORED = ("Exception ignored in", "Exception ignored on", "Error in atexit._run_exitfuncs", "--- Logging error ---")
_THREAD = ("Exception in thread", "future: <", "handle: <")  # the last two: of asyncio
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_TRACKERS = ("wandb: ", "COMET ")  # their summaries name steps after the end, and their last lines are no reason of it
_HYDRA_BEGIN, _HYDRA_END = "Error executing job with overrides", "Set the environment variable HYDRA_FULL_ERROR=1"
_WARNED = re.compile(r"\S{1,300}:\d{1,9}: \w{0,60}Warning: | {1,8}warnings\.warn\(")  # as Python prints a warning
_LAUNCHERS = frozenset(("ChildFailedError", "ProcessRaisedException", "ProcessExitedException"))
_CALLED = "CalledProcessError"  # of `accelerate launch`, if the command is a Python; else the program's own
_NEAR = 4  # lines in which the message of an error follows
_THROWN = re.compile(r"terminate called after throwing an instance of '([^']{1,200})'")
_WHAT = re.compile(r"\bwhat\(\): {1,4}(\S.*)")
_UNCAUGHT = re.compile(r"terminating (?:due to|with) uncaught exception of type (\S.*)")  # libc++
_PANIC = re.compile(r"thread '[^']{0,100}'(?: \(\d{1,19}\))? (panicked at .*)")
_GO = re.compile(r"(?:panic|fatal error): \S")
_JAVA = re.compile(r'Exception in thread "[^"]{1,200}" ([\w.$]{1,200}(?:Exception|Error|Throwable)\b.*)')
_GLOG = re.compile(  # of glog and TensorFlow: F1127 10:00:00.386649 18068 io.cpp:36] Check failed: …
    r"(?:F\d{4} \d\d:\d\d:\d{1,12}(?:\.\d{1,9})? {1,6}\d{1,20} |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9}: F )"
    r"[\w./+-]{1,200}:\d{1,9}\] {0,2}(\S.*)"
)
_R_END = "Execution halted"
_TELLS = re.compile(  # of a last line: `t.py: error: unrecognized arguments`, `ERROR: no data`, `pythn: command not found`
    r"\b(?:error|fatal|cannot|can't|unable to|failed to|not found|no such file|permission denied|invalid)\b", re.IGNORECASE
)
_MEASURED = re.compile(r"\b(?:step|iter|iteration|epoch)\b[^\w]{0,3}\d|\berror\b[ :=]{1,4}[\d.]", re.IGNORECASE)  # error 0.3
_ALONE = re.compile(
    r"(?:\[[^\]]{0,60}\] )?(?:[Ee]rror|ERROR|FATAL|[Ff]atal(?: error)?): \S|\S{0,200}python[\d.]{0,9}: No module named "
)
_HARMLESS = re.compile(  # in a last line: it tells of no error, or of one that the program went on after
    r"\bpip's dependency resolver\b"
    r"|\b(?:[Nn]o|[Ww]ithout|0) errors?\b|\b[Ee]rror rate\b|\b(?:WARN|WARNING|INFO|DEBUG)\b|[Ww]arning:"
    r"|\b(?:from scratch|falling back|[Ss]kipping|[Ii]gnoring|[Rr]etrying)\b"
)
_TORCHRUN_RANK = re.compile(r"  rank +: (\d{1,9}) \(local_rank")
_CAUSE = re.compile(r"\s{1,8}(\w{1,60} error: .*)")  # torch: `\tWeightsUnpickler error: Unsupported global: …`
_OF_RANK = re.compile(r"\[rank(\d{1,9})\]")
_RANK = re.compile(r"(?:\[rank\d{1,9}\]: {0,2}|\[\d{1,4},\d{1,9}\]<\w{3,6}>: {0,2}|\([\w-]{1,40} pid=\d{1,9}[^()]{0,60}\) )")


class _Found:
    """An exception: its line's number, whether it ended a thread only, and its rank as its lines' prefix names it."""

    def __init__(self, number: int, thread: bool, rank: str, text: str) -> None:
        self.number = number
        self.thread = thread
        self.rank = rank
        self.text = text


class _Search:
    """The state of a search, line by line."""

    def __init__(self) -> None:
        self.found: List[_Found] = []
        self._inside = False  # after the head of a traceback, before its exception
        self._prefix = ""
        self._group = False
        self._kind = ""
        self._before = ""  # the line before, without prefix
        self._told = ""  # the last line that is not empty
        self._unfinished = False  # the line before is an exception whose message goes on: `Error(s) in loading state_dict:`

    def line(self, number: int, text: str, last: bool) -> None:
        """Search one line. `last`: no other text follows it."""
        at = text.find(_HEAD)
        if at >= 0:
            self._begin(text[:at])
            return
        self._told = text or self._told
        if (self._inside or self._unfinished) and self._prefix and text.startswith(self._prefix):
            text = text[len(self._prefix) :]
        if self._unfinished:
            self._unfinished = False
            found = self.found[-1]
            told = text.removeprefix(": ") if found.text.endswith(".") else text.strip()  # Py4J: the error of Java
            if told[:1].isalpha() and (told != text or not found.text.endswith(".")):
                found.text = f"{found.text.rstrip('.:')}: {told}"
                return
        if self._inside and self._group:
            text = _GROUP.sub("", text, count=1)
        after_frames = self._before != "" and self._before[0] in " \t|│╰+>"
        if self._inside:
            is_exception = bool((_NAMED if after_frames else _ERROR).match(text))
        else:
            cut_off = (last or after_frames) and _ERROR.match(text) and not text.partition(":")[0].endswith("Warning")
            is_exception = bool(_FATAL.match(text) or cut_off)
            self._kind, self._prefix = ("", "") if is_exception else (self._kind, self._prefix)
        if is_exception and self._kind != "ignored":
            rank = _OF_RANK.match(self._prefix)
            self.found.append(_Found(number, self._kind == "thread", rank[1] if rank is not None else "", text))
            self._unfinished = text.endswith(":") or bool(_PY4J.match(text))
        self._inside = self._inside and not is_exception
        self._before = text

    def _begin(self, prefix: str) -> None:
        self._inside = True
        self._group = prefix.endswith("Exception Group ")
        at = prefix.rfind("[rank")  # a progress bar may stand before it
        self._prefix = "" if self._group else prefix[at:] if at > 0 and _RANK.fullmatch(prefix, at) else prefix
        told = _RANK.sub("", self._told, count=1)
        if not told.startswith(_CHAINED):
            self._kind = "ignored" if told.startswith(_IGNORED) else "thread" if told.startswith(_THREAD) else ""
        self._before = _HEAD  # a frame must follow before any name is an exception


def raised(lines: Iterable[str], exit_code: Optional[int] = 1) -> Optional[str]:
    """The exception and its message, `ValueError: boom`; None if there is none. Python exits with 1 after an exception."""
    texts = [_COLOR.sub("", line).rstrip() for line in lines]
    last = max((number for number, text in enumerate(texts) if text), default=-1)
    search = _Search()
    for number, text in enumerate(texts):
        search.line(number, text, number == last)
    near = _of_root(texts, [one for one in search.found if one.number >= last - _BEYOND])
    best = max(near, key=lambda one: (not one.thread, not is_launcher(one.text), one.number)) if near else None
    texts = texts[: last + 1]
    later = texts if best is None else texts[best.number + 1 :]
    if best is None:
        found = _hydra(texts) or _crash(texts) or _last_words(texts) or _only_error(texts) or ""
    else:
        found = (_only_error(texts) if best.text.endswith("ChildFailedError:") else None) or best.text
    found = found.rstrip(": ")
    if best is not None and len(found) > _SHOWN_MAX:
        found = _short(found, later[:_NEAR])
    if best is not None and any(_STEPS.search(text) and not text.startswith(_TRACKERS) for text in later):  # it went on
        found = _crash(later) or _last_words(later) or (found if exit_code == 1 else "")
    if not found:
        return None
    return found if len(found) <= _SHOWN_MAX else found[: _SHOWN_MAX - 1] + "…"


def _of_root(texts: List[str], found: List[_Found]) -> List[_Found]:
    """Without the exceptions of other ranks than the one that torchrun names as the root cause, last in its report."""
    root = next((match[1] for match in map(_TORCHRUN_RANK.match, reversed(texts)) if match is not None), "")
    return [one for one in found if root == "" or one.rank in ("", root)]


def _short(found: str, after: List[str]) -> str:
    """A long message begins with advice: the cause follows in a line of its own."""
    causes = (_CAUSE.match(_RANK.sub("", text, count=1)) for text in after)
    cause = next((match[1] for match in causes if match is not None), None)
    return found if cause is None else f"{found.partition('. ')[0]}: {cause}"


def _hydra(texts: List[str]) -> Optional[str]:
    """The message of an error of Hydra's own, which it prints without a traceback.

    It is the first line of the paragraph, below the warnings in it.
    """
    if not texts or not texts[-1].startswith(_HYDRA_END):
        return None
    found = None
    for text in reversed(texts[:-1]):
        if text.startswith(_HYDRA_BEGIN) or _WARNED.match(text) or (not text and found is not None):
            break
        found = text or found
    return found


def _crash(texts: List[str]) -> Optional[str]:
    """The error that ended a program that is not Python's, `std::runtime_error: no such file`; None if there is none."""
    for at in range(len(texts) - 1, max(-1, len(texts) - 2 - _BEYOND), -1):
        found = _crash_at(_RANK.sub("", texts[at], count=1), texts[at + 1 : at + 1 + _NEAR])
        if found is not None:
            return found
    return None


def _last_words(texts: List[str]) -> Optional[str]:
    """The last line, if it tells of an error. Usage and notes of a tool may stand before it."""
    texts = [text for text in texts if not text.startswith(_TRACKERS)]
    last = _RANK.sub("", texts[-1], count=1).strip() if texts else ""
    if last == _R_END:
        return next((text.strip() for text in reversed(texts[-_NEAR:]) if text.startswith("Error")), last)
    return last if _TELLS.search(last) and not _MEASURED.search(last) and not _HARMLESS.search(last) else None


def _only_error(texts: List[str]) -> Optional[str]:
    """The only line that begins as an error does. What is buffered may stand after it, as a table on standard output."""
    plain = [_RANK.sub("", text, count=1).strip() for text in texts]
    at = [number for number, text in enumerate(plain) if _ALONE.match(text)]
    found = plain[at[0]] if len({plain[one] for one in at}) == 1 else ""
    if found and any(_STEPS.search(text) for text in plain[at[0] :]):
        return None  # it went on
    return found if found and not _MEASURED.search(found) and not _HARMLESS.search(found) else None


def _crash_at(text: str, after: List[str]) -> Optional[str]:
    thrown = _THROWN.search(text)
    if thrown is not None:
        what = next((match[1] for match in map(_WHAT.search, after) if match is not None), "")
        return f"{thrown[1]}: {what}"
    panic = _PANIC.search(text)
    if panic is not None:
        return f"{panic[1]} {after[0].strip()}" if panic[1].endswith(":") and after else panic[1]
    uncaught = _UNCAUGHT.search(text) or _JAVA.match(text) or _GLOG.match(text)
    if uncaught is not None:
        return uncaught[1]
    return text if _GO.match(text) and any(line.startswith(("goroutine ", "[signal ")) for line in after) else None


def is_launcher(exception: str) -> bool:
    """Whether it only says that a child process failed."""
    name = exception.partition(":")[0].rpartition(".")[2]
    return name in _LAUNCHERS or (name == _CALLED and "python" in exception)
