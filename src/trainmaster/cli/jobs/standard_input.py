"""Refuses a job that would wait for input: the standard input of a job is empty."""

import array
import os
import re
import stat
import termios
from collections.abc import Sequence
from fcntl import ioctl

from trainmaster.errors import UsageError

_INTERPRETER = re.compile(r"(?:bash|sh|dash|zsh|ksh|fish|i?python[0-9.]*|perl|ruby|node|julia)\Z")
_FROM_INPUT = ("-", "-s", "/dev/stdin")
_FLAGS = re.compile(r"-[eiluxs]+\Z")  # of interpreters, after which the program still comes from the input
IGNORED = "a job has no standard input: what is piped into this command is not passed on"


def check_input(command: str | Sequence[str]) -> str:
    """What to say about input that waits for this process; empty if none does.

    Raises: UsageError if the job would read its program from its input, or a file is redirected into this process.
    """
    words = command.split() if isinstance(command, str) else list(command)
    given = [word for word in words[1:] if not _FLAGS.match(word) or word in _FROM_INPUT]
    if words and _INTERPRETER.match(os.path.basename(words[0])) and (not given or given[0] in _FROM_INPUT):
        name = os.path.basename(words[0])
        hint = f"write it into a file: tm run -- {name} FILE   or give it as one word: tm run -- 'echo one; echo two'"
        raise UsageError(f"{name} without a file reads its program from its input, and a job has no standard input", hint)
    try:
        status = os.fstat(0)
        if stat.S_ISREG(status.st_mode) and status.st_size and os.lseek(0, 0, os.SEEK_CUR) == 0:
            hint = "name the file in the command instead, as in: tm run -- 'python3 train.py < FILE'"
            raise UsageError("a job has no standard input, so the file that is redirected into this command is not read", hint)
        waiting = array.array("i", [0])
        if stat.S_ISFIFO(status.st_mode):
            ioctl(0, termios.FIONREAD, waiting)
    except OSError:
        return ""  # closed, or of a kind that cannot say
    return IGNORED if waiting[0] else ""
