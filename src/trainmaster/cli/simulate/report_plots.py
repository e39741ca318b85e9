"""The charts of a simulation as PNG files, by matplotlib (the extra `plots`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainmaster.cli.simulate.report_page import across_label, bar_label, keyed, label, scales, thickness
from trainmaster.simulator.charts import Chart

_INCHES, _DPI = (8.0, 4.8), 120


def available() -> bool:
    """Whether matplotlib is installed."""
    from importlib.util import find_spec  # noqa: PLC0415  # only who asks for a report

    return find_spec("matplotlib") is not None


def write(charts: Sequence[Chart], directory: Path) -> list[Path]:
    """A file for each chart; which. Raises: OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  # an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    written = []
    for chart in charts:
        figure = Figure(figsize=_INCHES, layout="constrained")
        FigureCanvasAgg(figure)
        _draw(figure.add_subplot(), chart)
        path = directory / f"{chart.name}.png"
        figure.savefig(path, dpi=_DPI)
        written.append(path)
    return written


def _draw(axes: Any, chart: Chart) -> None:
    across, up = scales(chart)
    for at, (name, (_, points)) in enumerate(zip(keyed(chart), chart.curves, strict=True)):
        xs, ys = [x for x, _ in points], [y for _, y in points]
        if chart.bars:
            axes.bar_label(axes.bar(xs, ys, width=0.6, color=f"C{at % 10}"), [bar_label(chart, y) for y in ys])
        else:
            style = ("-", "--", ":", "-.")[at // 10 % 4]
            axes.plot(xs, ys, label=name, marker="o" if chart.names else "", linestyle=style, linewidth=thickness(at))
    axes.set(title=chart.title, xlabel=chart.across, ylabel=chart.up)
    if chart.log_across:
        axes.set_xscale("log")
    if chart.log_up:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0.0)
    axes.set_xticks(across.ticks, [across_label(chart, tick) for tick in across.ticks])
    axes.set_xticks([], minor=True)
    axes.set_yticks(up.ticks, [label(chart, tick) for tick in up.ticks])
    axes.grid(axis="y", alpha=0.4)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(chart.curves) > 1 and not chart.bars:
        axes.legend(frameon=False)
