"""Decodes JSON in pieces: no single call of the decoder, which holds the interpreter lock, takes more than milliseconds.

A value that fits a window is decoded by the standard library in one call. A larger list, object or string is split. The
text is never joined as a whole: joining 64 MiB holds the lock for 50 ms. The cost is linear in the text.
"""

import codecs
import contextlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

_WINDOW_MIN, _WINDOW_MAX = 256, 256 * 1024  # characters
_READ_MIN = 64 * 1024  # characters: read ahead beyond the window
_GROWTH = 8
_TAIL = 2  # characters: a number at the window's end may continue behind it; even `1` before `e+`
_DEPTH_MAX = 64  # nesting of values that do not fit a window
_BLANK = re.compile(r"[ \t\n\r]*")


def decode(parts: Iterable[bytes], errors: str, decoder: json.JSONDecoder, settle: Callable[[Any], Any]) -> Any:
    """Decode the value in the UTF-8 text that `parts` form together; `errors` as in `bytes.decode`.

    `settle` gets every part of the value that holds an escaped character, and returns its replacement. Parts are requested
    when needed and dropped once read. Raises: ValueError (including UnicodeError), RecursionError.
    """
    text = _Text(parts, errors)
    reader = _Reader(text, decoder, settle)
    value, at = reader.value(text.skip(0), 0)
    at = text.skip(at)
    if not text.is_end(at):
        raise text.error("Extra data", at)
    return value


class _Text:
    """A text that comes in parts and is read forward. Text before the reader's position is dropped."""

    def __init__(self, parts: Iterable[bytes], errors: str) -> None:
        self._parts = iter(parts)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)
        self._kept = ""
        self._start = 0  # where `_kept` begins in the text
        self._ended = False
        self._line, self._line_start = 1, 0  # of `_start`

    def part(self, at: int, size: int) -> str:
        """Up to `size` characters from `at` on; fewer at the end of the text. `at` never decreases."""
        if at + size > self._start + len(self._kept):
            self._read(at, size)
        return self._kept[at - self._start : at - self._start + size]

    def is_end(self, at: int) -> bool:
        """Whether the text ends at `at`."""
        return not self.part(at, 1)

    def skip(self, at: int) -> int:
        """The next position that is not blank."""
        while True:
            found = _BLANK.match(self._kept, at - self._start)
            at = self._start + found.end() if found is not None else at
            if at < self._start + len(self._kept) or self.is_end(at):
                return at

    def error(self, message: str, at: int) -> ValueError:
        """The error for this position, worded like the standard library's."""
        seen = at - self._start
        line = self._line + self._kept.count("\n", 0, seen)
        line_start = self._start + self._kept.rfind("\n", 0, seen) + 1 if line > self._line else self._line_start
        return ValueError(f"{message}: line {line} column {at - line_start + 1} (char {at})")

    def _read(self, at: int, size: int) -> None:
        """Drop text before `at` and read on until `size` characters are there. Reading far ahead keeps the cost linear."""
        if self._ended:
            return
        read, wanted = [self._kept[at - self._start :]], max(2 * size, _READ_MIN)
        left = wanted - len(read[0])
        while left > 0 and not self._ended:
            part = next(self._parts, None)
            self._ended = part is None
            read.append(self._decoder.decode(part or b"", self._ended))
            left -= len(read[-1])
        self._let_go(at - self._start)
        self._kept, self._start = "".join(read), at

    def _let_go(self, count: int) -> None:
        lines = self._kept.count("\n", 0, count)
        if lines:
            self._line += lines
            self._line_start = self._start + self._kept.rfind("\n", 0, count) + 1


