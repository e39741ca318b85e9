"""Starts the processes of a node: its ranks, in a gang with torchrun's variables, and roles. All are started, or none."""

from __future__ import annotations

import os
from functools import partial

from trainmaster.agent.files.log_times import LogTimes
from trainmaster.agent.processes import spawn
from trainmaster.agent.processes.rank import ROLE_RANK, Rank
from trainmaster.agent.processes.spawn import LaunchError, MachineError
from trainmaster.agent.processes.wakeup import Stopped
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from trainmaster.agent.checkpoints.restore import Restored
    from trainmaster.wire.launch import Launch

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_NUMEXPR_MAX = 64  # numexpr cannot be imported with more, unless NUMEXPR_MAX_THREADS allows it
_DIGITS_MAX = 9
_LAUNCHERS = frozenset(("torchrun", "accelerate", "torch.distributed.run", "torch.distributed.launch"))
_SHELL_VARIABLE = ("$" + names.ENV_RESUME_ARGUMENTS, "${" + names.ENV_RESUME_ARGUMENTS + "}")


class Plan:
    """The input for starting the ranks of this node. `first`: variables for rank 0 only."""

    def __init__(self, launch: Launch, directory: str, restored: Optional[Restored], rendezvous: tuple[str, int]) -> None:
        self.launch = launch
        self.directory = directory
        self.restored = restored
        self.rendezvous = rendezvous
        self.first: dict[str, str] = {}


