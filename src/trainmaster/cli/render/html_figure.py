"""Self-contained HTML pages with drawings, without scripts, for light and dark screens and for phones."""

import math
import re
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 480, 270, 62, 26, 10, 8  # of a drawing, in its own units
_TICKS = 6  # approximate number per axis; down to two where round values allow no more
_ROOM = 26  # width of a duration's label
_SMALLEST = 1e-300  # smallest difference; below it numbers lose digits
_HUES = (211, 24, 130, 320, 48, 265, 175, 350, 90, 235, 10, 150)
_DASHES = ("", "7 4", "2 3", "9 3 2 3")
STYLE = """
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


def page(title: str, body: Sequence[str], curves: int, style: str = "") -> str:
    """A complete page. `curves`: number of colors it needs; `style`: additional CSS."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title><style>{STYLE}{style}{colours(curves)}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        *body,
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def colours(count: int) -> str:
    """CSS for the classes `c0`, `c1`, …: one color each, with dashes when colors repeat; `--c0`, `--c1` are the colors."""
    hues = "".join(f"--c{at}: hsl({_HUES[at % len(_HUES)]} 70% var(--light)); " for at in range(count))
    dashes = (_DASHES[at // len(_HUES) % len(_DASHES)] or "none" for at in range(count))
    return f":root {{ {hues}}}\n" + "".join(
        f".c{at} {{ stroke: var(--c{at}); stroke-dasharray: {dash}; }}\n" for at, dash in enumerate(dashes)
    )


def table(head: Sequence[str], rows: Sequence[Sequence[tuple[str, str]]], kind: str = "") -> str:
    """An HTML table of `rows` of (text, class). `kind`: the table's class; `figures` are short and do not wrap."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = ""
    for row in rows:
        cells = [f'<td class="{mark}">{escape(text)}</td>' if mark else f"<td>{escape(text)}</td>" for text, mark in row[1:]]
        body += f"<tr><td>{_breaking(row[0][0])}</td>{''.join(cells)}</tr>\n"
    return f'<div class="wide"><table class="{kind}"><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _breaking(name: str) -> str:
    """A field's name that may wrap after its parts."""
    return re.sub(r"([._/])(?=[a-z])", r"\1<wbr>", escape(name))


def key(at: int, label: str) -> str:
    """The legend of curve `at`: its name and a piece of the line."""
    line = f'<line class="curve c{at}" x1="0" x2="32" y1="5" y2="5"/>'
    return f'<span class="key"><svg viewBox="0 0 32 10">{line}</svg>{escape(label)}</span>'


class Scale:
    """Maps values to positions in the picture. With `whole` the scale extends to a tick at both ends."""

    def __init__(self, values: Sequence[float], places: tuple[float, float], whole: bool = False) -> None:
        low, high = min(values), max(values)
        self.ticks = [low]
        apart = (high / 2 - low / 2) / _TICKS * 2  # halves: the difference itself may overflow a float
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


class Powers(Scale):
    """A logarithmic scale for values above 0. With `spans` its ticks are round durations: second, minute, hour, day."""

    _SPANS = (1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400, 3650 * 86_400)

    def __init__(self, values: Sequence[float], places: tuple[float, float], spans: bool = False) -> None:
        low, high = math.log10(min(values)), math.log10(max(values))
        if spans:
            self.ticks = [float(span) for span in self._SPANS if low <= math.log10(span) <= high]
        else:
            low, high = math.floor(low), max(math.ceil(high), math.floor(low) + 1)
            apart = math.ceil((high - low) / _TICKS)
            self.ticks = [10.0**power for power in range(low, high + 1, apart)]
        self.low, self.high = low, max(high, low + 1e-9)
        self._start, self._end = places
        self.ticks = [tick for at, tick in enumerate(self.ticks) if not at or self._apart(at) >= _ROOM] if spans else self.ticks

    def _apart(self, at: int) -> float:
        """The distance between a tick and the previous one."""
        return abs(self(self.ticks[at]) - self(self.ticks[at - 1]))

    def __call__(self, value: float) -> float:
        return self._start + (math.log10(value) - self.low) / (self.high - self.low) * (self._end - self._start)
