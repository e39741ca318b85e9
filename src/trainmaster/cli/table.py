"""Rows in columns: fitted to a terminal, or whole where the output is piped. Pure."""

from collections.abc import Sequence
from unicodedata import combining, east_asian_width

_GAP = "  "
_FLOOR = 8  # columns a shortened cell keeps at least


def width_of(text: str) -> int:
    """Terminal columns of `text`."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def fit(text: str, width: int) -> str:
    """`text` in at most `width` columns, its end given up for `…`."""
    if width_of(text) <= width:
        return text
    kept = ""
    for character in text:
        if width_of(kept) + width_of(character) > width - 1:
            break
        kept += character
    return kept.rstrip() + "…"


def draw(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Aligned lines. With a `width` the widest columns are shortened until every line fits; None leaves all whole."""
    clean = [[" ".join(cell.split()) for cell in row] for row in rows]
    columns = list(zip(headers, *clean, strict=True))
    widths = [max(width_of(cell) for cell in column) for column in columns]
    if width is not None:
        over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        while over > 0 and max(widths) > _FLOOR:
            widths[len(widths) - 1 - widths[::-1].index(max(widths))] -= 1  # the last of the widest: words, not ids
            over -= 1
    numeric = [all(_is_number(cell) for cell in column[1:]) and len(column) > 1 for column in columns]
    return [_line(line, widths, numeric) for line in [list(headers), *clean]]


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    parts = []
    for cell, width, right in zip(cells, widths, numeric, strict=True):
        shown = fit(cell, width)
        pad = " " * (width - width_of(shown))
        parts.append(pad + shown if right else shown + pad)
    return _GAP.join(parts).rstrip()


def _is_number(cell: str) -> bool:
    """Whether it belongs to the right edge of its column."""
    return cell == "-" or (cell[:1] in "0123456789-+." and cell[-1:].isdigit() and " " not in cell)