class _Reader:
    """Decodes one text."""

    def __init__(self, text: _Text, decoder: json.JSONDecoder, settle: Callable[[Any], Any]) -> None:
        self._text = text
        self._decoder = decoder
        self._settle = settle
        self._window = _WINDOW_MIN  # grows and shrinks: neighboring values are often of similar size

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        """Decode the value that begins at `at`; returns it and its end."""
        size = self._window
        while True:
            part = self._text.part(at, size)
            whole = len(part) < size
            try:
                value, end = self._decoder.raw_decode(part)
            except json.JSONDecodeError as error:
                if whole:
                    raise self._text.error(error.msg, at + error.pos) from error
            except ValueError as error:  # Python rejects very long integers: converting them takes quadratic time
                raise ValueError("it holds a number of thousands of digits") from error
            else:
                if whole or end + _TAIL < len(part):
                    self._window = min(max(_WINDOW_MIN, 2 * end), _WINDOW_MAX)
                    return (self._settle(value) if part.find("\\u", 0, end) >= 0 else value), at + end
            if size >= _WINDOW_MAX:
                return self._large(part[0], at, depth)
            size = min(size * _GROWTH, _WINDOW_MAX)

    def _large(self, first: str, at: int, depth: int) -> tuple[Any, int]:
        """Decode a value that does not fit a window."""
        if depth >= _DEPTH_MAX:
            raise RecursionError
        match first:
            case "{":
                return self._members(at, depth + 1)
            case "[":
                return self._items(at, depth + 1)
            case '"':
                return self._string(at + 1)
        raise self._text.error("Expecting value", at)

    def _items(self, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = self._text.skip(at + 1)
        while True:  # the list is not empty: an empty one would fit a window
            item, at = self.value(at, depth)
            found.append(item)
            at, more = self._next(at, "]")
            if not more:
                return found, at

    def _members(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = self._text.skip(at + 1)
        while True:
            name, at = self.value(at, depth)
            at = self._text.skip(at)
            if not isinstance(name, str) or self._text.part(at, 1) != ":":
                raise self._text.error("Expecting property name and ':'", at)
            found[name], at = self.value(self._text.skip(at + 1), depth)
            at, more = self._next(at, "}")
            if not more:
                return found, at

    def _next(self, at: int, closing: str) -> tuple[int, bool]:
        """The position behind a comma, and True; or behind the closing bracket, and False."""
        at = self._text.skip(at)
        sign = self._text.part(at, 1)
        if sign == closing:
            return at + 1, False
        if sign != ",":
            raise self._text.error(f"Expecting ',' or '{closing}'", at)
        return self._text.skip(at + 1), True

    def _string(self, at: int) -> tuple[str, int]:
        """Decode a string from behind its opening quote on, in pieces that do not split an escape sequence."""
        found: list[str] = []
        escaped = False
        while True:
            part = self._text.part(at, _WINDOW_MAX)
            escaped = escaped or "\\u" in part
            try:
                piece, end = self._decoder.raw_decode('"' + part)
                found.append(piece)
                text = "".join(_joined(found))
                return (self._settle(text) if escaped else text), at + end - 1
            except json.JSONDecodeError:
                cut = _cut(part)
                if len(part) < _WINDOW_MAX or not cut:
                    raise self._text.error("Unterminated string", at) from None
            found.append(self._decoder.decode('"' + part[:cut] + '"'))
            at += cut


def _cut(part: str) -> int:
    """The last position in `part` that is not inside an escape sequence."""
    last = part.rfind("\\", len(part) - 6)
    if last < 0:
        return len(part)
    run = last + 1 - len(part[: last + 1].rstrip("\\"))
    if run % 2:
        return last
    return last + 1


def _joined(pieces: list[str]) -> list[str]:
    """`pieces`, with surrogate pairs that a cut separated joined again."""
    for at in range(1, len(pieces)):
        first, second = pieces[at - 1][-1:], pieces[at][:1]
        if "\ud800" <= first <= "\udbff" and "\udc00" <= second <= "\udfff":
            pair = chr(0x10000 + ((ord(first) - 0xD800) << 10) + ord(second) - 0xDC00)
            pieces[at - 1], pieces[at] = pieces[at - 1][:-1] + pair, pieces[at][1:]
    return pieces


def dismantle(value: Any) -> None:
    """Empty a large value piece by piece. Freeing it at once would hold the interpreter lock as long as decoding it at once."""
    with contextlib.suppress(RecursionError):
        if isinstance(value, list):
            while value:
                dismantle(value.pop())
        elif isinstance(value, dict):
            while value:
                dismantle(value.popitem()[1])
