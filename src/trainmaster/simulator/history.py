"""Our own history as a trace: jobs that are over and ran, on the nodes that are up; where none is, on those there were last.

Attempts that made way for others are one with the next: whether anybody makes way is up to the policy that is tried. A job
that is not over, or never ran, is passed over, since nobody knows how long it would run. The rules are those of the export,
without maintenance windows: those are of the calendar, a trace begins at 0. Nor does anybody call his work urgent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainmaster.model.job import Cause
from trainmaster.model.nodes import Node, NodeState
from trainmaster.scheduling import nouns
from trainmaster.scheduling.ask import asked
from trainmaster.simulator.line_reader import Lines, each, wrong
from trainmaster.simulator.trace import Arrival, Recorded, Try, from_zero
from trainmaster.spec.history import Ran, Record, Records, head


def read(lines: Lines) -> Recorded:
    """The jobs, the nodes and the rules of a history. Raises: UsageError with the line."""
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
    """Where none is up, those that would be: all but those that the inventory has not, or those too where it has none."""
    return [node for node in nodes if node.state is not NodeState.GONE] or nodes


def _filled(lines: Lines) -> Iterator[str]:
    return (line for line in lines if line.strip())


def arrival(record: Record, line: int) -> Arrival | None:
    """A job as the simulator replays it; None where nobody knows how long it runs."""
    tries, spec = joined(record.attempts), record.spec
    run_s = sum(one.ran_s for one in tries)
    if not record.state.ended or run_s <= 0:
        return None
    told = tries if any(one.cause is not None for one in tries) else ()
    return Arrival(
        record.id, record.submit_s, run_s, asked(spec), spec.project, record.user, spec.time_limit_s, record.command,
        work=spec.work, priority=spec.priority, line=line, tries=told, restarts=spec.restarts, waited_s=record.waited_s,
        choices=nouns.choices(spec),
    )  # fmt: skip


def joined(attempts: Sequence[Ran]) -> tuple[Try, ...]:
    """Attempts as they would have been had nobody made way."""
    found: list[Try] = []
    before_s = 0.0
    for attempt in attempts:
        if attempt.cause in (Cause.EVICTED, Cause.SHRUNK):
            before_s += attempt.ran_s
            continue
        ran_s, before_s = before_s + attempt.ran_s, 0.0
        found.append(Try(ran_s, attempt.cause, attempt.exit_code, attempt.signal, attempt.progressed))
    if before_s:  # it was ended while it waited to go on
        found.append(Try(before_s, Cause.CANCELLED))
    return tuple(found)
