"""Starting processes below this agent and taking them back: fork and exec with the streams, limits and environment asked for.

Main thread only: a child dies with the thread that forked it.
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
    import _signal as signal  # `signal` itself makes enums of it all, which costs a tenth of an interpreter's start


# What `exec` says of a program that is missing or is none. Anything else (no memory, a disk error) is the machine's.
OF_THE_PROGRAM = frozenset(
    (
        errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.E2BIG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP,
        errno.ENAMETOOLONG, errno.EINVAL, errno.ELIBBAD,
    )
)  # fmt: skip


class LaunchError(Exception):
    """A program could not be started; the text says what is wrong and what to do, `lines` what a program said of it."""

    def __init__(self, text: str, lines: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.lines = list(lines)


class MachineError(LaunchError):
    """The machine could not start it: memory, processes, descriptors, disk or network. Another try may succeed."""


class Child:
    """One program. Exactly one of `exit_code` and `signal` is set once it ended. `shell`: exit 128+n counts as signal n."""

    label = "a program"  # as messages call it

    def __init__(self, argv: list[str], environment: dict[str, str], shell: bool = False) -> None:
        self.argv = argv
        self.environment = environment
        self.shell = shell
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
        """Whether it ended other than with exit 0, and not because we had signalled it."""
        return not self.running and not self.stopped_by_us and self.exit_code != 0

    @property
    def ended_well(self) -> bool:
        """Whether it exited 0 of its own accord."""
        return not self.running and not self.stopped_by_us and self.exit_code == 0

    def ended(self, status: int) -> None:
        """Take the wait status."""
        self.running = False
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
            return
        code = os.WEXITSTATUS(status)
        if self.shell and 0 < code - 128 <= 64:
            self.signal = code - 128
        else:
            self.exit_code = code


def highest_descriptor() -> int:
    """A number beyond every descriptor that this process has open."""
    return max(int(name) for name in os.listdir("/proc/self/fd")) + 16


def start(child: Child, launch: Launch, streams: tuple[int, int, int], highest: int) -> int:
    """Fork; returns a pipe that ends empty when the program runs, and tells why when it does not (`explain`).

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
    """What `start`'s pipe says; empty when the program runs. `slow` is called each second until then, and may raise."""
    with open(pipe, "rb") as file:
        while slow is not None and not select.select([file], [], [], 1.0)[0]:
            slow()
        return file.read().decode(errors="replace")


def _become(parent: int, child: Child, launch: Launch, descriptors: tuple[int, int, int, int, int]) -> NoReturn:
    """In the child: become the program, or tell why not."""
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
        os.closerange(3, pipe)
        os.closerange(pipe + 1, highest)
        _default_signals()
        doing = "chdir"
        os.chdir(launch["work"])
        doing = "exec"
        os.execvpe(child.argv[0], child.argv, child.environment)
    except (OSError, ValueError) as error:  # ValueError: an argument or a variable holds what none can hold
        number = getattr(error, "errno", None) or errno.EINVAL
        os.write(pipe, f"{doing} {number} {getattr(error, 'strerror', None) or error}".encode())
    finally:
        os._exit(127)


def _enter(cgroup: str, pid: int = 0) -> None:
    """0 is the process itself. Raises: OSError."""
    descriptor = os.open(os.path.join(cgroup, "cgroup.procs"), os.O_WRONLY)
    try:
        os.write(descriptor, b"%d" % pid)
    finally:
        os.close(descriptor)


def contain(pid: int, launch: Launch) -> None:
    """Put a program that something else started into the attempt's cgroups; what it has started before stays outside."""
    for cgroup in launch.get("contained", ()):
        try:
            _enter(cgroup, pid)
        except OSError:
            continue


def escaped(children: Sequence[Child], launch: Launch) -> bool:
    """Whether one of those that run is not in the attempt's cgroups."""
    from trainmaster.wire import cgroups  # noqa: PLC0415 - start-up time

    try:
        inside = [cgroups.members(directory) for directory in launch.get("contained", ())]
    except OSError:
        return False  # nobody can say
    running = [child.pid for child in children if os.path.exists(f"/proc/{child.pid}/exe")]  # not of one that has ended
    return any(pid not in group for pid in running for group in inside)


def _enter_all(launch: Launch) -> None:
    """Containment is worth having and no condition: where a cgroup refuses, the agent says so (`escaped`)."""
    for cgroup in launch.get("contained", ()):
        try:
            if cgroup != launch["cgroup"]:
                _enter(cgroup)
        except OSError:
            continue


def _default_signals() -> None:
    """What was ignored stays so over an exec: Python's own SIGPIPE, and whatever our starter left."""
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def undo(children: Sequence[Child], launch: Launch) -> None:
    """Kill those that were started with all they started, and wait for them."""
    from trainmaster.agent.processes.process_tree import descendants, send  # noqa: PLC0415 - start-up time
    from trainmaster.wire import cgroups  # noqa: PLC0415 - as above

    for directory in launch.get("contained", ()):
        cgroups.kill(directory)
    for child in children:
        for pid in [*descendants(child.pid), child.pid]:
            send(pid, signal.SIGKILL)  # not waited for yet, so a child's number is still its own
    for child in children:
        os.waitpid(child.pid, 0)
        child.running = False


def reap(children: Sequence[Child], began_s: float) -> bool:
    """Take back every process that has ended; False when there is none left, ended or alive."""
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
    """Whether it was the machine that could not, and not the program or its spec. `told`: what `answer` gave."""
    doing, number, _ = told.split(" ", 2)
    return doing != "exec" or int(number) not in OF_THE_PROGRAM


def explain(told: str, child: Child, launch: Launch) -> str:
    """What a failed start means to a person."""
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
        return f"command not found: {line}; no {program} in {launch['work']}; check the path, and that git does not ignore it"
    if int(number) == 13:
        return f"not executable: {line}; run `chmod +x {program}`, or start it with its interpreter, such as `python {program}`"
    if int(number) == 8:
        return f"not a program: {line}; give {program} a first line such as `#!/usr/bin/env python3`, or name its interpreter"
    return f"could not start `{line}`: {text}"
