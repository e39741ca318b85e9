"""Writes the report of a simulation: a directory with a page and, if matplotlib is installed, its charts as PNG files."""

from collections.abc import Sequence
from pathlib import Path

from trainmaster.cli.render.human import span
from trainmaster.cli.simulate import report_plots
from trainmaster.cli.simulate.report_page import Story, Table, html
from trainmaster.errors import OperationError, UsageError
from trainmaster.simulator.cases import Case
from trainmaster.simulator.charts import Result, charts
from trainmaster.simulator.cluster import described
from trainmaster.simulator.measures import Measures
from trainmaster.simulator.trace import Trace

PAGE = "index.html"
_OURS = "one trace, replayed through the decisions of the Trainmaster scheduler"  # identifies a report of ours
_PROJECTS = 30  # with more, there is no table of projects
_DAY_S = 86_400.0


def place(directory: Path) -> None:
    """Check that a report may be written there. Raises: UsageError if files would be overwritten that are not a report."""
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is a file", "choose another place: --report DIR")
    page = directory / PAGE
    if page.exists():
        try:
            ours = _OURS in page.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise OperationError(f"{page} cannot be read: {error.strerror}", "choose another place: --report DIR") from error
    else:
        ours = not any(directory.glob("*.png"))
    if not ours:
        raise UsageError(
            f"{directory} has files that are no report of tm simulate; they would be lost", "choose another place: --report DIR"
        )


def write(directory: Path, story: Story) -> list[Path]:
    """Write the page and the pictures, replacing an earlier report; returns the files. Raises: OperationError."""
    page = directory / PAGE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if page.exists():
            for picture in directory.glob("*.png"):  # an earlier report may have had other charts
                picture.unlink()
        page.write_text(html(story), encoding="utf-8")
        pictures = report_plots.write(story.charts, directory) if report_plots.available() else []
    except OSError as error:
        raise OperationError(
            f"the report cannot be written to {directory}: {error.strerror}", "choose another place: --report DIR"
        ) from error
    return [page, *pictures]


def story(cases: Sequence[Case], results: Sequence[Result], differences: Sequence[str]) -> Story:
    """The content of the page."""
    trace = cases[-1].trace
    drawn = list(charts(results, any(site.devices for site in trace.sites)))
    title = f"{trace.name}: {', '.join(one.label for one in results)}"
    tables = [("Start estimates", _estimates(results)), ("By project", _projects(results))]
    told = [(name, table) for name, table in tables if table is not None]
    return Story(title, _facts(cases), measures(results), told, differences, drawn)


def _facts(cases: Sequence[Case]) -> list[str]:
    now, then, settings = cases[0].trace, cases[-1].trace, cases[-1].settings
    last_s = now.arrivals[-1].submit_s - now.arrivals[0].submit_s
    jobs = f"{len(now.arrivals):,} job{'s' * (len(now.arrivals) != 1)}"
    told = [f"{jobs}, submitted over {span(last_s)}; {_OURS}, on {described(now.sites)}."]
    if then.sites != now.sites:
        told.append(f"Then: on {described(then.sites)}.")
    assumed = [f"each preemption makes a job do {settings.preemption_cost_s:g} s again"]
    assumed += [f"run times vary by {settings.noise:.1%} (seed {settings.seed})"] if settings.noise else []
    assumed += ["the scheduler knows how long each job runs"] if settings.exact else []
    told.append(f"Assumed: {', '.join(assumed)}; how long a job runs does not depend on where.")
    waited = recorded(now)
    return told + ([waited] if waited else [])


def recorded(trace: Trace) -> str:
    """The waits recorded in the trace itself, as a sentence; empty if there are none."""
    waits = [one.waited_s for one in trace.arrivals if one.waited_s is not None]
    if len(waits) < len(trace.arrivals) / 2:
        return ""
    return f"On record, under what decided then, jobs waited {span(sum(waits) / len(waits))} on average."


def measures(results: Sequence[Result]) -> Table:
    """One row per replay."""
    told = [one.measures for one in results]
    named = any(one.label != one.measures.policy for one in results)
    headers = [*(["CASE"] if named else []), "POLICY", "COMPLETION", "P50", "P99", "WAIT", "LONGEST", "SLOWDOWN", "USED"]
    headers += [*_extra(told), "PREEMPTED", "LOST"]
    return headers, [[*([one.label] if named else []), *_row(one.measures, _extra(told))] for one in results]


def _extra(told: Sequence[Measures]) -> list[str]:
    """The columns that are not empty."""
    found = ["FRAGMENTED"] if any(one.fragmentation is not None for one in told) else []
    found += ["FAIRNESS"] if any(one.fairness is not None for one in told) else []
    found += ["ETA90"] if any(one.eta is not None and one.eta.telling for one in told) else []
    return found + (["RESTARTS"] if any(one.restarts for one in told) else [])


def _row(one: Measures, extra: Sequence[str]) -> list[str]:
    more = {
        "FRAGMENTED": "-" if one.fragmentation is None else f"{one.fragmentation:.1%}",
        "FAIRNESS": "-" if one.fairness is None else f"{one.fairness:.2f}",
        "ETA90": "-" if one.eta is None or not one.eta.telling else f"{one.eta.held90:.0%}",
        "RESTARTS": f"{one.restarts:,}",
    }
    return [
        one.policy, span(one.completion_mean_s), span(one.completion_p50_s), span(one.completion_p99_s),
        span(one.wait_mean_s), span(one.wait_max_s), f"{one.bounded_slowdown_mean:,.1f}", f"{one.utilisation:.1%}",
        *(more[name] for name in extra), f"{one.preemptions / one.jobs:.2f}/job", f"{one.lost_hours:,.0f} h",
    ]  # fmt: skip


def _estimates(results: Sequence[Result]) -> Table | None:
    """The quality of start estimates; None if there were too few."""
    rows = []
    for one in results:
        eta = one.measures.eta
        if eta is not None and eta.telling:
            width = "no end" if eta.width90_p50 is None else f"{eta.width90_p50:.2f} × the wait"
            told = [one.label, f"{eta.told:,} of {eta.waited:,}", f"{eta.held50:.0%}", f"{eta.held90:.0%}", width]
            rows.append([*told, span(eta.error_p50_s), span(eta.error_mean_s)])
    headers = ["CASE", "JOBS THAT WAITED", "50 % BOUND HELD", "90 % BOUND HELD", "ITS WIDTH, MEDIAN", "OFF BY, MEDIAN", "MEAN"]
    return (headers, rows) if rows else None


def _projects(results: Sequence[Result]) -> Table | None:
    """The mean wait per project; None for a single project, or too many."""
    names = sorted({name for one in results for name in one.measures.projects})
    if not 1 < len(names) <= _PROJECTS:
        return None
    rows = []
    for name in names:
        had = [one.measures.projects.get(name) for one in results]
        jobs = next(share.jobs for share in had if share is not None)
        rows.append([name, f"{jobs:,}", *("-" if share is None else span(share.wait_mean_s) for share in had)])
    return ["PROJECT", "JOBS", *(f"WAIT, {one.label}" for one in results)], rows
