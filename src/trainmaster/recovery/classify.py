"""Finds the one cause of an attempt's failure from how its agents ended, by structured signals only.

Within a node, the earliest failing rank is the cause, by that node's clock. Clocks of different nodes do not compare: across
nodes, a kill from outside explains the failures of the others. Otherwise the failure recorded first is the cause, corrected
by the time between the failure and its record.
"""

from dataclasses import replace

from trainmaster.model.job import Attempt, Cause, Failure, Outcome, RankEnd
from trainmaster.recovery.launchers import reported
from trainmaster.wire.exceptions import is_launcher, raised

SIGNAL_NAMES = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ",
}  # fmt: skip
_NO_TERMINAL = "Inappropriate ioctl for device"  # ENOTTY
_OWN_DOING = {4, 6, 7, 8, 11}  # ILL ABRT BUS FPE SEGV: raised by the program itself
_SHELL_CODES = {128 + number: number for number in (4, 6, 7, 8, 9, 11, 15)}  # a shell's exit code for a signaled child
_KILL = 9
_FOR_MEMORY = ": the kernel counted an out-of-memory kill; use less, or request more (--memory)"
_PERHAPS = " (the kernel does so when memory is short)"
_SHUTDOWN = ": a shutdown of the machine sends it, or a person"
_FATAL = "Fatal Python error"  # says no more than the signal
_EXPLAINS_WITHIN_S = 1.0  # a kill this soon after the first failure is the cause: the other ranks of a gang fail with it


def classify(attempt: Attempt) -> Failure | None:
    """Why the attempt failed; None if every rank exited 0 by itself, or no agent knows why ranks were stopped."""
    outcomes = [n.outcome for n in attempt.nodes if n.outcome is not None]
    for outcome in outcomes:
        if outcome.over_memory:
            return _over_memory(outcome)
    for index, node in enumerate(attempt.nodes):
        if node.outcome is not None and node.outcome.machine_error is not None:
            message = f"could not be started on {attempt.allocation.shares[index].node}: {node.outcome.machine_error}"
            return Failure(Cause.MACHINE, message, last_lines=node.outcome.launch_lines)
    for outcome in outcomes:
        if outcome.launch_error is not None:
            cause = Cause.LAUNCH
            return Failure(cause, f"could not be started: {outcome.launch_error}", last_lines=outcome.launch_lines)
    blamed = first_failing(attempt)
    if blamed is None or not _from_outside(blamed[0]):
        for index, node in enumerate(attempt.nodes):
            failure = None if node.outcome is None else _of_agent(node.outcome, attempt.allocation.shares[index].node)
            if failure is not None:
                return failure
    if blamed is None:
        return None
    rank, outcome = blamed
    failure = _of_end(rank, outcome)
    taken = any(o.port_in_use for o in outcomes) and all(o.last_step is None for o in outcomes)
    if taken and not _from_outside(rank):
        return replace(failure, cause=Cause.RENDEZVOUS, message=f"{failure.message}; its rendezvous port was probably taken")
    return failure


def _of_agent(outcome: Outcome, host: str) -> Failure | None:
    """The failure if the agent itself was ended from outside: that explains what the rest of the gang does then."""
    if outcome.declared_lost is not None and outcome.lost:
        return Failure(Cause.NODE_LOST, outcome.declared_lost)
    if outcome.lost:
        return Failure(Cause.AGENT_LOST, f"the agent on {host} is gone without an exit record")
    if outcome.terminated and _first_of_node(outcome) is None:
        return Failure(Cause.KILLED, f"the agent on {host} had SIGTERM or SIGINT, not from us{_SHUTDOWN}")
    return None


def first_failing(attempt: Attempt) -> tuple[RankEnd, Outcome] | None:
    """The rank or role that caused the failure, and its node's outcome; None if none failed by itself."""
    found = []
    for index, node in enumerate(attempt.nodes):
        rank = None if node.outcome is None else _first_of_node(node.outcome)
        if rank is not None and node.outcome is not None:
            at_s = (node.ended_s or 0.0) - node.outcome.failed_ago_s
            found.append((not _from_outside(rank), at_s, index, rank, node.outcome))
    return min(found, key=lambda one: one[:3])[3:] if found else None


def failed_before(attempt: Attempt, at_s: float) -> bool:
    """Whether a rank or role is known to have failed by itself before this time."""
    ends = [(node.ended_s, node.outcome) for node in attempt.nodes if node.ended_s is not None and node.outcome is not None]
    failed = [(ended_s, one) for ended_s, one in ends if one.failed_ago_s > 0 and _first_of_node(one) is not None]
    return any(ended_s - one.failed_ago_s < at_s for ended_s, one in failed)


