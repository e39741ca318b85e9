"""Reads our own exported history as a trace: ended jobs that ran, on the nodes that are up (or, if none are, the last ones).

Attempts that were preempted are joined with the next one: preemption is up to the policy under test. Jobs that are not over
or never ran are skipped, since their run time is unknown. The rules are those of the export, without maintenance windows,
which have dates: a trace begins at 0. Urgency is not replayed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainmaster.model.job import Cause
from trainmaster.model.nodes import Node, NodeState
from trainmaster.scheduling.model import convert as nouns
from trainmaster.scheduling.model.request import Wish, asked
from trainmaster.simulator.line_reader import Lines, each, wrong
from trainmaster.simulator.trace import Arrival, Recorded, Try, from_zero
from trainmaster.spec.history import Ran, Record, Records, head


def read(lines: Lines) -> Recorded:
    """The jobs, nodes and rules of a history. Raises: UsageError with the line."""
    first = next(lines)
    try:
        nodes, rules = head(first)
    except ValueError as error:
        raise wrong(lines.path, 1, str(error), "a history is what `tm export` writes") from error
    records = Records()

    def job(line: str, number: int) -> tuple[int, Arrival] | None:
        record = records.read(line)
        found = arrival(record, number)
        return None if found is None else (record.seq, found)

    numbered = sorted(each(lines, _filled(lines), job), key=lambda one: one[0])
    timeless = replace(rules, pools=tuple(replace(pool, windows=()) for pool in rules.pools))
    up = [node for node in nodes if node.state is NodeState.UP]
    last = up or [replace(node, state=NodeState.UP) for node in _last(nodes)]
    arrivals = from_zero([found for _, found in numbered])
    return Recorded(arrivals, nouns.sites_of(last, timeless), timeless, bool(last) and not up)


def _last(nodes: Sequence[Node]) -> Sequence[Node]:
    """If no node is up: all nodes that are not gone, or all if every one is gone."""
    return [node for node in nodes if node.state is not NodeState.GONE] or nodes


def _filled(lines: Lines) -> Iterator[str]:
    return (line for line in lines if line.strip())


def arrival(record: Record, line: int) -> Arrival | None:
    """A job to replay; None if its run time is unknown."""
    tries, spec = joined(record.attempts), record.spec
    run_s = sum(one.ran_s for one in tries)
    if not record.state.ended or run_s <= 0:
        return None
    place, told = spec.placement, tries if any(one.cause is not None for one in tries) else ()
    return Arrival(
        record.id, record.submit_s, run_s, asked(spec), spec.project, record.user, spec.time_limit_s, record.command,
        work=spec.work, priority=spec.priority, line=line, tries=told, restarts=spec.restarts, waited_s=record.waited_s,
        choices=nouns.choices(spec), wish=Wish(place.strategy, place.prefer, place.prefer_s, place.group, place.near),
    )  # fmt: skip


def joined(attempts: Sequence[Ran]) -> tuple[Try, ...]:
    """The attempts as they would have been without preemption."""
    found: list[Try] = []
    before_s = 0.0
    for attempt in attempts:
        if attempt.cause in (Cause.EVICTED, Cause.SHRUNK):
            before_s += attempt.ran_s
            continue
        ran_s, before_s = before_s + attempt.ran_s, 0.0
        found.append(Try(ran_s, attempt.cause, attempt.exit_code, attempt.signal, attempt.progressed))
    if before_s:  # it was cancelled while it waited to resume
        found.append(Try(before_s, Cause.CANCELLED))
    return tuple(found)
