"""Says what is wrong with a checkpoint pattern, by the files that it matches, and which pattern would do."""

from __future__ import annotations

import os
import re
import shlex

from trainmaster.agent.checkpoints.candidate_files import beginning
from trainmaster.agent.files.formats import begins_as_weights, is_database
from trainmaster.agent.files.glob_names import literal
from trainmaster.agent.files.globs import TEMPORARY, Glob
from trainmaster.agent.files.new_files import pattern_of, without_version
from trainmaster.wire.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import AbstractSet, Optional

    from trainmaster.agent.checkpoints.candidate_files import Candidate
    from trainmaster.wire.launch import Launch

_DIGITS = re.compile(r"\d+")
_NO_PART = (".old", ".bak", ".backup", ".orig", ".prev", ".lock", ".log", ".md5", ".sha256")  # beside a checkpoint
_NAMED_MAX = 3


def advice(glob: Glob, found: list[Candidate], launch: Launch) -> str:
    """A warning if what is stored as a checkpoint is probably not all that the program needs of it, else ""."""
    lost = beside(glob, found)
    if lost is not None:
        paths, name, pattern = lost
        listed, more = ", ".join(printable(path) for path in paths[:_NAMED_MAX]), len(paths) - _NAMED_MAX
        listed += f" and {more} more" if more > 0 else ""
        are, them, all_of_them = ("are", "them", "all") if len(paths) > 1 else ("is", "it", "both")
        write = f"write --checkpoint {shlex.quote(printable(pattern))}" if pattern else f"save {all_of_them} into one directory"
        return f"{listed} {are} in no checkpoint; if {printable(name)} cannot be loaded without {them}, {write}"
    later = version_of(glob, found)
    if later is not None:
        path, name = later
        wrote = f"{printable(path)} is in no checkpoint; if the program wrote it in place of {printable(name)}"
        return f"{wrote}, write --checkpoint {shlex.quote(printable(pattern_of(name)))}"
    if glob.has_step:
        return ""
    shown, wanted = repr(printable(launch["checkpoint_path"] or "")), apart(found)
    if wanted is not None:
        alone = f"several files of one step match {shown}, and each is a checkpoint of its own, of which a restart is given one"
        return f"{alone}; if they belong together, write --checkpoint {shlex.quote(printable(wanted))}"
    named = [] if "{path}" in (launch["resume_arguments"] or "") else kinds(found)
    if not named:
        return ""
    listed = ", ".join(printable(name) for name in named[:_NAMED_MAX])
    given = f"files of different names match {shown}: {listed}; a restart is given the newest, and others may be set aside"
    directory = os.path.dirname(named[0])
    numbered = same_numbers(glob.root, directory, found)
    which = "it needs them all" if numbered is None else "those of the same number belong together"
    pattern = literal(directory) if numbered is None else numbered
    together = f"; if {which}, write --checkpoint {shlex.quote(printable(pattern))}" if pattern else ""
    return f"{given}; if the program looks for one of these names, write that as --checkpoint{together}"


def unsettled(work: str, candidate: Candidate, held: Optional[list[str]], grown: AbstractSet[str]) -> str:
    """Why a checkpoint is not complete, and what to do.

    `held`: its files that the ranks have open; None: the ranks have ended. `grown`: those that were seen to become longer, as a
    log does.
    """
    if any(_is_database(os.path.join(work, path)) for path, _ in candidate.state):
        return "it is a database, which its program writes all the time and finds whole after a crash; leave --checkpoint out"
    why = "the program has it open all the time" if held else "it kept changing, or was not seen unchanged"
    if held is None:
        why = "it was still being written, or not yet seen unchanged, when the attempt ended"
    busy = held[0] if held else max(candidate.state, key=lambda one: one[1][3])[0]
    others = [(signed[2], path) for path, signed in candidate.state if path != busy]
    is_log = (held or busy in grown) and not _of_weights(os.path.join(work, busy))
    if len(candidate.roots) > 1 or not candidate.directories or not others or not is_log:
        return f"{why}; write it under another name and rename it when it is done"
    wanted = pattern_of(max(others)[1])
    told = f"{why}: {printable(busy)} is {'open' if held else 'its newest file'}"
    return f"{told}; if that is a log and no part of it, write --checkpoint {shlex.quote(printable(wanted))}"


def _is_database(path: str) -> bool:
    try:
        return is_database(path)
    except OSError:
        return False  # the advice is the general one


def _of_weights(path: str) -> bool:
    try:
        return begins_as_weights(path)
    except OSError:
        return False  # gone: its name is all that is known


def apart(found: list[Candidate]) -> Optional[str]:
    """A pattern that makes one candidate of files which have the same step and are each their own; None if there are none."""
    groups: dict[tuple[str, Optional[int]], list[str]] = {}
    for one in found:
        if one.step is not None and not one.many:
            groups.setdefault((os.path.dirname(one.key), one.step), []).append(one.key)
    for (_, step), keys in groups.items():
        begin, digits, end = os.path.basename(beginning(keys)).rpartition(str(step))
        if len({_DIGITS.sub("#", key) for key in keys}) > 1 and digits and not begin[-1:].isdigit() and not end[:1].isdigit():
            return os.path.join(literal(os.path.dirname(keys[0])), f"{literal(begin)}{{step}}{literal(end)}*")
    return None


