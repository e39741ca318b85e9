"""Finds out at submit whether a program can read its parameters, so that none is set that nothing would read.

A program reads all parameters from TRAINMASTER_PARAMS, itself or through the SDK. So a file that does it mentions one of
them. Reads a bounded part of the code copy.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.client.checks.command_words import commands, module_files, words
from trainmaster.client.code_copy.gather import Gathered
from trainmaster.errors import UsageError
from trainmaster.model.options.placeholders import Command, mentions_reader, names_in

_SIGN = re.compile(rb"trainmaster(?:_params|_?(?:[^a-z0-9_]|\Z))")  # the variable, or an import of the SDK; no other variable
_TEXTS = (".md", ".rst", ".txt", ".csv")  # not programs, nor their configuration
_FILE_BYTES, _TOTAL_BYTES = 1 << 20, 32 << 20


def reads_params(spec: Mapping[str, Any], gathered: Gathered | None) -> bool | None:
    """Whether the program of a spec (a mapping) reads parameters; None if that cannot be known.

    False only if the program is part of the code copy, and no file of the copy mentions where parameters are read from. What
    is linked instead of copied is data or installed packages.
    """
    if spec.get("python") is not None or any(mentions_reader(one) for one in commands(spec)):
        return True
    if gathered is None:
        return None
    entries, left = gathered.tree["entries"], _TOTAL_BYTES
    complete = not any(entry["type"] == "symlink" and entry["target"].startswith("/") for entry in entries)
    for entry in entries:
        if entry["type"] != "file" or entry["path"].endswith(_TEXTS):
            continue
        left -= min(entry["bytes"], _FILE_BYTES)
        if left < 0:
            return None
        try:
            with open(gathered.sources[entry["sha256"]], "rb") as file:
                if _SIGN.search(file.read(_FILE_BYTES).lower()):
                    return True
        except OSError:
            complete = False
    paths = {entry["path"] for entry in entries if entry["type"] == "file"}
    return False if complete and all(_is_inside(one, paths) for one in commands(spec)[:1]) else None


def check_set(spec: Mapping[str, Any], wanted: Sequence[str], reads: bool | None) -> list[str]:
    """Notes about parameters that were set by hand, of which it is not known that the program reads them.

    Raises: UsageError for one that nothing reads.
    """
    used = frozenset[str]().union(*(names_in(one) for one in commands(spec)))
    left = [name for name in wanted if name not in used]
    if not left or reads:
        return []
    name, several = left[0], ", ".join(left)
    use = f"write {{{name}}} where the command takes it: tm run --set {name}=… -- python train.py --{name} {{{name}}}"
    if reads is None:
        return [f"the command has no {{{name}}}; if the program does not read TRAINMASTER_PARAMS, {several} changes nothing"]
    raise UsageError(f"nothing would read the parameter {name!r}", f"{use}   only to record it: --add-param {name}=…")


def _is_inside(command: Command, paths: set[str]) -> bool:
    """Whether a command runs a script of the code copy: `python train.py`, `./run.sh`, `python -m package.train`."""
    return any(word.removeprefix("./") in paths or module_files(word) & paths for word in words(command))
