"""Writes a comparison as one self-contained HTML page, without scripts, for light and dark screens and for phones."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from trainmaster.cli.render import human
from trainmaster.cli.render.arguments import by_argument
from trainmaster.cli.render.compared import SECTIONS, ats, equal_ends, last_cells, shown, unknown
from trainmaster.cli.render.html_figure import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Scale, key, page, table
from trainmaster.wire import rest


def html(found: Mapping[str, Any]) -> str:
    """The page for an answer of `GET /compare`."""
    ids = [str(job["id"]) for job in found["jobs"]]
    title = f"{', '.join(ids[:4])}{' and others' if len(ids) > 4 else ''} compared"
    body = [
        _runs(found["jobs"]),
        *(_figure(name, series, ids) for name, series in found["series"].items()),
        _metrics(found, ids),
        *_differences(found, ids),
        *_patches(found.get("patches") or []),
    ]
    return page(title, body, len(ids))


def _runs(jobs: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for job in jobs:
        ran = human.duration(job["ran_s"]) if job["started_s"] else "never"
        rows.append([(str(text), "") for text in (job["id"], job["state"], ran, job["attempts"], job["experiment"])])
    return table(("run", "state", "ran", "attempts", "experiment"), rows, "figures")


def _figure(name: str, series: Sequence[Sequence[tuple[float, float | str | None]]], ids: Sequence[str]) -> str:
    numbers = [[(step, rest.number_of(value)) for step, value in points] for points in series]
    curves = [[(step, value) for step, value in points if value is not None and math.isfinite(value)] for points in numbers]
    everything = [point for points in curves for point in points]
    if not everything:
        return ""
    steps, values = [point[0] for point in everything], [point[1] for point in everything]
    across, up = Scale(steps, (LEFT, WIDTH - RIGHT)), Scale(values, (HEIGHT - BOTTOM, TOP), whole=True)
    drawn = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(name)} by step">']
    for tick in up.ticks:
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>')
        drawn.append(f'<text x="{LEFT - 6}" y="{up(tick) + 4:.1f}" text-anchor="end">{tick:.6g}</text>')
    for tick in across.ticks:
        drawn.append(f'<text x="{across(tick):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{tick:.6g}</text>')
    keys = []
    for index, points in enumerate(curves):
        path = " ".join(f"{across(step):.1f},{up(value):.1f}" for step, value in points)
        drawn.append(f'<polyline class="curve c{index}" points="{path}"><title>{escape(ids[index])}</title></polyline>')
        keys.append(key(index, ids[index]))
    drawn.append("</svg>")
    return f"<h2>{escape(name)}</h2><figure>{''.join(drawn)}<figcaption>{''.join(keys)}</figcaption></figure>"


def _metrics(found: Mapping[str, Any], ids: Sequence[str]) -> str:
    rows = []
    for one in found["metrics"]:
        name = one["name"] + (" (primary)" if one["primary"] else "")
        rows.append([(f"{name}, last", ""), *((cell, "") for cell in last_cells(one))])
        if one["mode"] is not None:
            best = [(cell, "best" if index == one["winner"] else "") for index, cell in enumerate(ats(one["best"]))]
            rows.append([(f"{name}, {one['mode']}", ""), *best])
    equal = "".join(f"<p>{title}: {escape(', '.join(same))}.</p>" for title, same in equal_ends(found))
    drawn = table(("", *ids), rows, "figures") if rows else ""
    return f"<h2>Metrics</h2>{drawn}{equal}" if drawn or equal else ""


def _differences(found: Mapping[str, Any], ids: Sequence[str]) -> list[str]:
    parts = []
    for section, title in SECTIONS.items():
        rows = [
            [(one["field"], ""), *((shown(value), "equal" if one["equal"] else "") for value in one["values"])]
            for one in by_argument([one for one in found["differences"] if one["section"] == section])
        ]
        if rows:
            parts.append(f"<h2>{title}</h2>{table(('', *ids), rows)}")
    if not any(not one["equal"] for one in found["differences"]):
        known = ", as far as it is known" if found["unknown"] or found.get("not_compared") else ""
        parts.append(f"<p>Nothing differs{known}.</p>")
    parts += [f"<p>Not compared: {escape(what)}.</p>" for what in (*unknown(found), *found.get("not_compared", ()))]
    return parts


def _patches(patches: Sequence[Mapping[str, Any]]) -> list[str]:
    told = [f"<h3>{escape(one['path'])}</h3><pre>{escape(one['text'] or one['note'])}</pre>" for one in patches]
    return ["<h2>Code, line by line</h2>", *told] if told else []
