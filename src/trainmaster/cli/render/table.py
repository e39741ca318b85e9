"""Draws aligned tables, fitted to a terminal, or in full if the output is piped. Pure."""

from collections.abc import Sequence
from unicodedata import category, east_asian_width

from trainmaster.cli.render.human import printable

_GAP = "  "
_FLOOR = 8  # smallest width of a shortened cell
_NO_WIDTH = ("Mn", "Me", "Cf")  # categories of characters that are drawn onto the one before, or not at all


def width_of(text: str) -> int:
    """The number of terminal columns of `text`."""
    if text.isascii():
        return len(text)
    return sum(map(_width_of_one, text))


def _width_of_one(character: str) -> int:
    if category(character) in _NO_WIDTH:
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def fit(text: str, width: int) -> str:
    """`text` cut to at most `width` columns, ending with `…`."""
    if width_of(text) <= width:
        return text
    kept, left = [], width - 1
    for character in text:
        left -= _width_of_one(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def draw(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, spare: Sequence[int] = ()) -> list[str]:
    """Aligned lines. With a `width`, first the last column is shortened, then columns in `spare` are dropped one by one, then
    the widest are shortened, until every line fits; lines that are too long even so are cut. None: nothing is shortened.

    Line breaks in a cell become blanks, and other control characters are shown as text.
    """
    clean = [[printable(" ".join(cell.split())) for cell in row] for row in rows]
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
    lines = [_line(line, [widths[at] for at in kept], [numeric[at] for at in kept]) for line in picked]
    return lines if width is None else [fit(line, width) for line in lines]


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
