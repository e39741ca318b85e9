"""`~.` at the beginning of a line leaves a terminal; everything else is forwarded."""

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
