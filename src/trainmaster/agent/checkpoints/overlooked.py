"""Finds new files that look like checkpoints but are not collected, and advises the user of a pattern that would match them.

The scan is bounded in files, bytes and time, however large the work directory is. So it may miss some. It judges a file only
by both its ends (`files.formats`), and does nothing but report.
"""

from __future__ import annotations

import os
import re
import shlex
import time

from trainmaster.agent.files.formats import plausible
from trainmaster.agent.files.globs import Glob
from trainmaster.agent.files.new_files import PATTERN_MAX, new_files, pattern_of, without_random
from trainmaster.agent.metrics.progress import LONG_S
from trainmaster.wire.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.metrics.progress import Progress
    from trainmaster.wire.launch import Launch

_BEFORE_S = 1.0  # a file may be older than the first step that was read, by so much
_TIME_MAX_S = 1.0
_KINDS_MAX = 50  # patterns whose files are opened
_FILES_MAX = 20  # per pattern, the newest
_TRIES = 3  # files opened per pattern: the newest may be half written
_NAMED_MAX, _NAME_MAX = 3, 60  # files shown, characters of a file name

_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"ckpt|checkpoint", re.IGNORECASE)
_BEST = re.compile(r"(?:\A|[^a-z])best", re.IGNORECASE)  # of an earlier epoch than the last, and some programs only evaluate it
_DATA = re.compile(  # what programs save beside checkpoints in the same formats: SchNetPack's split.npz
    r"(?:\A|[_. -])(?:splits?|dataset|stats|statistics|indices|predictions?|evaluations?)(?:[_. -]|\Z)", re.IGNORECASE
)


def lookalikes(launch: Launch, since_s: float, ended_well: bool) -> dict[str, list[str]]:
    """Files written at `since_s` (seconds since the epoch) or later that look like checkpoints, newest first.

    Grouped by a pattern that matches them, likeliest first. `ended_well`: then a single file may be the program's result.
    """
    until_s, work = time.monotonic() + _TIME_MAX_S, launch["work"]
    families: dict[str, list[tuple[int, str]]] = {}
    for path, modified_ns in new_files(work, int(since_s * 1e9), until_s):
        families.setdefault(pattern_of(path), []).append((modified_ns, path))
    newest_first = sorted(((sorted(files, reverse=True), pattern) for pattern, files in families.items()), reverse=True)
    own = [] if launch["checkpoint_path"] else [Glob(pattern, work) for pattern in launch["artifacts"]]
    ranked: list[tuple[tuple[bool, bool, bool, bool], str, list[str]]] = []
    for files, pattern in newest_first[:_KINDS_MAX]:
        names = [path for _, path in files[:_FILES_MAX] if not any(glob.owns(path) for glob in own)]
        found = _format(work, names, until_s)
        if found is None or len(pattern) > PATTERN_MAX or not Glob(pattern, work).owns(names[0]):
            continue
        named, anything = _WORD.search(pattern) is not None, found == "json"
        if not named and _DATA.search(os.path.basename(pattern)):
            continue
        result, best = ended_well and len(names) == 1, _BEST.search(os.path.basename(pattern)) is not None
        if named or not (anything or result):
            ranked.append(((not named, anything, result, best), pattern, names))
    return {pattern: names for _, pattern, names in sorted(ranked, key=lambda each: each[0])}


def _format(work: str, names: list[str], until_s: float) -> Optional[str]:
    """The apparent format of the files; "json" only if none has another format, because JSON may be anything."""
    found = None
    for name in names[:_TRIES]:
        if time.monotonic() > until_s:
            break
        try:
            found = plausible(os.path.join(work, name), moving=False) or found
        except OSError:
            continue  # gone, or not readable
        if found not in (None, "json"):
            break
    return found


def _joined(pattern: str, found: dict[str, list[str]]) -> tuple[str, list[str]]:
    """(a pattern for the files of a step, those of the newest) if their names differ in the end only; else as they are.

    PaddleOCR saves `iter_epoch_3.pdparams`, `.pdopt` and `.states`: each alone cannot be loaded.
    """
    directory, name = os.path.split(os.path.splitext(pattern)[0])
    if name.count("*") != 1 or "[" in name:
        return pattern, found[pattern]
    groups: dict[str, list[str]] = {os.path.splitext(each)[0]: [] for each in found[pattern]}
    for each in (each for other in found if _is_beside(other, pattern) for each in found[other]):
        groups.get(os.path.splitext(each)[0], []).append(each)
    most = max(groups.values(), key=len)  # of the newest, some may still be to come
    files = sorted(most)
    return (os.path.join(directory, name.replace("*", "{step}") + ".*"), files) if len(files) > 1 else (pattern, found[pattern])


