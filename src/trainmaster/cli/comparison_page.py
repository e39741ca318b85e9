"""A comparison as one page of HTML: no script, nothing fetched, light or dark as the reader's screen is, for phones too."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from trainmaster.cli import words
from trainmaster.cli.compare import SECTIONS, shown

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 480, 270, 62, 26, 10
_TICKS = 6  # on an axis, give or take one; where no round values fall so, down to two
_SMALLEST = 1e-300  # apart: below it lie the numbers that lose digits
_HUES = (211, 24, 130, 320, 48, 265, 175, 350, 90, 235, 10, 150)
_DASHES = ("", "7 4", "2 3", "9 3 2 3")
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d5dae0;
  --soft: #f4f6f8; --light: 42%; --win: #dff3e3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --paper: #14171a; --line: #363c43; --soft: #1d2126; --light: 66%; --win: #1d3a25; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; color: var(--ink); background: var(--paper);
  font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; }
th, .figures td + td { white-space: nowrap; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td { font-family: ui-monospace, monospace; overflow-wrap: break-word; max-width: 24rem; }
tr > :first-child { position: sticky; left: 0; background: var(--paper); font-weight: 600; padding-left: 0; }
.best { background: var(--win); } .equal { opacity: .6; }
figure { margin: 0; max-width: 54rem; } svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--ink); font: 8px system-ui, sans-serif; }
.grid { stroke: var(--line); vector-effect: non-scaling-stroke; }
.curve { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; }
.key { display: inline-flex; align-items: center; gap: .4rem; margin-right: 1rem; white-space: nowrap; font-size: .875rem; }
.key svg { width: 2rem; height: .6rem; }
h3 { font: 600 .875rem ui-monospace, monospace; margin: 1.2rem 0 .4rem; }
@media (max-width: 40rem) {
  svg text { font-size: 14px; } th, td { padding: .3rem .45rem; }
  td { max-width: 11rem; } tr > :first-child { max-width: 8.5rem; }
}
pre { background: var(--soft); padding: .7rem; overflow-x: auto; font-size: .8rem; }
"""


def html(found: Mapping[str, Any]) -> str:
    """The page for an answer of `GET /compare`."""
    ids = [str(job["id"]) for job in found["jobs"]]
    title = f"{', '.join(ids[:4])}{' and others' if len(ids) > 4 else ''} compared"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title><style>{_STYLE}{_colours(len(ids))}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        _runs(found["jobs"]),
        *(_figure(name, series, ids) for name, series in found["series"].items()),
        _metrics(found, ids),
        *_differences(found, ids),
        *_patches(found.get("patches") or []),
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _colours(count: int) -> str:
    return "".join(
        f".c{at} {{ stroke: hsl({_HUES[at % len(_HUES)]} 70% var(--light)); "
        f"stroke-dasharray: {_DASHES[at // len(_HUES) % len(_DASHES)] or 'none'}; }}\n"
        for at in range(count)
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[tuple[str, str]]], kind: str = "") -> str:
    """`rows` of (text, class), `kind` the table's own: `figures` are short and stay in one line."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = ""
    for row in rows:
        cells = [f'<td class="{mark}">{escape(text)}</td>' if mark else f"<td>{escape(text)}</td>" for text, mark in row[1:]]
        body += f"<tr><td>{_breaking(row[0][0])}</td>{''.join(cells)}</tr>\n"
    return f'<div class="wide"><table class="{kind}"><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _breaking(name: str) -> str:
    """A field's name, which may go on in a new line where a part of it ends."""
    return re.sub(r"([._/])(?=[a-z])", r"\1<wbr>", escape(name))