def beside(glob: Glob, found: list[Candidate]) -> Optional[tuple[list[str], str, str]]:
    """(files, the newest checkpoint whose name theirs begin with, a pattern for all or "") if the files are in no checkpoint.

    gensim writes `w2v.model` and, for large matrices, `w2v.model.wv.vectors.npy`: the first alone cannot be loaded. Where the
    name has no step, the pattern is the directory: a program that others wrote does not save elsewhere.
    """
    for one in reversed(found):
        if one.many:
            continue
        directory, name = os.path.split(one.roots[0])
        try:
            names = sorted(os.listdir(os.path.join(glob.root, directory)))
        except OSError:
            return None
        parts = (each for each in names if each.startswith(f"{name}.") and not each.endswith((*TEMPORARY, *_NO_PART)))
        lost = [path for path in (os.path.join(directory, each) for each in parts) if not glob.owns(path)]
        begin, step, end = name.rpartition(str(one.step))
        known = one.step is not None and step
        pattern = os.path.join(literal(directory), f"{literal(begin)}{{step}}{literal(end)}*") if known else literal(directory)
        return (lost, one.roots[0], pattern) if lost else None
    return None


def version_of(glob: Glob, found: list[Candidate]) -> Optional[tuple[str, str]]:
    """(a newer file that is in no checkpoint, the checkpoint that it is a version of). None if there is none.

    Lightning's `last.ckpt`, restored, is not its own: it writes `last-v1.ckpt`, and each restart would be given the first.
    """
    for one in found:
        directory, name = os.path.split(one.roots[0])
        if one.many or not name.endswith(".ckpt"):
            continue
        try:
            entries = [*os.scandir(os.path.join(glob.root, directory))]
            newer = [each.name for each in entries if each.name.endswith(".ckpt") and each.stat().st_mtime > one.written_s]
        except OSError:
            continue  # gone
        versions = [each for each in newer if each != name and f"{without_version(each[:-5])}.ckpt" == name]
        path = os.path.join(directory, max(versions, default=name))
        if versions and not glob.owns(path):
            return path, one.roots[0]
    return None


def kinds(found: list[Candidate]) -> list[str]:
    """Single files of one directory whose names differ in more than numbers, the newest of each; [] if there are no such."""
    groups: dict[str, dict[str, str]] = {}
    for one in found:
        if not one.many:
            directory, name = os.path.split(one.roots[0])
            stem, end = os.path.splitext(name)
            groups.setdefault(directory, {})[_DIGITS.sub("#", without_version(stem) + end)] = one.roots[0]
    return next((list(names.values()) for names in groups.values() if len(names) > 1), [])


def same_numbers(root: str, directory: str, found: list[Candidate]) -> Optional[str]:
    """A pattern that makes one candidate of single files in `directory` whose names carry the same numbers, else None.

    VITS saves `G_100.pth` and `D_100.pth`, AllenNLP `model_state_e2_b0.th` and `training_state_e2_b0.th`, TensorFlow
    `train-40.data-00000-of-00001`, `train-40.index` and `train-40.meta`.
    """
    named: dict[str, dict[tuple[str, ...], str]] = {}
    for one in found:
        place, name = os.path.split(one.roots[0])
        numbers = tuple(_DIGITS.findall(name))
        if numbers and place == directory and not one.many:
            named.setdefault(_DIGITS.sub("#", name), {})[numbers] = name
    at = [_growing(files) for files in named.values()]
    if len(named) < 2 or -1 in at:
        return None
    grown = [{numbers[place]: name for numbers, name in files.items()} for place, files in zip(at, named.values())]  # noqa: B905
    shared = set.intersection(*map(set, grown))
    rest = max(map(len, grown)) - len(shared)
    stems = {names[each].partition(".")[0] for names in grown for each in shared}
    if not shared or rest > 1 or (len(shared) < 2 and len(stems) > 1):  # of the newest, the second file may be still to come
        return None
    texts = [_with_step(names[min(shared)], place) for place, names in zip(at, grown)]  # noqa: B905 - Python 3.9
    begin = beginning(texts)
    end = beginning([text[len(begin) :][::-1] for text in texts])[::-1]
    pattern = os.path.join(literal(directory), f"{begin}*{end}")
    steps = Glob(pattern, root)
    given = [(os.path.join(directory, names[each]), each) for names in grown for each in shared]
    return pattern if steps.has_step and all(steps.step(path) == int(digits) for path, digits in given) else None


def _growing(files: dict[tuple[str, ...], str]) -> int:
    """Which number of names that differ in numbers only is not the same in all; of a single name, the one before its suffix.

    -1 if there is no such number, or several.
    """
    if len(files) == 1:
        stem = next(iter(files.values())).partition(".")[0]
        return len(_DIGITS.findall(stem)) - 1 if stem[-1:].isdigit() else -1
    differ = [at for at, values in enumerate(zip(*files)) if len(set(values)) > 1]  # noqa: B905 - Python 3.9
    return differ[0] if len(differ) == 1 else -1


def _with_step(name: str, at: int) -> str:
    """A pattern for a name, with `{step}` for one of its numbers."""
    number = [*_DIGITS.finditer(name)][at]
    return f"{literal(name[: number.start()])}{{step}}{literal(name[number.end() :])}"
