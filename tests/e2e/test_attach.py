"""`tm attach` and `tm exec -t`: a terminal of its own beside a job, as a person at a terminal sees it."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress

import pytest
from running import Tm, server
from waiting import deadline


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    with server(tmp_path_factory.mktemp("attach")) as made:
        yield made


@pytest.fixture(scope="module")
def job(tm: Tm) -> str:
    """One that runs on."""
    id = tm.submit("--cpus", "0.1", "--", "echo begun; sleep 600")
    tm.state(id, "running", timeout_s=60)
    deadline(lambda: "begun" in tm.ok("logs", id), "it to print", 60, 0.2)
    return id


class Person:
    """Somebody at a terminal of 31 rows and 97 columns in which one command of `tm` runs."""

    def __init__(self, tm: Tm, *arguments: str) -> None:
        self.ours, theirs = os.openpty()
        self.size(31, 97)
        self.before = termios.tcgetattr(theirs)
        self.tm = subprocess.Popen(
            [sys.executable, "-m", "trainmaster", *arguments], cwd=tm.work, stdin=theirs, stdout=theirs, stderr=theirs,
            env={**tm.environment, "TERM": "xterm-256color", "SHELL": "/bin/sh", "PS1": "$ "}, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self.theirs, self.screen = theirs, ""

    def size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def sees(self, text: str) -> None:
        """Wait until it is on the screen; what came before is forgotten."""

        def seen() -> bool:
            if select.select([self.ours], [], [], 0.05)[0]:
                with suppress(OSError):
                    self.screen += os.read(self.ours, 65536).decode(errors="replace")
            return text in self.screen

        try:
            deadline(seen, f"{text!r} on the screen", 30)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.screen!r}") from None
        self.screen = self.screen.partition(text)[2]

    def types(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def leaves(self) -> int:
        """The exit code; the terminal is as it was."""
        code = self.tm.wait(30)
        now = termios.tcgetattr(self.theirs)
        os.close(self.ours)
        os.close(self.theirs)
        assert now == self.before
        return code


def test_a_shell_has_a_terminal_of_its_own_in_the_jobs_environment(tm: Tm, job: str) -> None:
    person = Person(tm, "attach", job)
    person.types("tty; stty size; echo job=$TRAINMASTER_JOB term=$TERM; ps -o tty= -p $$\n")
    person.sees("/dev/pts/")
    person.sees("31 97\r\n")
    person.sees(f"job={job} term=xterm-256color\r\n")
    person.sees("pts/")
    person.types("sleep 300; echo slept=$?\n")
    person.sees("sleep 300; echo")
    person.types("\x03")  # Ctrl-C ends what the shell runs, not the shell, not `tm`
    person.types("echo still=here=$((40 + 2))\n")
    person.sees("still=here=42\r\n")
    person.size(20, 60)
    os.kill(person.tm.pid, signal.SIGWINCH)
    person.types("while [ \"$(stty size)\" != '20 60' ]; do sleep 0.05; done; echo smaller=$((1 + 1))\n")
    person.sees("smaller=2\r\n")
    person.types("exit 7\n")
    assert person.leaves() == 7
    assert tm.show(job)["state"] == "running"


def test_a_command_that_does_not_answer_is_left_as_in_ssh(tm: Tm, job: str) -> None:
    person = Person(tm, "exec", "-it", job, "--", "sh", "-c", 'trap "" INT; echo "pid=$$; columns=$COLUMNS."; while :; do sleep 0.1; done')
    person.sees("pid=")
    person.sees("; columns=.")  # the job's own are not those of this terminal
    person.types("\x03x~.\r~~\r")  # not at the beginning of a line; one tilde
    person.sees("~")
    assert person.tm.poll() is None
    person.types("~.")
    assert person.leaves() == 130
    assert tm.show(job)["state"] == "running"


def test_the_shell_has_job_control(tm: Tm, job: str) -> None:
    person = Person(tm, "attach", job)
    person.types("sleep 301 & echo pid=$!.\n")
    person.sees("$!.")
    person.sees("pid=")
    person.sees("\r\n")
    person.types("kill %1; exit\n")
    assert person.leaves() == 0


def test_without_a_terminal_it_says_what_to_do(tm: Tm, job: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainmaster", "exec", "-t", job, "--", "sh"], env=tm.environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        2, "error: standard input and output are not both a terminal\n  without one: tm exec -i JOB -- COMMAND\n",
    )  # fmt: skip


def test_a_kill_or_a_closed_terminal_ends_the_command_at_once(tm: Tm, job: str) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        person = Person(tm, "attach", job)
        file = tm.work / f"pid-{number}"
        person.types(f"echo $$ > {file}.new; mv {file}.new {file}\n")
        deadline(file.exists, "the shell to run", 30)
        person.tm.send_signal(number)
        assert person.leaves() == 130
        place = f"/proc/{int(file.read_text())}"
        deadline(lambda place=place: not os.path.exists(place), "the shell to end", 30)  # type: ignore[misc]
