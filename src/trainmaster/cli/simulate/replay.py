"""`tm simulate`: replays a trace, or the server's own history, through the real scheduler."""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainmaster.cli.render import human
from trainmaster.cli.session import Session, remote
from trainmaster.errors import UsageError

if TYPE_CHECKING:
    from trainmaster.simulator.cases import Case
    from trainmaster.simulator.charts import Result
    from trainmaster.simulator.trace import Trace

_NOW, _THEN = "now", "then"


@click.command()
@click.argument("trace", type=click.Path(), required=False)
@click.option("--history", is_flag=True, help="Replay this server's own jobs instead of a file.")
@click.option("--policy", metavar="NAME", help="One policy; default: for a history its present one, else fair-share.")
@click.option("--compare", metavar="NAMES", help="Several policies, side by side: fifo,easy,least-attained.")
@click.option("--cluster", metavar="NODES", help="Other nodes than the trace's: '8x8:a100, 4x4:h100', or a YAML file.")
@click.option("--add", multiple=True, metavar="NODES", help="What if there were more nodes: 'a100: 4 nodes', 'h100: 2x8'.")
@click.option("--remove", multiple=True, metavar="NODES", help="What if there were fewer nodes: 'a100: 2 nodes'.")
@click.option("--quota", multiple=True, metavar="PROJECT=GPUS", help="What if a project had this limit: vision=32.")
@click.option(
    "--preemption-cost", type=click.FloatRange(0), default=30.0, show_default=True, metavar="S", help="Work lost at each."
)
@click.option("--exact", is_flag=True, help="The scheduler knows how long each job runs.")
@click.option(
    "--noise", type=click.FloatRange(0, 1), default=0.0, metavar="SHARE", help="Standard deviation of a factor on run times."
)
@click.option("--seed", type=int, default=0, help="Seed of the noise.")
@click.option(
    "--eta", type=click.IntRange(0), default=0, metavar="N", help="Also make N start estimates, and compare them."
)
@click.option("--report", metavar="DIR", type=click.Path(), help="Directory of the report; default: simulation-TRACE.")
@click.option("--no-report", is_flag=True, help="Print only the table.")
@remote
def simulate(session: Session, /, trace: str | None, **options: Any) -> None:
    """Replay a cluster trace under one or several policies, with the code of the real scheduler.

    TRACE: SWF, a CSV with the columns of Muri or Philly, or a file of `tm export`; `.gz` too. It runs on the cluster that it
    was recorded on. With --add, --remove or --quota, and for a history with --policy, it is replayed twice: as it is now,
    and with the change. The report is a page with charts, and PNG files if matplotlib is installed; with --json there is
    a report only with --report.

    \b
    tm simulate SDSC-SP2.swf.gz --policy easy
    tm simulate trace3.csv.gz --compare fifo,easy,least-attained,learned
    tm simulate --history --add 'a100: 4 nodes' --quota vision=32
    """
    from trainmaster.cli.simulate import report  # noqa: PLC0415  # needed here only

    cases, apart = _startable(session, _cases(session, trace, options))
    directory = _directory(session, cases[0].trace.name, options)
    if directory is not None:
        report.place(directory)
    results = [_run(session, case) for case in cases]
    told = apart + _differences(results)
    if session.out.json:
        session.out.value([_json(one) for one in results])
    else:
        headers, rows = report.measures(results)
        session.out.table(headers, rows, spare=[headers.index(name) for name in ("P50", "P99", "SLOWDOWN", "LOST")])
        for line in told:
            session.out.data(line)
    if directory is not None:
        written = report.write(directory, report.story(cases, results, told))
        pictures = len(written) - 1
        none = "; for PNG files too, in the environment of tm: pip install matplotlib"
        more = f" and {pictures} PNG files beside it" if pictures else none
        session.out.note(f"report: {written[0]}{more}")


def _cases(session: Session, path: str | None, options: dict[str, Any]) -> "list[Case]":
    """The cases to replay, in order."""
    from trainmaster.scheduling.policies.known import POLICIES, chosen  # noqa: PLC0415
    from trainmaster.simulator.cases import Case, quotas, with_quotas  # noqa: PLC0415
    from trainmaster.simulator.cluster import changed, check_changes, cluster, described  # noqa: PLC0415
    from trainmaster.simulator.replay import Settings  # noqa: PLC0415

    if (path is None) != bool(options["history"]):
        raise UsageError("name a trace, or give --history: one of the two", "tm simulate FILE, or tm simulate --history")
    if options["policy"] is not None and options["compare"] is not None:
        raise UsageError("--policy and --compare say the same thing", "give one of them")
    asked = _policies(options["policy"] if options["compare"] is None else options["compare"])
    check_changes(options["add"], options["remove"])
    whole = _history(session) if path is None else _loaded(Path(path))
    decides = chosen(whole.rules)
    present = decides.name
    known = {**POLICIES, present: decides}  # pools may have different policies; their combination has no entry in the table
    names = asked or [present]
    if options["cluster"] is not None:
        whole = replace(whole, sites=cluster(options["cluster"]))
    elif whole.down:
        last = described(whole.sites)
        session.out.note(f"no node is up: replayed on what there was last, {last}; others: --cluster '8x8:a100'")
    sites = changed(whole.sites, options["add"], options["remove"])
    settings = Settings(options["preemption_cost"], options["exact"], options["noise"], options["seed"], whole.rules)
    changes, both = replace(whole, sites=sites), sites != whole.sites
    bounds = quotas(options["quota"], changes)
    before = present if path is None else names[0]
    what_if = bool(bounds) or both or (path is None and names != [before])
    if whole.passed:
        session.out.note(f"{human.plural(whole.passed, 'job')} passed over: never ran, or not over yet")
    count = options["eta"]
    now = [Case(_NOW, whole, known[before], settings, count)] if what_if else []
    under = replace(settings, rules=with_quotas(settings.rules, bounds))
    return now + [Case(_THEN if what_if and len(names) == 1 else name, changes, known[name], under, count) for name in names]


