"""`tm simulate`: a trace through the production decisions."""

from dataclasses import asdict
from pathlib import Path

import click

from trainmaster.cli.session import Session, offline
from trainmaster.errors import UsageError


@click.command()
@click.argument("trace", type=click.Path())
@click.option("--policy", metavar="NAME", help="One policy; default: fifo.")
@click.option("--compare", metavar="NAMES", help="Several, side by side: fifo,easy,least-attained.")
@click.option(
    "--preemption-cost", type=float, default=30.0, show_default=True, metavar="S", help="Seconds done again after each."
)
@click.option("--exact", is_flag=True, help="The scheduler knows how long each job runs.")
@click.option("--noise", type=float, default=0.0, metavar="SHARE", help="Standard deviation of a factor on run times.")
@click.option("--seed", type=int, default=0, help="Of the noise.")
@offline
def simulate(session: Session, /, trace: str, policy: str | None, compare: str | None, **options: float) -> None:
    """Replay a cluster trace under one policy or several, by the code that decides for real.

    TRACE: SWF, or a CSV with the columns of Muri or Philly; `.gz` too. It runs on the cluster that it was recorded on.

    \b
    tm simulate SDSC-SP2.swf.gz --policy easy
    tm simulate trace3.csv.gz --compare fifo,easy,least-attained,learned
    """
    from trainmaster.scheduling.policy import POLICIES  # noqa: PLC0415  # only here
    from trainmaster.simulator.formats import load  # noqa: PLC0415
    from trainmaster.simulator.measures import measure  # noqa: PLC0415
    from trainmaster.simulator.replay import Replay, Settings  # noqa: PLC0415

    names = [name.strip() for name in (compare or policy or "fifo").split(",") if name.strip()]
    unknown = [name for name in names if name not in POLICIES]
    if unknown or not names:
        raise UsageError(f"there is no policy {(unknown or [''])[0]!r}", f"known: {', '.join(POLICIES)}")
    loaded = load(Path(trace))
    found = []
    for name in names:
        chosen = POLICIES[name]
        exact = bool(options["exact"]) or chosen.exact
        settings = Settings(options["preemption_cost"], exact, options["noise"], int(options["seed"]))
        replay = Replay(loaded, chosen, settings)
        replay.run()
        found.append(measure(replay))
        session.out.note(f"{name}: {found[-1].jobs:,} jobs in {found[-1].seconds:.1f} s")
    if session.out.json:
        session.out.value([asdict(one) for one in found])
        return
    headers = ["POLICY", "COMPLETION", "P50", "P99", "WAIT", "LONGEST", "SLOWDOWN", "USED", "PREEMPTED", "LOST"]
    rows = [
        [
            one.policy, _span(one.completion_mean_s), _span(one.completion_p50_s), _span(one.completion_p99_s),
            _span(one.wait_mean_s), _span(one.wait_max_s), f"{one.bounded_slowdown_mean:,.1f}", f"{one.utilisation:.1%}",
            f"{one.preemptions / one.jobs:.2f}/job", f"{one.lost_hours:,.0f} h",
        ]
        for one in found
    ]  # fmt: skip
    session.out.table(headers, rows)


def _span(seconds: float) -> str:
    """`3.4 d`, `5.2 h`, `47 s`."""
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:,.1f} {unit}"
    return f"{seconds:.0f} s"
