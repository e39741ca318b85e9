"""The words of a line, read as a shell reads them, with the place of each character. Pure, and linear in the input.

Tolerant: an open quote, or a text that is no line for a shell, is read, too.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

_GAP = r"(?P<gap>[^\S\n]+)|(?P<end>\n)|(?P<joined>\\\r?\n)"
_QUOTED = r"""|\\(?P<escaped>.?)|'(?P<single>[^']*)'?|"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"?"""
# In a shell, an operator ends a word, and `#` begins a comment. In a text, a quote after a letter is an apostrophe.
_SHELL = re.compile(
    _GAP + r"""|(?P<operator>[;&|<>()]+)|(?P<comment>(?<![^\s;&|()])#[^\n]*)|(?P<plain>[^\s"'\\;&|<>()]+)""" + _QUOTED,
    re.DOTALL,
)
_TEXT = re.compile(_GAP + r"""|(?P<plain>(?:[^\s"'\\]|(?<=\w)["'])+)""" + _QUOTED, re.DOTALL)
_ESCAPE = re.compile(r'\\(["\\$`\n])')  # within double quotes
_QUOTES = {"single": "'", "double": '"'}
_BARE, _BETWEEN = ("plain", "comment"), ("gap", "end", "operator")


class _Part(NamedTuple):
    """Characters of a word, and where they stand in the line. An escaped one has its backslash there."""

    text: str
    start: int
    end: int
    quote: str


class Word:
    """A word: its `value` has no quotes and backslashes. `begins`: it is the first one of a command or of a line."""

    __slots__ = ("_end", "_ends", "_parts", "_start", "begins", "quoted", "value")

    def __init__(self, found: Sequence["re.Match[str]"], begins: bool) -> None:
        self._start, self._end, self.begins = found[0].start(), found[-1].end(), begins
        self.quoted = len(found) > 1 or found[0].lastgroup not in _BARE
        if not self.quoted:
            self.value = found[0][0]
            return
        self._parts = [part for one in found for part in _parts(one) if part.text]
        self._ends = list(accumulate(len(part.text) for part in self._parts))
        self.value = "".join(part.text for part in self._parts)

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Where `value[start:end]`, which is not empty, stands in the line: with the quotes that are around nothing else."""
        if start == 0 and end == len(self.value):
            return self._start, self._end
        if not self.quoted:
            return self._start + start, self._start + end
        one, other = bisect_right(self._ends, start), bisect_right(self._ends, end - 1)
        first, last = self._parts[one], self._parts[other]
        left, right = first.start + start - (self._ends[one] - len(first.text)), last.end - (self._ends[other] - end)
        opens = left == first.start and (one == 0 or self._parts[one - 1].end < first.start)
        closes = right == last.end and (last is self._parts[-1] or self._parts[other + 1].start > last.end)
        if (first.quote and not opens) or (last.quote and not closes):
            return left, right
        return left - len(first.quote), min(right + len(last.quote), self._end)


def words(line: str, shell: bool) -> Iterator[Word]:
    """The words of a line for a shell, or of a text that may contain such a line."""
    word: list[re.Match[str]] = []
    begins = True
    for found in (_SHELL if shell else _TEXT).finditer(line):
        if found.lastgroup not in _BETWEEN:
            if found.lastgroup != "joined":
                word.append(found)
            continue
        if word:
            yield Word(word, begins)
            word, begins = [], False
        begins = begins or found.lastgroup != "gap"
    if word:
        yield Word(word, begins)


def _parts(found: "re.Match[str]") -> Iterator[_Part]:
    kind, line = found.lastgroup or "", found.string
    start, end = found.span(kind)
    if kind == "double":
        for escape in _ESCAPE.finditer(line, start, end):
            yield _Part(line[start : escape.start()], start, escape.start(), '"')
            yield _Part(" " if escape[1] == "\n" else escape[1], *escape.span(), '"')
            start = escape.end()
    yield _Part(line[start:end], found.start() if kind == "escaped" else start, end, _QUOTES.get(kind, ""))
