"""Draws aligned tables, fitted to a terminal, or in full if the output is piped. Pure."""

from collections.abc import Sequence
from unicodedata import combining, east_asian_width

_GAP = "  "
_FLOOR = 8  # smallest width of a shortened cell


def width_of(text: str) -> int:
    """The number of terminal columns of `text`."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def fit(text: str, width: int) -> str:
    """`text` cut to at most `width` columns, ending with `…`."""
    if width_of(text) <= width:
        return text
    kept = ""
    for character in text:
        if width_of(kept) + width_of(character) > width - 1:
            break
        kept += character
    return kept.rstrip() + "…"


def draw(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, spare: Sequence[int] = ()) -> list[str]:
    """Aligned lines. With a `width`, first the last column is shortened, then columns in `spare` are dropped one by one, then
    the widest are shortened, until every line fits. None: nothing is shortened."""
    clean = [[" ".join(cell.split()) for cell in row] for row in rows]
    columns = list(zip(headers, *clean, strict=True))
    widths = [max(width_of(cell) for cell in column) for column in columns]
    kept = list(range(len(columns)))
    if width is not None:
        kept = _kept(widths, width, spare)
        over = sum(widths[at] for at in kept) + len(_GAP) * (len(kept) - 1) - width
        give = min(max(0, over), max(0, widths[-1] - _FLOOR))
        widths[-1], over = widths[-1] - give, over - give
        while over > 0 and (widest := max(widths[at] for at in kept)) > _FLOOR:
            widths[max(at for at in kept if widths[at] == widest)] -= 1  # prefer the last one: text, not ids
            over -= 1
    numeric = [_is_numeric(column[1:]) for column in columns]
    picked = [[line[at] for at in kept] for line in [list(headers), *clean]]
    return [_line(line, [widths[at] for at in kept], [numeric[at] for at in kept]) for line in picked]


def _kept(widths: Sequence[int], width: int, spare: Sequence[int]) -> list[int]:
    """The columns that fit beside a short last one, dropping those of `spare` as needed."""
    kept = list(range(len(widths)))
    for at in spare:
        if sum(widths[i] for i in kept[:-1]) + min(widths[-1], _FLOOR) + len(_GAP) * (len(kept) - 1) <= width:
            break
        kept.remove(at)
    return kept


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    parts = []
    for cell, width, right in zip(cells, widths, numeric, strict=True):
        shown = fit(cell, width)
        pad = " " * (width - width_of(shown))
        parts.append(pad + shown if right else shown + pad)
    return _GAP.join(parts).rstrip()


def _is_numeric(cells: Sequence[str]) -> bool:
    """Whether a column is right-aligned: it has numbers, or `-` for none."""
    told = [cell for cell in cells if cell != "-"]
    return bool(told) and all(cell[:1] in "0123456789-+." and cell[-1:].isdigit() and " " not in cell for cell in told)
