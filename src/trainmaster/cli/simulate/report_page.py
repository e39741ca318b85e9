"""The page of a simulation's report: what was replayed, tables, differences as sentences, charts."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from trainmaster.cli.render import human
from trainmaster.cli.render.html_figure import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Powers, Scale, key, page, table
from trainmaster.simulator.charts import Chart

_AXIS = 16  # additional space at the bottom for the axis title
_EDGE = 12  # closer to the right end than this, a centered label would be cut
_FLOOR = HEIGHT - BOTTOM - _AXIS
_STYLE = """
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 0 2.5rem; }
.axis { opacity: .75; } .bar { stroke: none; }
.charts .dot { stroke-width: 6; stroke-linecap: round; stroke-dasharray: none; vector-effect: non-scaling-stroke; }
.note { opacity: .8; max-width: 46rem; } li { max-width: 46rem; }
.charts svg text { font-size: 10.5px; } .charts h2 { margin-bottom: .2rem; } figcaption { line-height: 1.4; }
@media (max-width: 40rem) { .charts svg text { font-size: 14px; } }
"""

Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # headers, rows


@dataclass(frozen=True, slots=True)
class Story:
    """The content of the page: `facts` and `differences` as sentences; `tables` with their headings."""

    title: str
    facts: Sequence[str]
    measures: Table
    tables: Sequence[tuple[str, Table]]
    differences: Sequence[str]
    charts: Sequence[Chart]


def html(story: Story) -> str:
    """The page."""
    count = max((len(chart.curves) for chart in story.charts), default=0)
    fills = "".join(
        f".f{at} {{ fill: var(--c{at}); }} .charts .c{at} {{ stroke-width: {thickness(at)}; }}\n" for at in range(count)
    )
    body = [
        *(f'<p class="note">{escape(fact)}</p>' for fact in story.facts),
        _list(story.differences),
        _plain(story.measures),
        *(f"<h2>{escape(name)}</h2>{_plain(table)}" for name, table in story.tables),
        f'<div class="charts">{"".join(figure(chart) for chart in story.charts)}</div>',
    ]
    return page(story.title, body, count, _STYLE + fills)


def thickness(at: int) -> float:
    """The line width of curve `at`: the first are the thickest, so that they stay visible under equal ones."""
    return max(1.5, 4.0 - 0.6 * at)


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def _plain(told: Table) -> str:
    headers, rows = told
    return table([header.lower() for header in headers], [[(cell, "") for cell in row] for row in rows], "figures")


def figure(chart: Chart) -> str:
    """One chart with its heading and legend."""
    across, up = scales(chart)
    drawn = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">']
    for tick in up.ticks:
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>')
        drawn.append(f'<text x="{LEFT - 6}" y="{up(tick) + 3:.1f}" text-anchor="end">{label(chart, tick)}</text>')
    for tick in across.ticks:
        text, x = escape(across_label(chart, tick)), across(tick)
        anchor = "end" if x > WIDTH - RIGHT - _EDGE and not chart.names else "middle"
        drawn.append(f'<text x="{x:.1f}" y="{_FLOOR + 14}" text-anchor="{anchor}">{text}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    drawn.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(chart.across)}</text>')
    drawn.append(f'<text class="axis" x="12" y="{_FLOOR / 2}" transform="rotate(-90 12 {_FLOOR / 2})" text-anchor="middle">')
    drawn.append(f"{escape(chart.up)}</text>")
    for at, (name, points) in enumerate(chart.curves):
        drawn += _bar(at, chart, (across, up)) if chart.bars else _curve(at, name, points, (across, up), bool(chart.names))
    drawn.append("</svg>")
    keys = "" if chart.bars or len(chart.curves) < 2 else "".join(key(at, name) for at, name in enumerate(keyed(chart)))
    return f"<section><h2>{escape(chart.title)}</h2><figure>{''.join(drawn)}<figcaption>{keys}</figcaption></figure></section>"


def keyed(chart: Chart) -> list[str]:
    """The legend texts: a curve's name, and which later curve covers it completely."""
    later = {points: name for name, points in chart.curves}
    hidden = [later[points] if points and later[points] != name else "" for name, points in chart.curves]
    return [f"{name} (the same as {other})" if other else name for (name, _), other in zip(chart.curves, hidden, strict=True)]


def scales(chart: Chart) -> tuple[Scale, Scale]:
    """The horizontal and the vertical scale."""
    points = [point for _, curve in chart.curves for point in curve]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if chart.bars and chart.percent:
        ys.append(1.0)
    right, floor = (LEFT, WIDTH - RIGHT), (_FLOOR, TOP)
    if chart.names:
        across = Scale([-0.5, len(chart.names) - 0.5], right)
        across.ticks = [float(at) for at in range(len(chart.names))]
    else:
        across = Powers(xs, right, chart.spans) if chart.log_across else Scale([0.0, *xs], right)
    return across, Powers(ys, floor) if chart.log_up else Scale([0.0, *ys], floor, whole=True)


def label(chart: Chart, value: float) -> str:
    """A value up, in words."""
    if chart.percent:
        return f"{value:.0%}"
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:,.6g}"


def bar_label(chart: Chart, value: float) -> str:
    """What a bar stands for, in words."""
    return f"{value:,.0f}" if value >= 1000 else label(chart, value) if chart.percent else f"{value:,.3g}"


def across_label(chart: Chart, value: float) -> str:
    """A value across, in words."""
    if chart.names:
        return chart.names[int(value)]
    return human.short(value) if chart.spans else f"{value:.6g}"


def _curve(at: int, name: str, points: Sequence[tuple[float, float]], scale: tuple[Scale, Scale], dots: bool) -> list[str]:
    across, up = scale
    placed = [(across(x), up(y)) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    drawn = [f'<polyline class="curve c{at}" points="{path}"><title>{escape(name)}</title></polyline>']
    return drawn + [f'<path class="dot c{at}" d="M{x:.1f} {y:.1f}h0"/>' for x, y in placed if dots]


def _bar(at: int, chart: Chart, scale: tuple[Scale, Scale]) -> list[str]:
    across, up = scale
    half = min(22.0, 0.36 * (across(1.0) - across(0.0)))
    floor, wide = up(0.0), 2 * half
    return [
        f'<rect class="bar f{at}" x="{across(x) - half:.1f}" y="{up(y):.1f}" width="{wide:.1f}" height="{floor - up(y):.1f}"/>'
        f'<text x="{across(x):.1f}" y="{up(y) - 4:.1f}" text-anchor="middle">{bar_label(chart, y)}</text>'
        for x, y in chart.curves[at][1]
    ]
