"""What a simulated program does and what the simulated world does to it: values."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainmaster.model.job import Outcome, RankEnd
from trainmaster.model.nodes import Device, Node
from trainmaster.ports.engine import Submission


class SimulatedCrash(Exception):
    """The control process dies here: the simulation drops it and makes a fresh one over the same world."""


@dataclass(frozen=True, slots=True)
class Script:
    """One agent's part, unless it is stopped: what it reports when, how long it runs and how that ends."""

    runs_s: float = 60.0
    exit_code: int = 0
    signal: int | None = None
    term_s: float | None = 0.5  # how long after TERM its ranks end; None: only KILL ends them
    reports: tuple[tuple[float, Mapping[str, object]], ...] = ()  # (seconds after the start, `staged` or `kept` report)


@dataclass(frozen=True, slots=True)
class End:
    """How ranks end: by themselves with an exit code, or by a signal. `asked`: the signal is ours."""

    at_s: float
    exit_code: int | None
    signal: int | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Faults:
    """How often, between 0 and 1, and how badly the world misbehaves."""

    unknown: float = 0.0  # a probe of one key answers nothing
    late: float = 0.0  # a report is held up
    late_s: float = 30.0  # at most so long
    duplicate: float = 0.0  # a report arrives twice
    submit_crash: float = 0.0  # control dies in `submit`, before or after its effect
    agent_crash: float = 0.0  # an agent dies without an exit record, its ranks living on
    refused: float = 0.0  # the engine refuses a submit, before or after its effect
    skewed: float = 0.0  # an agent begins up to `late_s` later than the others of its gang
    doubts: float = 0.0  # the store does not answer at a start: the machine's fault
    hangs: float = 0.0  # a start never comes to an end
    damaged: float = 0.0  # a part of a checkpoint has another digest than it was stored with


Chooser = Callable[[Submission, random.Random], Script]


def always(script: Script) -> Chooser:
    """The same script for every submission."""
    return lambda submission, rng: script


def machines(count: int = 2, devices: int = 8, cpus: float = 64.0) -> tuple[Node, ...]:
    """Nodes in a row, by turns with GPUs of one kind and another."""
    return tuple(
        Node(
            f"sim{index}", "simulated", f"sim{index}", f"10.0.0.{index + 1}", cpus, 512 * 2**30,
            tuple(Device(number, ("h100", "a100")[index % 2], 80 * 2**30) for number in range(devices)),
        )
        for index in range(count)
    )  # fmt: skip


def outcome(submission: Submission, end: End, ran_s: float, asked: bool) -> Outcome:
    """How the ranks of one agent ended. `asked`: after an order to stop."""
    attempt = submission.job.attempt
    count = submission.job.spec.resources.chosen(attempt.allocation.choice if attempt is not None else 0).ranks
    first = submission.key.node_index * count
    ranks = tuple(
        RankEnd(rank, exit_code=end.exit_code, signal=end.signal, stopped_by_us=asked, ended_after_s=ran_s)
        for rank in range(first, first + count)
    )
    return Outcome(ranks, ran_s=ran_s)


def ended_report(number: int, result: Outcome) -> dict[str, object]:
    """The outcome as the agent tells it (`wire.messages.Ended`)."""
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
