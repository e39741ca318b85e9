"""`tm compare`: shows differences, metrics and curves of jobs; in the terminal, as JSON, or as one HTML page."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from trainmaster.cli.render import curve, human
from trainmaster.cli.render.arguments import LONG, by_argument, from_difference
from trainmaster.cli.render.compared import SECTIONS, ats, equal_ends, last_cells, shown, unknown
from trainmaster.cli.render.output import Output
from trainmaster.cli.session import JOB, Session, remote
from trainmaster.errors import OperationError

MARKS = "ox+*#@%&=~^$"  # the marks of curves, by run; further runs are not drawn in the terminal
_HTML_POINTS, _TERMINAL_POINTS = 400, 200
_ROWS = 40  # per section in the terminal
_NAMES = 100  # in one paragraph
_CELL = 200  # characters per cell, also if the output is piped
_LEAST = 12  # smallest width of a shortened value
_SAME = {"spec": "spec", "parameters": "parameters", "files": "code", "packages": "packages", "hardware": "hardware"}
_NAMED = {"packages", "files"}  # sections whose values that only some runs have are listed instead of put into columns


@click.command()
@click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB JOB...")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Only this metric, with its curve; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="Show equal fields too.")
@click.option("--diff", "patch", is_flag=True, help="Show code differences line by line, against the first job.")
@click.option("--html", "page", metavar="FILE", help="Write one self-contained page; - is standard output.")
@remote
def compare(  # noqa: PLR0913  a command's options
    session: Session, jobs: tuple[str, ...], metrics: tuple[str, ...], everything: bool, patch: bool, page: str | None
) -> None:
    """Compare jobs: spec, code, packages, hardware; their metrics, and their curves in one figure."""
    out = session.out
    points = _HTML_POINTS if page else _TERMINAL_POINTS
    asked: dict[str, Any] = {"points": points, "all": int(everything), "patch": int(patch)}
    found = session.client().compare(jobs, **asked, metric=list(metrics) or None)
    if page is not None:
        _write_page(out, found, page)
    elif out.json:
        out.value(found)
    else:
        told = (*head(found), *differences(found, out.width), *standing(found, out.width), *curves(found, out.width or 80))
        for line in told:
            out.data(line)
        for one in found.get("patches") or []:
            out.data("")
            out.data(f"{one['path']}: {one['note']}" if one["note"] else one["text"].rstrip("\n"))


def _write_page(out: Output, found: Mapping[str, Any], page: str) -> None:
    from trainmaster.cli.inspect.comparison_page import html  # noqa: PLC0415  needed for --html only

    text = html(found)
    if page == "-":
        out.raw(text)
        return
    try:
        Path(page).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OperationError(f"{page} cannot be written: {error.strerror}", "name another place: --html FILE") from error
    if out.json:
        out.value({"path": page, "bytes": len(text.encode())})
    else:
        out.note(f"{page}: {len(found['jobs'])} runs, {human.size(len(text.encode()))}; it needs nothing but a browser")


def head(found: Mapping[str, Any]) -> list[str]:
    """One line per run, with the mark of its curve."""
    lines = []
    for index, job in enumerate(found["jobs"]):
        mark = MARKS[index] if index < len(MARKS) else " "
        tries = f", {human.plural(job['restarts'], 'restart')}" if job["restarts"] else ""
        ran = f"ran {human.duration(job['ran_s'])}" if job["started_s"] else "never ran"
        lines.append(f"{mark} {job['id']}  {job['state']}, {ran}{tries}")
    return lines


def differences(found: Mapping[str, Any], width: int | None = None) -> list[str]:
    """A table per section with one column per run, fitted to `width`. None: only very long values are cut."""
    ids = [job["id"] for job in found["jobs"]]
    most = LONG if width is None else min(LONG, max(_LEAST, width // (len(ids) + 1)))
    lines: list[str] = []
    for section, title in SECTIONS.items():
        rows = by_argument([one for one in found["differences"] if one["section"] == section], most)
        if not rows:
            continue
        lone = [one for one in rows if section in _NAMED and not one["equal"] and _is_lone(one["values"])]
        rows = [one for one in rows if one not in lone]
        lines += ["", title]
        cells = [_cells(one, most) for one in rows[:_ROWS]]
        lines += _columns(["", *ids], cells, width) if cells else []
        if len(rows) > _ROWS:
            lines.append(f"  … and {len(rows) - _ROWS} more: --json has all")
        lines += _named(lone, ids, section == "packages", width)
    doubts = [*unknown(found), *found.get("not_compared", ())]  # a server of an older version does not say these
    if not any(not one["equal"] for one in found["differences"]):
        doubted = " ".join(what.partition(":")[0].lower() for what in doubts)
        same = [word for title, word in _SAME.items() if title not in doubted]
        known = ", as far as it is known" if doubts else ""
        lines += ["", f"Nothing differs{known}: {', '.join(same[:-1])} and {same[-1]} are the same."]
    return lines + [f"Not compared: {what}" for what in doubts]


def _cells(row: Mapping[str, Any], most: int) -> list[str]:
    values = [shown(value) for value in row["values"]]
    name = row["field"] + (" (equal)" if row["equal"] else "")
    return [name, *(from_difference(values, most) if row["section"] == "spec" else values)]


def _is_lone(values: Sequence[Any]) -> bool:
    """Whether some runs have the same value, and the other runs have none."""
    had = [value for value in values if value is not None]
    return len(had) < len(values) and all(value == had[0] for value in had)


def _named(rows: Sequence[Mapping[str, Any]], ids: Sequence[str], valued: bool, width: int | None) -> list[str]:
    """Values that only some runs have: one paragraph per such set of runs, with the values if they are readable."""
    whose: dict[str, list[str]] = {}
    for one in rows:
        having = ", ".join(id for id, value in zip(ids, one["values"], strict=True) if value is not None)
        value = next(value for value in one["values"] if value is not None)
        whose.setdefault(having, []).append(f"{one['field']} {shown(value)}" if valued else one["field"])
    lines = []
    for having, names in whose.items():
        more = f", … and {len(names) - _NAMES} more: --json has all" if len(names) > _NAMES else ""
        text = f"  only {having}: {', '.join(names[:_NAMES])}{more}"
        lines += textwrap.wrap(text, width or 100, subsequent_indent="    ", break_on_hyphens=False)
    return lines


def _columns(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Fields as rows, runs as columns. Values are cut in their middle until a line fits, names of fields to half of it."""
    table = [[human.middle(" ".join(cell.split()), _CELL) for cell in row] for row in [headers, *rows]]
    widths = [max(len(row[index]) for row in table) for index in range(len(headers))]
    widths[0] = widths[0] if width is None else min(widths[0], max(_LEAST, width // 2))
    while width is not None and sum(widths) + 2 * len(widths) > width and max(widths[1:]) > _LEAST:
        widths[widths.index(max(widths[1:]), 1)] -= 1
    fitted = [[human.middle(cell, most) for cell, most in zip(row, widths, strict=True)] for row in table]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in fitted]


def standing(found: Mapping[str, Any], width: int | None = None) -> list[str]:
    """Last and best value of each metric and run with its step; the best of all is marked. Those between are not compared."""
    lines: list[str] = []
    ids = [job["id"] for job in found["jobs"]]
    rows = []
    for one in found["metrics"]:
        name = one["name"] + (" (primary)" if one["primary"] else "")
        rows.append([f"{name}, last", *last_cells(one)])
        if one["mode"] is not None:
            best = [cell + (" *" if index == one["winner"] else "") for index, cell in enumerate(ats(one["best"]))]
            rows.append([f"{name}, {one['mode']}", *best])
    if rows:
        lines += ["", "Metrics (* the best)", *_columns(["", *ids], rows[:_ROWS], width)]
        if len(rows) > _ROWS:
            left = len(found["metrics"]) - len({row[0].rpartition(",")[0] for row in rows[:_ROWS]})
            lines.append(f"  … and {human.plural(left, 'metric')} more: --json has all, --metric NAME one")
    for title, same in equal_ends(found):
        more = f", … and {len(same) - _NAMES} more: --json has all" if len(same) > _NAMES else ""
        text = f"{title}: {', '.join(human.middle(name, _CELL) for name in same[:_NAMES])}{more}"
        lines += ["", *textwrap.wrap(text, width or 100, subsequent_indent="  ", break_on_hyphens=False)]
    return lines


def curves(found: Mapping[str, Any], width: int) -> list[str]:
    """The curves of each metric, drawn over each other."""
    lines: list[str] = []
    for name, series in found["series"].items():
        marked = list(zip(MARKS, series, strict=False))
        finite = [(mark, [point for point in points if not isinstance(point[1], str | None)]) for mark, points in marked]
        drawn = curve.overlay(finite, min(max(width, 40), 120))
        diverged = next((one.get("diverged") or [] for one in found["metrics"] if one["name"] == name), [])
        broken = [f"  {mark} {human.diverged(bad)}" for mark, bad in zip(MARKS, diverged, strict=False) if bad is not None]
        lines += ["", human.middle(name, width), *drawn, *broken] if drawn else []
    return lines
