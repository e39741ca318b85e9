"""Draws metric curves as text. Pure."""

import math
from collections.abc import Sequence

from trainmaster.cli.render import human

_BROKEN = "nan"  # label of the marks for values that are not finite
_HUGE = 1e150  # beyond this a run has diverged, and differences would overflow
_UNICODE = {
    "flat": "─", "wall": "│", "down_from": "╮", "down_to": "╰", "up_from": "╯", "up_to": "╭", "axis": "┤", "base": "└",
    "broken": "×",
}  # fmt: skip
_ASCII = {
    "flat": "-", "wall": "|", "down_from": ".", "down_to": "'", "up_from": "'", "up_to": ".", "axis": "|", "base": "+",
    "broken": "x",
}  # fmt: skip


def draw(
    points: Sequence[tuple[float, float]], width: int = 80, height: int = 8, ascii_only: bool = False, axis: str = "step"
) -> list[str]:
    """`height` lines with the curve and its scale, and one with the steps; empty for fewer than two finite points.

    `axis` is what the steps are called. `points` are (step, value), ordered by step. Points in the same column are averaged.
    Values that are not finite leave their columns to a mark below the axis. O(points + width × height).
    """
    finite = [(step, value) for step, value in points if _is_drawn(value)]
    if len(finite) < 2 or finite[-1][0] <= finite[0][0]:
        return []
    glyphs = _ASCII if ascii_only else _UNICODE
    means = _resample(finite, width)  # the scale covers what is drawn: a single spike would flatten the rest
    low, high = min(means), max(means)
    labels = _labels(low, high, height)
    margin = max(len(label) for label in [*labels, *([_BROKEN] if len(finite) < len(points) else [])])
    columns, begin, end = width - margin - 3, points[0][0], points[-1][0]

    def column(step: float) -> int:
        return round((step - begin) / (end - begin) * (columns - 1))

    left, right = column(finite[0][0]), column(finite[-1][0])
    rows = [_row(value, low, high, height) for value in _resample(finite, right - left + 1)]
    canvas = _line(rows, height, glyphs)
    lines = [f"{labels[row]:>{margin}} {glyphs['axis']}{' ' * left}{''.join(canvas[row])}".rstrip() for row in range(height)]
    first, last = human.number(begin), human.number(end)
    lines.append(" " * (margin + 1) + glyphs["base"] + f"{axis} {first}" + last.rjust(columns - len(first) - len(axis) - 1))
    if len(finite) < len(points):
        marks = [" "] * columns
        for (before, _), (step, value) in zip([points[0], *points], points, strict=False):
            if not _is_drawn(value):
                run = column(before) + 1 if marks[column(before)] != " " else column(step)
                marks[run : column(step) + 1] = glyphs["broken"] * (column(step) + 1 - run)
        lines.append(f"{_BROKEN:>{margin}}  {''.join(marks)}".rstrip())
    return lines


def _is_drawn(value: float) -> bool:
    return math.isfinite(value) and abs(value) < _HUGE


def overlay(curves: Sequence[tuple[str, Sequence[tuple[float, float]]]], width: int = 80, height: int = 12) -> list[str]:
    """Several curves on one scale, each drawn with its own mark; the caller explains the marks.

    `curves` are (mark, points). Where curves overlap, the earlier one is visible. O(points + curves × width).
    """
    finite = [(mark, [(x, y) for x, y in points if _is_drawn(y)]) for mark, points in curves]
    drawn = [(mark, points) for mark, points in finite if len(points) > 1 and points[-1][0] > points[0][0]]
    if not drawn:
        return []
    first, last = min(points[0][0] for _, points in drawn), max(points[-1][0] for _, points in drawn)
    means = {mark: _resample(points, min(width, len(points))) for mark, points in drawn}
    low, high = min(min(values) for values in means.values()), max(max(values) for values in means.values())
    labels = _labels(low, high, height)
    margin = max(len(label) for label in labels)
    columns = max(10, width - margin - 3)
    canvas = [[" "] * columns for _ in range(height)]
    for mark, points in reversed(drawn):
        begin, end = (round((step - first) / (last - first) * (columns - 1)) for step in (points[0][0], points[-1][0]))
        for at, value in enumerate(_resample(points, end - begin + 1)):
            canvas[_row(value, low, high, height)][begin + at] = mark
    lines = [f"{labels[row]:>{margin}} |{''.join(canvas[row])}".rstrip() for row in range(height)]
    from_step, to_step = human.number(first), human.number(last)
    axis = f"step {from_step}" + to_step.rjust(columns - len(from_step) - 5)
    return [*lines, " " * (margin + 1) + "+" + axis]


def _labels(low: float, high: float, height: int) -> list[str]:
    """The labels of the scale, top line first."""
    if high <= low:
        return [human.number(high) if row == height // 2 else "" for row in range(height)]
    values = [high - (high - low) * row / (height - 1) for row in range(height)]
    return [human.number(0.0 if abs(value) < (high - low) * 1e-9 else value) for value in values]


def _resample(points: Sequence[tuple[float, float]], width: int) -> list[float]:
    """One value per column: the mean of its points, else linear interpolation between its neighbors."""
    first, span = points[0][0], points[-1][0] - points[0][0]
    sums, counts = [0.0] * width, [0] * width
    for step, value in points:
        column = min(width - 1, int((step - first) / span * (width - 1) + 0.5))
        sums[column] += value
        counts[column] += 1
    known = [column for column in range(width) if counts[column]]
    values = [0.0] * width
    for left, right in zip(known, [*known[1:], known[-1]], strict=True):
        from_value, to_value = sums[left] / counts[left], sums[right] / counts[right]
        for column in range(left, right):
            values[column] = from_value + (to_value - from_value) * (column - left) / (right - left)
    values[known[-1]] = sums[known[-1]] / counts[known[-1]]
    return values


def _row(value: float, low: float, high: float, height: int) -> int:
    """The line for a value; 0 is the top."""
    if high <= low:
        return height // 2
    return min(height - 1, max(0, round((high - value) / (high - low) * (height - 1))))


def _line(rows: Sequence[int], height: int, glyphs: dict[str, str]) -> list[list[str]]:
    """The canvas with horizontal pieces, and vertical ones where the curve rises or falls."""
    canvas = [[" "] * len(rows) for _ in range(height)]
    for column, row in enumerate(rows):
        before = rows[column - 1] if column else row
        if row == before:
            canvas[row][column] = glyphs["flat"]
            continue
        falls = row > before
        canvas[before][column] = glyphs["down_from"] if falls else glyphs["up_from"]
        canvas[row][column] = glyphs["down_to"] if falls else glyphs["up_to"]
        for between in range(min(before, row) + 1, max(before, row)):
            canvas[between][column] = glyphs["wall"]
    return canvas
