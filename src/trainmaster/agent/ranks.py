"""Starting ranks and taking them back: fork and exec with the environment, limits and streams that a program may count on."""

from __future__ import annotations

import os
import time

from trainmaster.agent import kernel
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import NoReturn, Optional

    from trainmaster.agent.restore import Restored
    from trainmaster.wire.launch import Launch
else:
    import _signal as signal  # `signal` itself makes enums of it all, which costs a tenth of an interpreter's start

_SHELL_VARIABLE = ("$" + names.ENV_RESUME_ARGUMENTS, "${" + names.ENV_RESUME_ARGUMENTS + "}")


class LaunchError(Exception):
    """The ranks could not be started; the text says what is wrong and what to do."""


class Rank:
    """One training process. `number` is its RANK; exactly one of `exit_code` and `signal` is set once it ended."""

    def __init__(self, number: int, directory: str) -> None:
        self.number = number
        self.log_path = os.path.join(directory, names.rank_log(number))
        self.sdk_path = os.path.join(directory, names.rank_sdk(number))
        self.error_path = os.path.join(directory, names.torch_error(number))
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

    def ended(self, status: int, shell: bool) -> None:
        """Take the wait status; a shell's exit 128+n counts as signal n."""
        self.running = False
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
            return
        code = os.WEXITSTATUS(status)
        if shell and 0 < code - 128 <= 64:
            self.signal = code - 128
        else:
            self.exit_code = code


def start_all(launch: Launch, directory: str, restored: Optional[Restored], meeting: tuple[str, int]) -> list[Rank]:
    """Start every rank of this node, or none. Returns once all have become their program.

    Raises: LaunchError.
    """
    resume = _resume_text(launch, restored)
    argv = _command(launch, resume)
    ranks: list[Rank] = []
    waiting: list[tuple[Rank, int]] = []
    failure: Optional[str] = None
    try:
        os.makedirs(launch["work"], exist_ok=True)
        highest = max(int(name) for name in os.listdir("/proc/self/fd")) + 16
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for local in range(launch["ranks"]):
            rank = Rank(launch["node_index"] * launch["ranks"] + local, directory)
            environment = _environment(launch, rank, meeting)
            environment[names.ENV_RESUME_ARGUMENTS] = resume
            if restored is not None and restored.resume_dir:
                environment[names.ENV_RESUME_DIR] = restored.resume_dir
            if restored is not None and restored.step is not None:
                environment[names.ENV_RESUME_STEP] = str(restored.step)
            waiting.append((rank, _start(rank, launch, argv, environment, (null, highest))))
            ranks.append(rank)
        os.close(null)
    except OSError as error:
        failure = f"could not start a rank: {error}; free what is exhausted (disk, processes, memory) or correct the path"
    for _, pipe in waiting:
        with open(pipe, "rb") as file:
            answer = file.read()
        if answer and failure is None:
            failure = _explain(answer.decode(errors="replace"), argv, launch)
    if failure is not None:
        _undo(ranks)
        raise LaunchError(failure)
    return ranks