def _runs(jobs: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for job in jobs:
        ran = words.duration(job["ran_s"]) if job["started_s"] else "never"
        rows.append([(str(text), "") for text in (job["id"], job["state"], ran, job["attempts"], job["experiment"])])
    return _table(("run", "state", "ran", "attempts", "experiment"), rows, "figures")


def _figure(name: str, series: Sequence[Sequence[tuple[float, float | None]]], ids: Sequence[str]) -> str:
    curves = [[(step, value) for step, value in points if value is not None and math.isfinite(value)] for points in series]
    everything = [point for points in curves for point in points]
    if not everything:
        return ""
    steps, values = [point[0] for point in everything], [point[1] for point in everything]
    across, up = _Scale(steps, (_LEFT, _WIDTH - 8)), _Scale(values, (_HEIGHT - _BOTTOM, _TOP), whole=True)
    drawn = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(name)} by step">']
    for tick in up.ticks:
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>')
        drawn.append(f'<text x="{_LEFT - 6}" y="{up(tick) + 4:.1f}" text-anchor="end">{tick:.6g}</text>')
    for tick in across.ticks:
        drawn.append(f'<text x="{across(tick):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{tick:.6g}</text>')
    keys = []
    for at, points in enumerate(curves):
        path = " ".join(f"{across(step):.1f},{up(value):.1f}" for step, value in points)
        drawn.append(f'<polyline class="curve c{at}" points="{path}"><title>{escape(ids[at])}</title></polyline>')
        line = f'<line class="curve c{at}" x1="0" x2="32" y1="5" y2="5"/>'
        keys.append(f'<span class="key"><svg viewBox="0 0 32 10">{line}</svg>{escape(ids[at])}</span>')
    drawn.append("</svg>")
    return f"<h2>{escape(name)}</h2><figure>{''.join(drawn)}<figcaption>{''.join(keys)}</figcaption></figure>"


class _Scale:
    """From values to places on the picture. With `whole` the scale goes on to a tick beyond either end."""

    def __init__(self, values: Sequence[float], places: tuple[float, float], whole: bool = False) -> None:
        low, high = min(values), max(values)
        self.ticks = [low]
        apart = (high / 2 - low / 2) / _TICKS * 2  # halves: the difference may be more than a float holds
        if apart > _SMALLEST:
            power = 10.0 ** math.floor(math.log10(apart))
            apart = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= apart)
            down, up = (math.floor, math.ceil) if whole else (math.ceil, math.floor)
            ticks = [n * apart for n in range(down(low / apart), up(high / apart) + 1)]
            self.ticks = [tick for tick in ticks if math.isfinite(tick)]
        self.low, self.high = min(low, *self.ticks), max(high, *self.ticks)
        self._start, self._end = places

    def __call__(self, value: float) -> float:
        if self.high <= self.low:
            return (self._start + self._end) / 2
        return self._start + (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2) * (self._end - self._start)


def _metrics(found: Mapping[str, Any], ids: Sequence[str]) -> str:
    rows = []
    for one in found["metrics"]:
        name = one["name"] + (" (primary)" if one["primary"] else "")
        rows.append([(f"{name}, last", ""), *((_at(point), "") for point in one["last"])])
        if one["mode"] is not None:
            best = [(_at(point), "best" if at == one["winner"] else "") for at, point in enumerate(one["best"])]
            rows.append([(f"{name}, {one['mode']}", ""), *best])
    return f"<h2>Metrics</h2>{_table(('', *ids), rows, 'figures')}" if rows else ""


def _at(point: Mapping[str, Any] | None) -> str:
    if point is None:
        return "-"
    return words.number(point["value"]) + ("" if point["step"] is None else f" at {point['step']}")


def _differences(found: Mapping[str, Any], ids: Sequence[str]) -> list[str]:
    parts = []
    for section, title in SECTIONS.items():
        rows = [
            [(one["field"], ""), *((shown(value), "equal" if one["equal"] else "") for value in one["values"])]
            for one in found["differences"]
            if one["section"] == section
        ]
        if rows:
            parts.append(f"<h2>{title}</h2>{_table(('', *ids), rows)}")
    if not any(not one["equal"] for one in found["differences"]):
        parts.append("<p>Nothing differs.</p>")
    for section, lacking in found["unknown"].items():
        parts.append(f"<p>Not compared: {SECTIONS[section].lower()}; nothing is recorded for {escape(', '.join(lacking))}.</p>")
    return parts


def _patches(patches: Sequence[Mapping[str, Any]]) -> list[str]:
    told = [f"<h3>{escape(one['path'])}</h3><pre>{escape(one['text'] or one['note'])}</pre>" for one in patches]
    return ["<h2>Code, line by line</h2>", *told] if told else []
