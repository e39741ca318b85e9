"""Draws the life cycle as a Mermaid diagram and as a matrix, both from the table."""

from trainmaster.lifecycle.table import TABLE
from trainmaster.model.events import EVENTS, JobEvent, Submitted
from trainmaster.model.job import State


def mermaid() -> str:
    """A state diagram: one arrow per pair of states, labeled with the events that cause it."""
    arrows: dict[tuple[str, str], list[str]] = {("[*]", "queued"): ["Submitted"], ("[*]", "held"): ["Submitted"]}
    for (state, event), row in TABLE.items():
        for target in row.to:
            if target is not state:
                arrows.setdefault((str(state), str(target)), []).append(event.__name__)
    lines = ["stateDiagram-v2"]
    lines += [f"    {a} --> {b}: {', '.join(sorted(set(events)))}" for (a, b), events in sorted(arrows.items())]
    return "\n".join(lines + [f"    {state} --> [*]" for state in State if state.ended]) + "\n"


def matrix() -> str:
    """Markdown table of every pair: the next state, `·` for an expected race, blank if it cannot happen."""
    job_events = [cls for cls in EVENTS.values() if cls in JobEvent.__args__]
    lines = ["| | (new) | " + " | ".join(State) + " |", "|---" * (len(State) + 2) + "|"]
    for event in job_events:
        cells = ["queued, held" if event is Submitted else ""]
        for state in State:
            row = TABLE.get((state, event))
            cells.append("" if row is None else "·" if row.race else ", ".join(row.to))
        lines.append(f"| {event.__name__} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