def _start(rank: Rank, launch: Launch, argv: list[str], environment: dict[str, str], descriptors: tuple[int, int]) -> int:
    """Fork one rank; returns a pipe that ends empty when the program runs, and tells why when it does not."""
    os.close(os.open(rank.sdk_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    log = os.open(rank.log_path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(parent, launch, argv, environment, (descriptors[0], log, writer, descriptors[1]))
    os.close(log)
    os.close(writer)
    rank.pid = pid
    rank.running = True
    return reader


def _become(
    parent: int, launch: Launch, argv: list[str], environment: dict[str, str], descriptors: tuple[int, int, int, int]
) -> NoReturn:
    """In the child: become the program, or tell why not."""
    null, log, pipe, highest = descriptors
    doing = "setsid"
    try:
        os.setsid()
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if launch["cgroup"]:
            doing = "cgroup"
            _enter(launch["cgroup"])
        doing = "streams"
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.closerange(3, pipe)
        os.closerange(pipe + 1, highest)
        _default_signals()
        doing = "chdir"
        os.chdir(launch["work"])
        doing = "exec"
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(pipe, f"{doing} {error.errno or 0} {error.strerror}".encode())
    finally:
        os._exit(127)


def _enter(cgroup: str) -> None:
    descriptor = os.open(os.path.join(cgroup, "cgroup.procs"), os.O_WRONLY)
    os.write(descriptor, b"0")
    os.close(descriptor)


def _default_signals() -> None:
    """What was ignored stays so over an exec: Python's own SIGPIPE, and whatever our starter left."""
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _undo(ranks: list[Rank]) -> None:
    for rank in ranks:
        os.kill(rank.pid, signal.SIGKILL)  # not waited for yet, so the number is still its own
    for rank in ranks:
        os.waitpid(rank.pid, 0)
        rank.running = False


def _environment(launch: Launch, rank: Rank, meeting: tuple[str, int]) -> dict[str, str]:
    """As torchrun sets it, and our own."""
    environment = dict(launch["environment"])
    count = launch["ranks"]
    environment.update(
        MASTER_ADDR=meeting[0],
        MASTER_PORT=str(meeting[1]),
        RANK=str(rank.number),
        LOCAL_RANK=str(rank.number - launch["node_index"] * count),
        WORLD_SIZE=str(launch["nodes"] * count),
        LOCAL_WORLD_SIZE=str(count),
        GROUP_RANK=str(launch["node_index"]),
        TORCHELASTIC_ERROR_FILE=rank.error_path,
    )
    if launch["devices"] is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(device) for device in launch["devices"])
    if count > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    environment[names.ENV_JOB] = launch["job"]
    environment[names.ENV_ATTEMPT] = str(launch["attempt"])
    environment[names.ENV_KEY] = launch["key"]
    environment[names.ENV_CHECKPOINT_DIR] = checkpoint_directory(os.path.dirname(rank.log_path))
    environment[names.ENV_SDK] = rank.sdk_path
    environment[names.ENV_PARAMS] = _params(launch["params"])
    return environment


def checkpoint_directory(directory: str) -> str:
    """Where `sdk.checkpoint` stages: beside the attempt's files, so on the file system of the home."""
    return os.path.join(directory, "checkpoints")


def _params(params: dict[str, object]) -> str:
    if not params:
        return "{}"
    import json  # noqa: PLC0415 - start-up time

    return json.dumps(params)


def _resume_text(launch: Launch, restored: Optional[Restored]) -> str:
    """The resume arguments with the path put in, as text for a shell; empty where nothing was put back."""
    if restored is None or restored.id is None or not launch["resume_arguments"]:
        return ""
    if "{path}" not in launch["resume_arguments"]:
        return launch["resume_arguments"]
    import shlex  # noqa: PLC0415 - start-up time

    return launch["resume_arguments"].replace("{path}", shlex.quote(restored.path or ""))


def _command(launch: Launch, resume: str) -> list[str]:
    """The argv with the resume arguments where they belong."""
    command = launch["command"]
    if launch["shell"]:
        if not resume or any(variable in command[-1] for variable in _SHELL_VARIABLE):
            return command
        return [*command[:-1], f"{command[-1].rstrip()} {resume}"]
    placed = [word for word in command if word in _SHELL_VARIABLE]
    if not resume:
        return [word for word in command if word not in _SHELL_VARIABLE] if placed else command
    import shlex  # noqa: PLC0415 - start-up time

    extra = shlex.split(resume)
    if not placed:
        return [*command, *extra]
    return [part for word in command for part in (extra if word in _SHELL_VARIABLE else [word])]


def _explain(answer: str, argv: list[str], launch: Launch) -> str:
    """What a failed start means to a person."""
    doing, number, text = answer.split(" ", 2)
    line = " ".join(argv)[:200]
    if doing == "cgroup":
        return f"could not enter the memory limit's cgroup {launch['cgroup']}: {text}; is it still there and ours?"
    if doing == "chdir":
        return f"could not enter the work directory {launch['work']}: {text}"
    if doing != "exec":
        return f"could not start `{line}`: {doing}: {text}"
    program = argv[0]
    path = program if os.path.isabs(program) else os.path.join(launch["work"], program)
    if int(number) == 2 and "/" not in program:
        hint = f"try `python {line}`" if os.path.exists(path) else "install it, or submit from where it is on the PATH"
        return f"command not found: {line}; `{program}` is not on the PATH {launch['environment'].get('PATH', '')!r}; {hint}"
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


def reap(shell: bool, ranks: list[Rank], began_s: float) -> bool:
    """Take back every process that has ended; False when there is none left, ended or alive."""
    by_pid = {rank.pid: rank for rank in ranks if rank.running}
    while True:
        try:
            pid, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        rank = by_pid.get(pid)
        if rank is not None:
            rank.ended(status, shell)
            rank.ended_after_s = time.monotonic() - began_s
            rank.cpu_s = used.ru_utime + used.ru_stime
            rank.peak_memory_bytes = max(rank.peak_memory_bytes, used.ru_maxrss * 1024)
