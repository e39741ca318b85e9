"""Values that describe a simulated program and the faults of the simulated world."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainmaster.model.job import Outcome, RankEnd
from trainmaster.model.nodes import Device, Node
from trainmaster.ports.engine import Submission


class SimulatedCrash(Exception):
    """The control process crashes here: the simulation drops it and creates a new one for the same world."""


@dataclass(frozen=True, slots=True)
class Script:
    """The part of one agent, unless it is stopped: its reports, its run time and its end."""

    runs_s: float = 60.0
    exit_code: int = 0
    signal: int | None = None
    term_s: float | None = 0.5  # how long after SIGTERM its ranks end; None: only SIGKILL ends them
    reports: tuple[tuple[float, Mapping[str, object]], ...] = ()  # (seconds after the start, `staged` or `kept` report)


@dataclass(frozen=True, slots=True)
class End:
    """How ranks end: by themselves with an exit code, or by a signal. `asked`: we sent the signal."""

    at_s: float
    exit_code: int | None
    signal: int | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities (0 to 1) and sizes of faults."""

    unknown: float = 0.0  # a probe of a key gives no answer
    late: float = 0.0  # a report is delayed
    late_s: float = 30.0  # the maximum delay
    duplicate: float = 0.0  # a report arrives twice
    submit_crash: float = 0.0  # control crashes in `submit`, before or after its effect
    agent_crash: float = 0.0  # an agent crashes without an exit record, and its ranks continue
    refused: float = 0.0  # the engine rejects a submit, before or after its effect
    skewed: float = 0.0  # an agent starts up to `late_s` later than the others of its gang
    doubts: float = 0.0  # the store does not answer at a start: a machine failure
    hangs: float = 0.0  # a start never completes
    damaged: float = 0.0  # a part of a checkpoint has a wrong digest


Chooser = Callable[[Submission, random.Random], Script]


def always(script: Script) -> Chooser:
    """The same script for every submission."""
    return lambda submission, rng: script


def machines(count: int = 2, devices: int = 8, cpus: float = 64.0) -> tuple[Node, ...]:
    """Nodes with alternating kinds of GPUs."""
    return tuple(
        Node(
            f"sim{index}", "simulated", f"sim{index}", f"10.0.0.{index + 1}", cpus, 512 * 2**30,
            tuple(Device(number, ("h100", "a100")[index % 2], 80 * 2**30) for number in range(devices)),
        )
        for index in range(count)
    )  # fmt: skip


def outcome(submission: Submission, end: End, ran_s: float, asked: bool) -> Outcome:
    """The end of one agent's ranks. `asked`: after a stop order."""
    attempt = submission.job.attempt
    count = submission.job.spec.resources.chosen(attempt.allocation.choice if attempt is not None else 0).ranks
    first = submission.key.node_index * count
    ranks = tuple(
        RankEnd(rank, exit_code=end.exit_code, signal=end.signal, stopped_by_us=asked, ended_after_s=ran_s)
        for rank in range(first, first + count)
    )
    return Outcome(ranks, ran_s=ran_s)


def ended_report(number: int, result: Outcome) -> dict[str, object]:
    """The outcome as the agent reports it (`wire.messages.Ended`)."""
    ranks = [
        {
            "rank": rank.rank, "exit_code": rank.exit_code, "signal": rank.signal, "stopped_by_us": rank.stopped_by_us,
            "ended_after_s": rank.ended_after_s, "last_lines": list(rank.last_lines), "error": rank.error,
            "peak_memory_bytes": rank.peak_memory_bytes, "cpu_s": rank.cpu_s,
        }
        for rank in result.ranks
    ]  # fmt: skip
    return {
        "kind": "ended", "n": number, "ranks": ranks, "launch_error": result.launch_error,
        "machine_error": result.machine_error, "over_memory": result.over_memory,
        "memory_limit_bytes": result.memory_limit_bytes, "peak_memory_bytes": result.peak_memory_bytes,
        "port_in_use": result.port_in_use, "last_step": result.last_step, "first_step": result.first_step,
        "ran_s": result.ran_s, "staged": [], "kept": [], "restored": None, "restored_step": None,
        "bad": list(result.bad), "doubted": list(result.doubted),
    }  # fmt: skip