def _first_of_node(outcome: Outcome) -> RankEnd | None:
    """The cause on one node: a rank killed from outside within a second of the first failure, else the first failure."""
    failing = [r for r in (*outcome.ranks, *outcome.roles) if not r.stopped_by_us and r.exit_code != 0]
    if not failing:
        return None
    failing.sort(key=lambda r: (r.ended_after_s, r.rank))
    horizon_s = failing[0].ended_after_s + _EXPLAINS_WITHIN_S
    killed = [r for r in failing if _from_outside(r) and r.ended_after_s <= horizon_s]
    return killed[0] if killed else failing[0]


def _signal(rank: RankEnd) -> int | None:
    """The signal that ended the rank, or that its exit code stands for (137 is SIGKILL in a shell)."""
    return rank.signal if rank.signal is not None else _SHELL_CODES.get(rank.exit_code or 0)


def _from_outside(rank: RankEnd) -> bool:
    number = _signal(rank)
    return number is not None and number not in _OWN_DOING


def _over_memory(outcome: Outcome) -> Failure:
    limit = _gib(outcome.memory_limit_bytes or 0)
    worst = max(outcome.ranks, key=lambda r: (r.peak_memory_bytes, -r.rank), default=None)
    used, hint = _gib(outcome.peak_memory_bytes), "use less, or raise resources.memory (--memory)"
    message = f"used {used} of memory; its limit is {limit} per node: {hint}"
    first = _first_of_node(outcome)
    if first is not None and not _from_outside(first):  # the kernel killed another process, perhaps long before
        message = f"{message}; {_of_end(first, outcome).message}"
    return Failure(Cause.OUT_OF_MEMORY, message) if worst is None else _of_rank(Cause.OUT_OF_MEMORY, message, worst)


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**28 else f"{count / 2**20:.1f} MiB"


def _of_end(rank: RankEnd, outcome: Outcome) -> Failure:
    number = _signal(rank)
    if number is None:
        said = rank.error or _said(rank)
        told = f"{rank.label} exited with code {rank.exit_code}" + (f": {said}" if said else "")
        return _of_rank(Cause.PROGRAM, told + _of_outside(rank.outside) + _of_terminal(rank), rank)
    name = SIGNAL_NAMES.get(number, f"signal {number}")
    # The exit code of a shell whose child had the signal, or the program's own: nobody can tell.
    by_code = "" if rank.signal is not None else f"exited with code {rank.exit_code}, as after {name}"
    if number in _OWN_DOING:
        said = rank.raised or raised(rank.last_lines, rank.exit_code)
        told = f": {said}" if said is not None and not said.startswith(_FATAL) else ""
        return _of_rank(Cause.CRASH, f"{rank.label} {by_code or f'crashed with {name}'}{told}", rank)
    why = "" if number != _KILL else _FOR_MEMORY if outcome.killed_for_memory else _PERHAPS if by_code else ""
    return _of_rank(Cause.KILLED, f"{rank.label} {by_code or f'was killed by {name}, not by us'}{why}", rank)


def _of_outside(path: str | None) -> str:
    """What to do about a path that exists where the job was submitted, but not in its copy; empty without one."""
    if path is None:
        return ""
    if not path.startswith("../"):
        return f"; {path} exists where you submitted from, but did not go along: tm plan, with the same arguments, says why"
    up = "/".join([".."] * path.count("../"))
    return f"; {path} exists where you submitted from; use --in-place, or --workdir {up} (the command then starts there)"


def _of_terminal(rank: RankEnd) -> str:
    """What to do if the program asked for a terminal (`stty size`, `os.get_terminal_size`); empty if it did not."""
    if not any(_NO_TERMINAL in line for line in rank.last_lines):
        return ""
    return "; it asks for a terminal, which a job has not: this gives it one: script -qec 'COMMAND' /dev/null"


def _said(rank: RankEnd) -> str | None:
    """What its launcher and its output say of the end: `rank 1 under torchrun exited with code 1: ValueError: boom`."""
    told, exception = reported(rank.last_lines, SIGNAL_NAMES), rank.raised or raised(rank.last_lines, rank.exit_code)
    if told is None or exception is None or is_launcher(exception) or "killed" in told:
        return told or exception
    return f"{told}: {exception}"


def _of_rank(cause: Cause, message: str, rank: RankEnd) -> Failure:
    return Failure(cause, message, rank.rank if rank.role is None else None, rank.exit_code, rank.signal, rank.last_lines)
