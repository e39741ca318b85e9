"""`~.` at the beginning of a line leaves a terminal; everything else is forwarded."""

import subprocess
import sys

import pytest

from trainmaster.cli.jobs.terminal import Escape


@pytest.mark.parametrize(
    ("typed", "forwarded", "left"),
    [
        ([b"ls -l ~/x\r"], b"ls -l ~/x\r", False),
        ([b"~."], b"", True),
        ([b"a\r", b"~", b".", b"b"], b"a\r", True),
        ([b"a~."], b"a~.", False),
        ([b"~~."], b"~.", False),
        ([b"~x\n~~\n~y"], b"~x\n~\n~y", False),
        ([b"~\r~."], b"~\r", True),
        ([b"", "é~.".encode()], "é~.".encode(), False),
    ],
)
def test_what_is_forwarded(typed: list[bytes], forwarded: bytes, left: bool) -> None:
    escape, seen = Escape(), b""
    for data in typed:
        seen += b"" if escape.left else escape.take(data)
    assert (seen, escape.left) == (forwarded, left)


_RESIZED = """
import os, pty, signal, sys, time
from trainmaster.cli.jobs.terminal import Terminal

ours, theirs = pty.openpty()
os.dup2(theirs, 0)
seen = []

def again(*_):
    signal.raise_signal(signal.SIGWINCH)

with Terminal().raw(lambda: seen.append(1)):
    sys.setprofile(again)  # another one at each call inside of the handler
    signal.raise_signal(signal.SIGWINCH)
    sys.setprofile(None)
    until_s = time.monotonic() + 20
    while not seen and time.monotonic() < until_s:
        time.sleep(0.01)
print(bool(seen))
"""


def test_a_terminal_that_is_resized_twice_at_once_is_not_stuck() -> None:
    """A second SIGWINCH while the first was noted held the main thread for ever: a window that was dragged hung `tm attach`."""
    done = subprocess.run([sys.executable, "-c", _RESIZED], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("True\n", "")