def _policies(text: str | None) -> list[str]:
    """Parse names of policies; none if none is given. Raises: UsageError for an unknown one."""
    from trainmaster.scheduling.policies.known import POLICIES  # noqa: PLC0415
    from trainmaster.spec.faults import nearest  # noqa: PLC0415

    if text is None:
        return []
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names or [""]:
        if name not in POLICIES:
            near = nearest(name.replace("_", "-"), list(POLICIES))
            meant = f"did you mean {near}? " if near else ""
            raise UsageError(f"there is no policy {name!r}", f"{meant}known: {', '.join(POLICIES)}")
    return names


def _loaded(path: Path) -> "Trace":
    from trainmaster.simulator.formats import load  # noqa: PLC0415

    return load(path)


def _history(session: Session) -> "Trace":
    """This server's history, on its own nodes."""
    with tempfile.TemporaryDirectory(prefix="tm-history-") as directory:
        path = Path(directory) / "history.jsonl"
        with path.open("wb") as file:
            session.client().history(file)
        try:
            return _loaded(path)
        except UsageError as error:  # the user did not name that file
            raise UsageError(error.message.replace(str(path), "this server's history"), error.hint) from None


def _startable(session: Session, cases: "list[Case]") -> "tuple[list[Case], list[str]]":
    """The cases without jobs that can never start, and notes about jobs that could start in only one of the cases.

    Raises: UsageError if no job is left.
    """
    from trainmaster.cli.simulate.differences import apart  # noqa: PLC0415
    from trainmaster.simulator.cases import alike  # noqa: PLC0415
    from trainmaster.simulator.cluster import described  # noqa: PLC0415

    kept, left = alike(cases)
    for at in (0, -1):  # all but the first case have the same nodes and configuration
        if not left[at] or (at and left[at] == left[0]):
            continue
        case = cases[at]
        first = next(arrival for arrival in case.trace.arrivals if arrival.id in left[at])
        told = f"job {first.id}{f' (line {first.line})' * bool(first.line)} {left[at][first.id]}"
        if not kept[at].trace.arrivals:
            here = described(case.trace.sites) or "no nodes"
            raise UsageError(f"no job could start on {here}: {told}", "name other nodes: --cluster '8x8:a100'; or allow more")
        which = f"{_NOW if not at else _THEN}: " if left[0] != left[-1] else ""
        count = human.plural(len(left[at]), "job")
        session.out.note(f"{which}{count} left out, which could never start here; the first: {told}")
    return kept, apart(left[0].keys(), left[-1].keys())


def _directory(session: Session, name: str, options: dict[str, Any]) -> Path | None:
    """The directory of the report; None for no report."""
    if options["no_report"]:
        if options["report"]:
            raise UsageError("--report and --no-report contradict each other", "give one of them")
        return None
    if options["report"]:
        return Path(options["report"])
    return None if session.out.json else Path(f"simulation-{name}")


def _run(session: Session, case: "Case") -> "Result":
    """Run one replay, with a progress bar on a terminal."""
    import sys  # noqa: PLC0415

    from trainmaster.model.cluster import DAY_S  # noqa: PLC0415
    from trainmaster.simulator.cases import run  # noqa: PLC0415

    total, hidden, label = len(case.trace.arrivals), session.out.json or not sys.stderr.isatty(), case.label
    label += "" if label == case.policy.name else f", {case.policy.name}"
    with click.progressbar(
        length=total, label=label, file=sys.stderr, hidden=hidden, show_pos=True,
        item_show_func=lambda said: said, update_min_steps=0,  # the text changes while the position does not
    ) as bar:  # fmt: skip
        day = ""

        def over(count: int, now_s: float) -> None:
            nonlocal day
            day = f"day {1 + int(now_s // DAY_S):,}"
            bar.update(count - bar.pos, day)

        def estimating(number: int) -> None:  # the position does not change meanwhile
            bar.update(0, f"{day}, start estimate {number} of {case.estimates}".lstrip(", "))

        found = run(case, over, estimating)
        bar.update(total - bar.pos)
    one = found.measures
    part = f", {one.eta_seconds:.1f} s of it for start estimates" if case.estimates else ""
    left = f"; {human.plural(one.never, 'job')} never started" if one.never else ""
    session.out.note(f"{case.label}: {one.jobs:,} job{'s' * (one.jobs != 1)} in {one.seconds:.1f} s{part}{left}")
    return found


def _differences(results: "Sequence[Result]") -> list[str]:
    """Sentences about the differences, if two cases are compared."""
    from trainmaster.cli.simulate.differences import differences  # noqa: PLC0415

    if len(results) != 2 or results[0].label != _NOW:
        return []
    return differences(results[0].measures, results[1].measures)


def _json(one: "Result") -> dict[str, Any]:
    return {"case": one.label, **asdict(one.measures)}
