"""Starts processes below this agent with given streams, limits and environment (fork and exec), and reaps them.

Main thread only: a child is killed when the thread that forked it ends.
"""

from __future__ import annotations

import errno
import os
import select
import time

from trainmaster.agent.processes import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Callable, NoReturn, Optional, Sequence

    from trainmaster.wire.launch import Launch
else:
    import _signal as signal  # `signal` itself creates enums at import, which costs a tenth of an interpreter's start


# Errors of `exec` caused by the program. Any other error (no memory, a disk error) is the machine's.
OF_THE_PROGRAM = frozenset(
    (
        errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.E2BIG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP,
        errno.ENAMETOOLONG, errno.EINVAL, errno.ELIBBAD,
    )
)  # fmt: skip


class LaunchError(Exception):
    """A program could not be started. The text says what is wrong and what to do; `lines` holds output of a program."""

    def __init__(self, text: str, lines: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.lines = list(lines)


class MachineError(LaunchError):
    """The machine could not start it: memory, processes, descriptors, disk or network. A retry may succeed."""


class Child:
    """One program. Exactly one of `exit_code` and `signal` is set once it ended."""

    label = "a program"  # its name in messages
    terminal = False  # whether its standard input is a terminal, which is to become the one that controls it

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self.argv = argv
        self.environment = environment
        self.pid = 0
        self.running = False
        self.exit_code: Optional[int] = None
        self.signal: Optional[int] = None
        self.stopped_by_us = False
        self.ended_after_s = 0.0
        self.peak_memory_bytes = 0
        self.cpu_s = 0.0

    @property
    def failed(self) -> bool:
        """Whether it ended other than with exit 0, and not because of our signal."""
        return not self.running and not self.stopped_by_us and self.exit_code != 0

    @property
    def ended_well(self) -> bool:
        """Whether it exited with 0, and not because of our signal."""
        return not self.running and not self.stopped_by_us and self.exit_code == 0

    def ended(self, status: int) -> None:
        """Record the wait status. A shell's exit code 128+n stays one: a program may exit with it, too."""
        self.running = False
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
        else:
            self.exit_code = os.WEXITSTATUS(status)


def highest_descriptor() -> int:
    """A number higher than every open descriptor of this process."""
    return max(int(name) for name in os.listdir("/proc/self/fd")) + 16


def start(child: Child, launch: Launch, streams: tuple[int, int, int], highest: int) -> int:
    """Fork. Returns a pipe that ends empty if the program runs, or holds the error if it does not (`explain`).

    `streams` become its standard input, output and error. Raises: OSError.
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(parent, child, launch, (*streams, writer, highest))
    os.close(writer)
    child.pid = pid
    child.running = True
    return reader


def answer(pipe: int, slow: Optional[Callable[[], None]] = None) -> str:
    """The content of `start`'s pipe, empty if the program runs. `slow` is called every second until then, and may raise."""
    with open(pipe, "rb") as file:
        while slow is not None and not select.select([file], [], [], 1.0)[0]:
            slow()
        return file.read().decode(errors="replace")


def _become(parent: int, child: Child, launch: Launch, descriptors: tuple[int, int, int, int, int]) -> NoReturn:
    """In the child: exec the program, or write the error to the pipe."""
    *streams, pipe, highest = descriptors
    doing = "setsid"
    try:
        os.setsid()
        libc.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if launch["cgroup"]:
            doing = "cgroup"
            _enter(launch["cgroup"])
        _enter_all(launch)
        doing = "streams"
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        if child.terminal:
            os.close(os.open(os.ttyname(0), os.O_RDWR))  # to open it is enough, for the leader of a session without a terminal
        os.closerange(3, pipe)
        os.closerange(pipe + 1, highest)
        _default_signals()
        umask = launch.get("umask")
        if umask is not None:
            os.umask(umask)
        doing = "chdir"
        os.chdir(launch["work"])
        doing = "exec"
        os.execvpe(child.argv[0], child.argv, child.environment)
    except (OSError, ValueError) as error:  # ValueError: an argument or a variable contains a null byte
        number = getattr(error, "errno", None) or errno.EINVAL
        os.write(pipe, f"{doing} {number} {getattr(error, 'strerror', None) or error}".encode())
    finally:
        os._exit(127)


def _enter(cgroup: str, pid: int = 0) -> None:
    """Move a process into a cgroup; 0 is the calling process. Raises: OSError."""
    descriptor = os.open(os.path.join(cgroup, "cgroup.procs"), os.O_WRONLY)
    try:
        os.write(descriptor, b"%d" % pid)
    finally:
        os.close(descriptor)


def contain(pid: int, launch: Launch) -> None:
    """Move a program that was started elsewhere into the attempt's cgroups; its existing children stay outside."""
    for cgroup in launch.get("contained", ()):
        try:
            _enter(cgroup, pid)
        except OSError:
            continue


def escaped(children: Sequence[Child], launch: Launch) -> bool:
    """Whether a running child is outside the attempt's cgroups."""
    from trainmaster.wire import cgroups  # noqa: PLC0415 - start-up time

    try:
        inside = [cgroups.members(directory) for directory in launch.get("contained", ())]
    except OSError:
        return False  # unknown
    running = [child.pid for child in children if os.path.exists(f"/proc/{child.pid}/exe")]  # not those that have ended
    return any(pid not in group for pid in running for group in inside)


def _enter_all(launch: Launch) -> None:
    """Enter the cgroups for containment. This is best effort: the agent reports a cgroup that could not be entered."""
    for cgroup in launch.get("contained", ()):
        try:
            if cgroup != launch["cgroup"]:
                _enter(cgroup)
        except OSError:
            continue


def _default_signals() -> None:
    """Reset all signals, because ignored signals stay ignored over exec: Python's SIGPIPE, and those of our parent."""
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def undo(children: Sequence[Child], launch: Launch) -> None:
    """Kill the started children with all their descendants, and wait for them."""
    from trainmaster.agent.processes.process_tree import descendants, send  # noqa: PLC0415 - start-up time
    from trainmaster.wire import cgroups  # noqa: PLC0415 - as above

    for directory in launch.get("contained", ()):
        cgroups.kill(directory)
    for child in children:
        for pid in [*descendants(child.pid), child.pid]:
            send(pid, signal.SIGKILL)  # the child is not reaped yet, so its pid cannot be reused
    for child in children:
        os.waitpid(child.pid, 0)
        child.running = False


def reap(children: Sequence[Child], began_s: float) -> bool:
    """Reap every process that has ended. False if no child is left at all."""
    by_pid = {child.pid: child for child in children if child.running}
    while True:
        try:
            pid, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        child = by_pid.get(pid)
        if child is not None:
            child.ended(status)
            child.ended_after_s = time.monotonic() - began_s
            child.cpu_s = used.ru_utime + used.ru_stime
            child.peak_memory_bytes = max(child.peak_memory_bytes, used.ru_maxrss * 1024)


def by_machine(told: str) -> bool:
    """Whether the machine is the cause, and not the program or its spec. `told`: the result of `answer`."""
    doing, number, _ = told.split(" ", 2)
    return doing != "exec" or int(number) not in OF_THE_PROGRAM


def explain(told: str, child: Child, launch: Launch) -> str:
    """The message to the user about a failed start."""
    doing, number, text = told.split(" ", 2)
    line = " ".join(child.argv)[:200]
    if doing == "cgroup":
        return f"could not enter the memory limit's cgroup {launch['cgroup']}: {text}; is it still there and ours?"
    if doing == "chdir":
        return f"could not enter the work directory {launch['work']}: {text}"
    if doing != "exec":
        return f"could not start `{line}`: {doing}: {text}"
    program = child.argv[0]
    path = program if os.path.isabs(program) else os.path.join(launch["work"], program)
    if int(number) == 2 and "/" not in program:
        hint = f"try `python {line}`" if os.path.exists(path) else "install it, or submit from where it is on the PATH"
        return f"command not found: {line}; `{program}` is not on the PATH {child.environment.get('PATH', '')!r}; {hint}"
    if int(number) == 2 and os.path.exists(path):
        return f"could not start `{line}`: the interpreter in the first line of {program} is missing; install or correct it"
    if int(number) == 2 and os.path.isabs(program):
        return f"command not found: {line}; there is no {program}; check the path"
    if int(number) == 2:
        return f"command not found: {line}; no {program} in {launch['work']}; check the path; tm plan lists what goes along"
    if int(number) == 13:
        return f"not executable: {line}; run `chmod +x {program}`, or start it with its interpreter, such as `python {program}`"
    if int(number) == 8:
        return f"not a program: {line}; give {program} a first line such as `#!/usr/bin/env python3`, or name its interpreter"
    return f"could not start `{line}`: {text}"
