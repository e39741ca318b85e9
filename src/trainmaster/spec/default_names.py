"""Derives a job's default name from its command."""

import posixpath
import re
import shlex
from collections.abc import Sequence

from trainmaster.spec.fields.values import valid_name

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SEPARATORS = frozenset(("&&", "||", ";", "|", "&"))
_WRAPPERS = frozenset(("env", "exec", "nohup", "time", "bash", "sh", "cd", "export", "set"))


def default_name(command: str | Sequence[str]) -> str:
    """The script's name: `python train.py` → `train`, `python -m pkg.mod` → `mod`, else the program's, else `job`."""
    words = _words(command) if isinstance(command, str) else _unwrapped(command)
    script = next((word for word in words if word.endswith(".py") and not word.startswith("-")), None)
    if script is None and "-m" in words[:-1]:
        script = words[words.index("-m") + 1].rpartition(".")[2]
    if script is None:
        script = next((word for word in words if _may_be_program(word)), "")
    stem = posixpath.splitext(posixpath.basename(script.rstrip("/")))[0]
    return valid_name(stem) or "job"


def _may_be_program(word: str) -> bool:
    return not (_ASSIGNMENT.match(word) or word in _WRAPPERS or word in _SEPARATORS or word.startswith("-"))


def _unwrapped(argv: Sequence[str]) -> list[str]:
    """The words of argv; if argv passes a line to a shell, the words of that line."""
    if posixpath.basename(argv[0]) in ("bash", "sh") and "-c" in argv[:-1]:
        return _words(argv[argv.index("-c") + 1])
    return list(argv)


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # an open quote: bash will report it
        return line.split()