def _steps_only(pattern: str, found: dict[str, list[str]], work: str) -> str:
    """It, with `{step}` for the number, if it matches others too: `checkpoint-*.pth` and `checkpoint-best.pth`."""
    directory, name = os.path.split(pattern)
    glob = Glob(pattern, work)
    if name.count("*") != 1 or not any(glob.owns(files[0]) for other, files in found.items() if other != pattern):
        return pattern
    stepped = os.path.join(directory, name.replace("*", "{step}"))
    return stepped if Glob(stepped, work).owns(found[pattern][0]) else pattern


def _is_beside(one: str, other: str) -> bool:
    (stem, end), (other_stem, _) = os.path.splitext(one), os.path.splitext(other)
    return one == other or (stem == other_stem and end.lower() != ".json")


class Overlooked:
    """The advice of one agent. `began_s`: when its ranks were started, in seconds since the epoch."""

    def __init__(self, launch: Launch, progress: Progress, began_s: float) -> None:
        self._launch, self._progress, self._began_s = launch, progress, began_s
        self._text = ""
        self._pattern = ""  # the likeliest pattern
        self._advised = ""

    def look(self, collected: Optional[str], ended: Optional[bool], denied: str = "") -> Optional[str]:
        """The new advice; "" to withdraw the last one; None if it is unchanged.

        `collected`: None if no checkpoints are collected, by the pattern or the SDK; else what is wrong with them, or "".
        `ended`: whether the job succeeded; None while it runs. `denied`: a directory that the pattern's matches may be in.
        """
        text = self._words(ended, denied) if collected is None else collected
        if _DIGITS.sub("#", text) == _DIGITS.sub("#", self._text):
            return None  # advise once, whichever step is the newest
        self._text = text
        return text

    def renumbered(self) -> str:
        """What to write if this attempt saves under the pattern's name with other numbers, as a start of its own; else "".

        Of an attempt that was given a checkpoint, which its pattern matches, and saved none that it matches.
        """
        wanted, work = self._launch["checkpoint_path"] or "", self._launch["work"]
        for pattern, files in lookalikes(self._launch, self._began_s, False).items():
            if _numberless(pattern) == _numberless(wanted) and not Glob(wanted, work).owns(files[0]):
                missed = f"the checkpoint pattern {_short(printable(wanted))!r} does not match what this attempt saves"
                return f"{missed}: {_short(files[0])}; to store these, write --checkpoint {shlex.quote(pattern)}"
        return ""

    def _words(self, ended: Optional[bool], denied: str) -> str:
        stepped_s = self._progress.first_s - _BEFORE_S if self._progress.named > 1 else 0.0  # a single step may be the last one
        found = lookalikes(self._launch, max(self._began_s, stepped_s), ended is True)
        self._pattern = self._pattern if self._pattern in found else next(iter(found), "")
        advised, files = _joined(self._pattern, found) if found else ("", [])
        its = "{step} or {directory}" if advised != self._pattern else "path"
        advised = _steps_only(advised, found, self._launch["work"]) if advised == self._pattern else advised
        if found and advised == self._advised:
            return self._text  # advise once, however many files follow
        self._advised = advised
        named = ", ".join(_short(name) for name in files[:_NAMED_MAX])
        line, wanted = f"--checkpoint {shlex.quote(advised)}", self._launch["checkpoint_path"]
        if not wanted:
            how = "" if self._launch["resume_arguments"] else f"; --resume-arguments hands its {its} to the program"
            given = f"these look like checkpoints: {named}; with {line} a restart is given the newest of them{how}"
            return given if found else ""
        pattern = f"the checkpoint pattern {_short(printable(wanted))!r}"
        unknown = f"what matches {pattern} in {_short(printable(denied))} could not be listed: permission denied"
        nothing = f"{unknown}; no" if denied else f"nothing matches {pattern}: no"
        nothing += " checkpoint is in the store"
        if found:
            return f"{nothing}; these new files look like checkpoints: {named}; for them write {line}"
        long = self._progress.stepping_s >= LONG_S
        return nothing if ended or (ended is False and long) else ""  # while it runs, the first checkpoint may still come


def _numberless(pattern: str) -> str:
    """A pattern or a path without what differs between steps, and between starts."""
    return re.sub(r"[*\d]+", "*", without_random(pattern).replace("{step}", "*"))


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[:20]}…{name[-_NAME_MAX + 21 :]}"
