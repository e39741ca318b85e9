"""Completion of living ids in zsh and fish themselves, as far as they are installed here. Bash is in `test_starting_out`."""

import os
import pty
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Tm, server
from waiting import deadline

ZSH, FISH = shutil.which("zsh"), shutil.which("fish")
CLEAR_LINE = b"\x15"


@pytest.fixture
def tm(tmp_path: Path) -> Iterator[Tm]:
    with server(tmp_path) as one:
        one.environment |= {
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "TERM": "xterm",
        }
        yield one


@pytest.mark.skipif(FISH is None, reason="there is no fish")
def test_fish_completes_commands_and_living_ids(tm: Tm) -> None:
    job = tm.submit("--name", "completed", "--", "true")
    place = Path(tm.environment["XDG_CONFIG_HOME"]) / "fish" / "completions" / "tm.fish"
    place.parent.mkdir(parents=True)
    place.write_text(tm.ok("completion", "fish"))

    def completed(line: str) -> list[str]:
        command = [str(FISH), "-c", f'complete -C "{line}"']
        done = subprocess.run(command, env=tm.environment, cwd=tm.work, capture_output=True, text=True, timeout=60, check=True)
        return [told.split("\t")[0] for told in done.stdout.splitlines()]

    assert {"submit", "show"} <= set(completed("tm s"))
    deadline(lambda: completed("tm show compl") == [job], "the id", 60.0)


@pytest.mark.skipif(ZSH is None, reason="there is no zsh")
def test_zsh_completes_a_living_id(tm: Tm) -> None:
    job = tm.submit("--name", "completed", "--", "true")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [str(ZSH), "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=tm.environment,
        cwd=tm.work,
        start_new_session=True,
    ) as shell:
        os.close(theirs)
        os.write(ours, b'autoload -Uz compinit && compinit -u -D; eval "$(tm completion zsh)"\n')
        seen = b""

        def completed() -> bool:
            """Typed again until it is: an answer that takes too long is not waited for."""
            nonlocal seen
            while select.select([ours], [], [], 0.5)[0]:
                seen += os.read(ours, 65536)
            os.write(ours, CLEAR_LINE + b"tm show compl\t")
            return f"tm show {job}".encode() in seen

        deadline(completed, "the id", 60.0)
        os.write(ours, CLEAR_LINE + b"exit\n")
        assert shell.wait(30.0) == 0
    os.close(ours)
