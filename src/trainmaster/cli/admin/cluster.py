"""`tm apply`, `tm policy`, and `tm plan` of a cluster.yaml: the rules of the cluster."""

import textwrap
from pathlib import Path
from typing import Any

import click

from trainmaster.cli.render import human
from trainmaster.cli.session import Session, remote
from trainmaster.client.api import Row

_WIDTH = 100
_JOBS = 30  # told of, each with a line


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@remote
def apply(session: Session, file: Path) -> None:
    """Lay down the rules in FILE (a cluster.yaml): pools, projects, quotas, classes.

    They take the place of those before, and hold from the next decision on. See first what they would do: tm plan FILE.
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
@click.option("--yaml", "as_yaml", is_flag=True, help="As the cluster.yaml that lays them down.")
@remote
def policy(session: Session, as_yaml: bool) -> None:
    """The rules of the cluster in plain language: who goes first, who may have and borrow what, classes."""
    found, out = session.client().cluster(), session.out
    if out.json:
        out.value(found)
    elif as_yaml:
        from trainmaster.spec.cluster.cluster_mapping import to_yaml  # noqa: PLC0415
        from trainmaster.spec.cluster.document import from_mapping  # noqa: PLC0415  # with the validator

        out.raw(to_yaml(from_mapping(found["cluster"])))
    else:
        for paragraph in found["told"]:
            out.data(paragraph["about"])
            for sentence in paragraph["sentences"]:
                for line in textwrap.wrap(sentence, out.width or _WIDTH, initial_indent="  ", subsequent_indent="    "):
                    out.data(line)


def lays_down(file: Path) -> bool:
    """Whether a file is about a cluster, not about a job."""
    if file.suffix not in (".yaml", ".yml", ".json") or not file.is_file():
        return False
    from trainmaster.spec.cluster.document import is_cluster, read  # noqa: PLC0415  # with the reader of YAML

    return is_cluster(read(file), str(file))


def foreseen(session: Session, file: Path) -> None:
    """What the rules in a file would do to the present queue."""
    mapping, out = _mapping(file), session.out
    answer = session.client().cluster_plan(mapping)
    if out.json:
        out.value(answer)
        return
    _compared(session, answer)
    for line in _effects(answer):
        out.data(line)
    out.note(f"nothing was applied; to do it: tm apply {file}")


def _mapping(file: Path) -> dict[str, Any]:
    """What the file says, valid and complete. Raises: SpecError with file, line and column, UsageError."""
    from trainmaster.spec.cluster.cluster_mapping import to_mapping  # noqa: PLC0415
    from trainmaster.spec.cluster.document import load_file  # noqa: PLC0415  # with the validator

    return to_mapping(load_file(file))


def _compared(session: Session, answer: Row) -> None:
    """What is otherwise in the rules, and what the nodes cannot keep."""
    for line in answer["changes"] or ["these are the rules already"]:
        session.out.data(line)
    for word in answer["words"]:
        session.out.note(f"note: {word}")


def _effects(answer: Row) -> list[str]:
    """What becomes of those that wait."""
    jobs, waiting = answer["jobs"], answer["waiting"]
    if not waiting:
        return ["no job waits now"]
    if not jobs:
        return [f"of {human.plural(waiting, 'job')} that wait none starts or moves by it"]
    lines = [f"{job['id']}: {_change(job['now'], job['then'])}" for job in jobs[:_JOBS]]
    return [*lines, *([f"and {len(jobs) - _JOBS} more (--json)"] if len(jobs) > _JOBS else [])]


def _change(now: Row, then: Row) -> str:
    """How one job would stand, and how it stands."""
    if now["starts"] is None and now["reason"] == then["reason"]:
        return f"number {then['position']} in the queue, not {now['position']}"
    return f"{_standing(then)} (now: {_standing(now)})"


def _standing(one: Row) -> str:
    if one["starts"] is None:
        return f"number {one['position']}, {one['reason']}"
    ways = ((one["stops"], "made way"), (one["gives_back"], "gave back nodes"))
    once = " and ".join(f"{', '.join(ids)} {did}" for ids, did in ways if ids)
    return f"starts on {', '.join(one['starts'])}{f' once {once}' if once else ''}"