def start_all(plan: Plan, wait_for: Callable[[str], None]) -> list[Rank]:
    """Start every rank of this node and the roles of node 0, or none of them. Returns when all have called exec.

    `wait_for` is called with the label of a child that has not called exec yet; it may raise wake.Stopped.

    Raises: LaunchError; MachineError if the machine is the cause; wake.Stopped.
    """
    launch, directory = plan.launch, plan.directory
    children: list[Rank] = []
    waiting: list[tuple[Rank, int]] = []
    failure: Optional[LaunchError] = None
    try:
        os.makedirs(launch["work"], exist_ok=True)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        highest = spawn.highest_descriptor()
        for child in _children(launch, directory, plan.restored, plan.rendezvous):
            if child.number == 0:
                child.environment.update(plan.first)
            os.close(os.open(child.sdk_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            LogTimes(child.log_path).close()  # before the log, so that a log without it is one of an older version
            log = os.open(child.log_path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            waiting.append((child, spawn.start(child, launch, (null, log, log), highest)))
            os.close(log)
            children.append(child)
        os.close(null)
    except OSError as error:
        failure = MachineError(f"could not start a rank: {error}; free what is exhausted (disk, processes, memory)")
    for child, pipe in waiting:
        try:
            told = spawn.answer(pipe, partial(wait_for, child.label))
        except Stopped:
            spawn.undo(children, launch)
            raise
        if told and failure is None:
            text = ("" if child.role is None else f"{child.label}: ") + spawn.explain(told, child, launch)
            failure = MachineError(text) if spawn.by_machine(told) else LaunchError(text)
    if failure is not None:
        spawn.undo(children, launch)
        raise failure
    return children


def _children(launch: Launch, directory: str, restored: Optional[Restored], rendezvous: tuple[str, int]) -> list[Rank]:
    """The ranks and roles to start, complete with argv and environment."""
    resume = _resume_text(launch, restored)
    shared = _environment(launch, directory, rendezvous)
    shared[names.ENV_RESUME_ARGUMENTS] = resume
    if restored is not None and restored.resume_dir:
        shared[names.ENV_RESUME_DIR] = restored.resume_dir
    if restored is not None and restored.step is not None:
        shared[names.ENV_RESUME_STEP] = str(restored.step)
    argv = _command(launch, resume)
    children = []
    for local in range(launch["ranks"]):
        rank = Rank(launch["node_index"] * launch["ranks"] + local, directory)
        rank.argv = argv
        rank.environment = _of_rank(shared, launch, rank)
        children.append(rank)
    for one in launch["roles"]:
        role = Rank(ROLE_RANK, directory, one["name"])
        role.argv = one["command"]
        role.environment = {**shared, names.ENV_ROLE: one["name"], names.ENV_SDK: role.sdk_path}
        _show_devices(role.environment, one["devices"])
        if "cpus" in one:
            _limit_threads(role.environment, one["cpus"], one["command"])
        children.append(role)
    return children


def _environment(launch: Launch, directory: str, rendezvous: tuple[str, int]) -> dict[str, str]:
    """Variables that all ranks and roles share. As a shell does, it names the directory in which they start."""
    world = str(launch["nodes"] * launch["ranks"])
    gang = {"MASTER_ADDR": rendezvous[0], "MASTER_PORT": str(rendezvous[1]), "WORLD_SIZE": world}
    return {
        "PWD": launch["work"],
        **_with_sdk(launch),
        **(gang if _distributed(launch) else {}),
        names.ENV_JOB: launch["job"],
        names.ENV_ATTEMPT: str(launch["attempt"]),
        names.ENV_NODES: str(launch["nodes"]),
        names.ENV_NODE_RANK: str(launch["node_index"]),
        names.ENV_KEY: launch["key"],
        names.ENV_CHECKPOINT_DIR: checkpoint_directory(directory),
        names.ENV_PARAMS: _params(launch["params"]),
    }


def _of_rank(shared: dict[str, str], launch: Launch, rank: Rank) -> dict[str, str]:
    """The environment of a rank. torchrun's variables are set only in a gang: public scripts take `RANK` as a sign of one."""
    count = launch["ranks"]
    gang = {
        "RANK": str(rank.number),
        "LOCAL_RANK": str(rank.number - launch["node_index"] * count),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": str(launch["node_index"]),
    }
    environment = {
        **shared,
        **(gang if _distributed(launch) else {}),
        "TORCHELASTIC_ERROR_FILE": rank.error_path,
        names.ENV_SDK: rank.sdk_path,
    }
    _show_devices(environment, launch["devices"])
    if "cpus" in launch:
        _limit_threads(environment, launch["cpus"] / count, launch["command"])
    elif count > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


def _with_sdk(launch: Launch) -> dict[str, str]:
    """The variables of the launch, with the SDK at the end of PYTHONPATH.

    Its directory holds nothing but a namespace package. So a `trainmaster` of the job, wherever it is on the path, wins.
    """
    sdk, path = launch.get("sdk"), launch["environment"].get("PYTHONPATH")
    if not sdk:
        return launch["environment"]
    return {**launch["environment"], "PYTHONPATH": f"{path}{os.pathsep}{sdk}" if path else sdk}


def _limit_threads(environment: dict[str, str], cpus: float, command: list[str]) -> None:
    """Let numeric libraries start as many threads as the program has processors, not as many as the machine has.

    Nothing is set if the program's environment sets OMP_NUM_THREADS, which the other libraries follow, or if a launcher
    divides the processors between its workers.
    """
    if "OMP_NUM_THREADS" in environment or not _LAUNCHERS.isdisjoint(_words(command)):
        return
    threads = max(1, int(cpus))
    for name in _THREADS:
        environment.setdefault(name, str(threads))
    most = environment.get("NUMEXPR_MAX_THREADS", "")
    limit = int(most) if most.isdecimal() and len(most) < _DIGITS_MAX else _NUMEXPR_MAX
    environment.setdefault("NUMEXPR_NUM_THREADS", str(min(threads, limit)))


def _words(command: list[str]) -> list[str]:
    """The names of programs and modules that a command or a line for bash may start."""
    return [os.path.basename(word.strip("\"'();")) for argument in command for word in argument.split()]


def _distributed(launch: Launch) -> bool:
    return launch.get("distributed", True)


def _show_devices(environment: dict[str, str], devices: Optional[list[int]]) -> None:
    if devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(device) for device in devices)


def checkpoint_directory(directory: str) -> str:
    """Where `sdk.checkpoint` writes: beside the attempt's files, so on the file system of the home."""
    return os.path.join(directory, "checkpoints")


def _params(params: dict[str, object]) -> str:
    if not params:
        return "{}"
    import json  # noqa: PLC0415 - start-up time

    return json.dumps(params)


def _resume_text(launch: Launch, restored: Optional[Restored]) -> str:
    """The resume arguments with path and step filled in, as shell text; empty if nothing was restored."""
    arguments = launch["resume_arguments"]
    if restored is None or restored.id is None or not arguments or ("{step}" in arguments and restored.step is None):
        return ""  # a checkpoint of the SDK may have no step
    if "{step}" in arguments:
        arguments = arguments.replace("{step}", str(restored.step))
    if "{path}" not in arguments and "{directory}" not in arguments:
        return arguments
    import shlex  # noqa: PLC0415 - start-up time

    path = restored.path or ""
    directory = path if os.path.isdir(os.path.join(launch["work"], path)) else os.path.dirname(path) or "."
    return arguments.replace("{path}", shlex.quote(path)).replace("{directory}", shlex.quote(directory))


def _command(launch: Launch, resume: str) -> list[str]:
    """The argv with the resume arguments inserted at their place."""
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
