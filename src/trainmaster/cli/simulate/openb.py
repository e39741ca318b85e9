"""`tm simulate openb`: measures how many of a cluster's GPUs a placement policy can allocate."""

import re
import sys
from dataclasses import asdict
from pathlib import Path

import click

from trainmaster.cli.session import Session, offline
from trainmaster.errors import UsageError

_SEEDS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z")
_SEEDS_MAX = 1000


@click.command(short_help="Fill a cluster with pods that share GPUs.")
@click.option("--nodes", required=True, type=click.Path(path_type=Path), metavar="FILE", help="CSV, one node per line.")
@click.option("--pods", required=True, type=click.Path(path_type=Path), metavar="FILE", help="CSV, one pod per line.")
@click.option("--policy", metavar="NAME", help="One placement; default: fragmentation.")
@click.option("--compare", metavar="NAMES", help="Several, side by side: fragmentation,pack,spread,random.")
@click.option(
    "--demand", type=click.FloatRange(0.0, 100.0, min_open=True), default=1.3, show_default=True, metavar="SHARE",
    help="Stop when the pods have asked for this share of all GPUs.",
)  # fmt: skip
@click.option("--seeds", default="42", show_default=True, metavar="N[-N]", help="Orders of arrival, one run each.")
@offline
def openb(session: Session, /, nodes: Path, pods: Path, demand: float, **options: str | None) -> None:
    """Fill a cluster with pods that never end, many of which request a fraction of a GPU.

    NODES has the columns sn, cpu_milli, memory_mib, gpu, model; PODS name, cpu_milli, memory_mib, num_gpu, gpu_milli and,
    for kinds of GPU, gpu_spec. `.gz` files are read too.

    \b
    tm simulate openb --nodes openb_node_list_gpu_node.csv --pods openb_pod_list_default.csv --seeds 42-51
    """
    from trainmaster.simulator import openb as simulator  # noqa: PLC0415  # needed here only

    said, known = options["policy"] if options["compare"] is None else options["compare"], simulator.names()
    words = "fragmentation" if said is None else said
    names = [name.strip() for name in words.split(",")]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"there is no placement {unknown[0]!r}", f"known: {', '.join(known)}")
    hidden = session.out.json or not sys.stderr.isatty()
    wanted, workload, found = _seeds(options["seeds"] or ""), simulator.load(nodes, pods), []
    for name in names:
        with click.progressbar(wanted, label=name, file=sys.stderr, hidden=hidden, show_pos=True) as seeds:
            found.append(simulator.fill(workload, name, demand, seeds))
        session.out.note(f"{name}: {found[-1].jobs:,} pod{'s' * (found[-1].jobs != 1)} in {found[-1].seconds:.1f} s")
    if session.out.json:
        session.out.value([asdict(one) for one in found])
        return
    rows = [
        [one.policy, f"{one.allocated_percent_mean:.2f}%", f"{one.fragmented_percent_mean:.2f}%", f"{one.jobs:,}"]
        for one in found
    ]
    session.out.table(["POLICY", "GPUS ALLOCATED", "FRAGMENTED", "PODS"], rows)


def _seeds(text: str) -> range:
    """`42`, or `42-51`. Raises: UsageError."""
    match = _SEEDS.match(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
    if not 0 <= last - first < _SEEDS_MAX:
        raise UsageError(f"--seeds: expected a number or a range of at most {_SEEDS_MAX:,}, got {text!r}", "such as 42-51")
    return range(first, last + 1)
