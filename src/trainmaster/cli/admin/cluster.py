"""`tm apply`, `tm policy`, and `tm plan` of a cluster.yaml: the cluster configuration."""

import textwrap
from pathlib import Path
from typing import Any

import click

from trainmaster.cli.render import human
from trainmaster.cli.session import Session, remote
from trainmaster.client.api import Row

_WIDTH = 100
_JOBS = 30  # jobs listed


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@remote
def apply(session: Session, file: Path) -> None:
    """Apply FILE (a cluster.yaml): pools, projects, quotas, classes.

    It replaces the present configuration and takes effect with the next scheduling decision. To see its effects first: tm
    plan FILE.
    """
    mapping, out = _mapping(file), session.out
    answer = session.client().cluster_apply(mapping)
    if out.json:
        out.value(answer)
        return
    _compared(session, answer)
    if answer["changes"]:
        out.note("applied; read them: tm policy")


@click.command()
@click.option("--yaml", "as_yaml", is_flag=True, help="Print it as a cluster.yaml.")
@remote
def policy(session: Session, as_yaml: bool) -> None:
    """Explain the cluster configuration: the order of jobs, quotas and borrowing of projects, workload classes."""
    found, out = session.client().cluster(), session.out
    if out.json:
        out.value(found)
    elif as_yaml:
        from trainmaster.spec.cluster.cluster_mapping import to_yaml  # noqa: PLC0415
        from trainmaster.spec.cluster.document import from_mapping  # noqa: PLC0415  # imports the validator

        out.raw(to_yaml(from_mapping(found["cluster"])))
    else:
        for paragraph in found["told"]:
            out.data(paragraph["about"])
            for sentence in paragraph["sentences"]:
                for line in textwrap.wrap(sentence, out.width or _WIDTH, initial_indent="  ", subsequent_indent="    "):
                    out.data(line)


def lays_down(file: Path) -> bool:
    """Whether a file is a cluster configuration, not a job."""
    if file.suffix not in (".yaml", ".yml", ".json") or not file.is_file():
        return False
    from trainmaster.spec.cluster.document import is_cluster, read  # noqa: PLC0415  # imports the YAML reader

    return is_cluster(read(file), str(file))


def foreseen(session: Session, file: Path) -> None:
    """Show what a configuration file would do to the present queue."""
    mapping, out = _mapping(file), session.out
    answer = session.client().cluster_plan(mapping)
    if out.json:
        out.value(answer)
        return
    _compared(session, answer)
    for line in _effects(answer):
        out.data(line)
    if not out.quiet:
        out.note(f"nothing was applied; to do it: tm apply {file}")


def _mapping(file: Path) -> dict[str, Any]:
    """The file's content, validated and complete. Raises: SpecError with file, line and column, UsageError."""
    from trainmaster.spec.cluster.cluster_mapping import to_mapping  # noqa: PLC0415
    from trainmaster.spec.cluster.document import load_file  # noqa: PLC0415  # imports the validator

    return to_mapping(load_file(file))


def _compared(session: Session, answer: Row) -> None:
    """Print the differences from the present configuration, and warnings."""
    for line in answer["changes"] or ["this is the present configuration already"]:
        session.out.data(line)
    for word in answer["words"]:
        session.out.note(f"note: {word}")


def _effects(answer: Row) -> list[str]:
    """What happens to the waiting jobs, as lines of text."""
    jobs, waiting = answer["jobs"], answer["waiting"]
    if not waiting:
        return ["no job is waiting"]
    if not jobs:
        return [f"of {human.plural(waiting, 'waiting job')} none would start or move"]
    lines = [f"{job['id']}: {_change(job['now'], job['then'])}" for job in jobs[:_JOBS]]
    return [*lines, *([f"and {len(jobs) - _JOBS} more (--json)"] if len(jobs) > _JOBS else [])]


def _change(now: Row, then: Row) -> str:
    """How the outcome of one job changes."""
    if now["starts"] is None and now["reason"] == then["reason"]:
        return f"number {then['position']} in the queue, not {now['position']}"
    return f"{_standing(then)} (now: {_standing(now)})"


def _standing(one: Row) -> str:
    if one["starts"] is None:
        return f"number {one['position']}, {one['reason']}"
    ways = ((one["stops"], "made way"), (one["gives_back"], "gave back nodes"))
    once = " and ".join(f"{', '.join(ids)} {did}" for ids, did in ways if ids)
    return f"starts on {', '.join(one['starts'])}{f' once {once}' if once else ''}"
