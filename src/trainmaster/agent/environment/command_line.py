"""Reads which programs a command starts, as far as that is simple and sure. No file is read and nothing is run."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    Options = Tuple[Tuple[str, ...], Tuple[str, ...], int]

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\+?=")
_DECIDES = re.compile(r"(?:PATH|PYTHON\w*|VIRTUAL_ENV|CONDA_\w*|LD_\w*|BASH_ENV)\Z")  # variables that change what is started
_UNSURE = re.compile(r"[$`*?{}\\]")  # in a program's name: only the shell knows what it is
_NICENESS = re.compile(r"--?\d+\Z")
_SHELLS = ("bash", "sh", "dash")
_SHELL_OPTIONS = re.compile(r"-[eux]+\Z")
_NESTED_MAX = 3
_LINE_MAX = 65536
# Programs that start another one -> options with a value, options without, arguments before the command.
_WRAPPERS: Dict[str, Options] = {
    "env": (("-u", "--unset"), (), 0),
    "exec": (("-a",), (), 0),
    "command": ((), (), 0),
    "nohup": ((), (), 0),
    "time": (("-f", "-o"), ("-p", "-v"), 0),
    "setsid": ((), ("-w", "--wait", "-f", "--fork", "-c", "--ctty"), 0),
    "nice": (("-n", "--adjustment"), (), 0),
    "ionice": (("-c", "-n", "--class", "--classdata"), ("-t", "--ignore"), 0),
    "timeout": (("-k", "-s", "--kill-after", "--signal"), ("--foreground", "--preserve-status", "-v", "--verbose"), 1),
    "stdbuf": (("-i", "-o", "-e", "--input", "--output", "--error"), (), 0),
    "taskset": ((), ("-c", "--cpu-list", "-a", "--all-tasks"), 1),
    "numactl": (
        ("-C", "-N", "-m", "-i", "-p", "--physcpubind", "--cpunodebind", "--membind", "--interleave", "--preferred"),
        ("-l", "--localalloc"),
        0,
    ),
}
_KEYWORDS = ("if", "then", "else", "elif", "do", "while", "until", "!", "{")
_PLAIN = frozenset(  # programs and words of the shell that start no Python and change none
    (
        "cd", "echo", "printf", "true", "false", "test", "[", "[[", "mkdir", "rm", "cp", "mv", "ls", "cat", "tee", "sleep",
        "date", "hostname", "nvidia-smi", "export", "unset", "set", "umask", "ulimit", "exit", "wait", "pwd", "touch", "grep",
        "head", "tail", "sort", "wc", "tr", "cut", "df", "free", "lscpu", "whoami", "id", "uname", "kill", "fi", "done", "}",
        "for",
    )
)  # fmt: skip


def programs(command: List[str], shell: bool) -> Tuple[List[str], bool]:
    """The programs that may be a Python or start one, in order, and whether these are surely all."""
    if shell:
        return _of_line(command[-1], 0)
    return _of_words(command, 0)


def _of_words(words: List[str], depth: int) -> Tuple[List[str], bool]:
    """Of one simple command."""
    left = _unwrapped(words)
    if left is None:
        return [], False
    if not left:
        return [], True
    name, rest = os.path.basename(left[0]), left[1:]
    if name in _SHELLS:
        line = _line_of(rest)
        return ([], False) if line is None or depth == _NESTED_MAX else _of_line(line, depth + 1)
    if name in _PLAIN:
        decides = name in ("export", "unset") and any(_decides(word) for word in rest)
        return [], not decides
    return ([], False) if _UNSURE.search(left[0]) else ([left[0]], True)


def _unwrapped(words: List[str]) -> Optional[List[str]]:
    """The command behind assignments and programs such as `nice`; None if it is not sure, or if they decide what is started."""
    at = 0
    while at < len(words):
        word = words[at]
        if _ASSIGNED.match(word):
            if _decides(word):
                return None
            at += 1
            continue
        wrapper = _WRAPPERS.get(os.path.basename(word))
        if wrapper is None:
            break
        after = _behind(words, at + 1, wrapper)
        if after is None:
            return None
        at = after
    return words[at:]


def _behind(words: List[str], at: int, wrapper: Options) -> Optional[int]:
    """Where the command begins behind the options of a program; None for an option that nobody knows here."""
    valued, flags, before = wrapper
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in valued:
            if not equals:
                value = words[at] if at < len(words) else ""
                at += 1
            if _DECIDES.match(value):
                return None
        elif word not in flags and word[:2] not in valued and not _NICENESS.match(word):
            return None
    return at + before


def _line_of(arguments: List[str]) -> Optional[str]:
    """The line that a shell is given with `-c`; None if it runs a script or reads its start-up files."""
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "-o":
            at += 2
        elif word.endswith("c") and (word == "-c" or _SHELL_OPTIONS.match(word[:-1])):
            return arguments[at + 1] if at + 1 < len(arguments) else None
        elif _SHELL_OPTIONS.match(word):
            at += 1
        else:
            return None
    return None


def _of_line(line: str, depth: int) -> Tuple[List[str], bool]:
    """Of a line for bash."""
    commands = _simple_commands(line)
    if commands is None:
        return [], False
    found: List[str] = []
    sure, moved = True, False
    for words in commands:
        begins = next((at for at, word in enumerate(words) if word not in _KEYWORDS), len(words))
        words = words[begins:]
        names, known = _of_words(words, depth)
        relative = moved and any("/" in name and not name.startswith(("/", "~")) for name in names)
        sure = sure and known and not relative
        moved = moved or words[:1] == ["cd"]
        found += names
    return found, sure


def _simple_commands(line: str) -> Optional[List[List[str]]]:
    """The words of each command of a line, without redirections; None for a line that only a shell can read."""
    import shlex  # noqa: PLC0415 - only for a command that is a line

    if len(line) > _LINE_MAX or any(mark in line for mark in ("`", "$(", "<<", "#")):
        return None
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        tokens = list(lexer)
    except ValueError:  # a quote that is not closed
        return None
    commands: List[List[str]] = [[]]
    skipped = False
    for token in tokens:
        if skipped:
            skipped = False
        elif token and not token.strip("<>&|") and token.strip("&|"):
            skipped = True  # what follows is a file
            if commands[-1] and commands[-1][-1].isdigit():
                commands[-1].pop()
        elif token and not token.strip(";&|()<>\n"):
            commands.append([])
        else:
            commands[-1].append(token)
    return commands


def _decides(word: str) -> bool:
    return bool(_DECIDES.match(word.partition("=")[0].rstrip("+")))
