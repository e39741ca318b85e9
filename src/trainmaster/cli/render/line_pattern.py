"""Suggests a `metrics.pattern` that reads a printed line, for programs whose lines are not read by themselves."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from trainmaster.agent.metrics.line_text import without_prefix
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.patterns import compiled
from trainmaster.spec.fields.values import pattern_fault

_LINE_MAX = 500  # characters
_VALUES_MAX = 8
_LINES_MIN = 3  # in which a number grows that is a step by nothing else
_NOT_FINITE = "nan|NaN|inf|Inf"
_FOUND = re.compile(  # also the 3 of 3/10, which in a bar is told below
    r"(?<![\w.:/@,-])(?:\d+(?=/(?:\d{1,12}|∞)(?![\w:/.-]| \[))"
    rf"|[-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|{_NOT_FINITE})(?![\w:/.-]*[\w/])(?!,\d))",
    re.ASCII,
)
_UNITS = re.compile(r" ?(?:(?:s|ms|us|it/s|s/it|sec|seconds|[KMG]i?B)\b|(?:min|h)\b(?! {0,2}[:=]? {0,2}[-+.\d]))")
_TIMES = ("s", "ms", "us", "ns", "sec", "secs", "seconds")  # after a number: no name of the next one
_MARGIN = r"^\s*"  # before a number that the line begins with: it may stand after words in others
_VALUE = rf"[-+.\deE]+|{_NOT_FINITE}"
_MARKS = re.compile(r"[\W_]+")
_BETWEEN = " \t:=([|#"  # a name and its number
_BETWEEN_MAX = 5  # a bar, and two blanks on each side
_IN_BRACKETS = re.compile(r"\[[A-Za-z][\w/]{0,60}\]\Z", re.ASCII)  # [val] 0.5
_BAR = re.compile(r"%\|[^|]{0,400}\| {0,3}\d{1,12}/\d{1,12} \[")  # of tqdm
_BAR_STEP = r"\|\s*(?P<step>\d+)/\d+ \["  # where it is, then its times
_QUOTED = re.compile(r"['\"]([A-Za-z][\w/]{0,60})['\"],?\Z", re.ASCII)  # ('average_q', 0.5)
_OPENING = ("[", "(", "{", "=", ":", "|", "<")
_STEPS = (
    "step", "steps", "iter", "iters", "iteration", "it", "batch", "update", "epoch", "ep", "episode", "generation", "gen",
    "round",
)  # fmt: skip
_FILLERS = ("is", "was", "now")  # log-likelihood is -2.5; the best is now 3.5
_PLACES = ("gpu", "cuda", "device", "rank", "node", "worker", "process", "pid", "seed", "fold", "version")  # no step


class _Number(NamedTuple):
    """A number of the line: its place, the word before it, and whether it has no fraction."""

    start: int
    end: int
    name: str
    value: float
    whole: bool

    @property
    def word(self) -> str:
        """The last part of the name, in lower case."""
        return self.name.lower().rpartition("/")[2]


def suggested(
    line: str, later: Sequence[str] = (), given: str | None = None, read: Sequence[str] = (), bars: Sequence[str] = ()
) -> str | None:
    """A pattern that finds the step and the first values of `line`; None if it has no number with a fraction, or is too long.

    None also if it is such a number and nothing else, as of a bar that is folded into lines: the pattern would match others.
    A value without a word before it is called `value_1` and so on, by its place. `later`: lines of the same shape that follow;
    a number without a word is a step only if it grows in them. `given`: a pattern that the suggested one has as an alternative.
    `read`: lines that are read without it; it matches none of them, as it would read them otherwise. `bars`: others, which it
    reads too if the line is a bar.
    """
    text = without_prefix(line.strip())
    if len(text) > _LINE_MAX:
        return None
    numbers = list(_numbers(text))
    step = _step(text, numbers, [list(_numbers(without_prefix(one.strip()))) for one in later])
    bar = _BAR.search(text) if step is None else None
    inside = _in_bar(text) if bar is not None else []
    values = inside or [one for one in numbers if not one.whole][:_VALUES_MAX]  # else its description has them
    if not values or values[0].end - values[0].start == len(text):
        return None
    taken = set() if given is None else set(compiled(given).groupindex)
    step = None if "step" in taken else step
    if bar is None:
        patterns = list(_patterns(text, values, step, taken))
    else:
        patterns = [_of_bars([text, *bars], taken) if inside else _of_description(text, values, taken)]
    for pattern in patterns:
        both = pattern if given is None else f"{given}|{pattern}"
        found = Parser(compiled(pattern), automatic=False).parse(line.encode())
        if found is not None and found[1] and not any(map(compiled(pattern).search, read)) and not pattern_fault(both):
            return both
    return None


def _patterns(text: str, values: list[_Number], step: _Number | None, taken: set[str]) -> Iterator[str]:
    """The best first: from the word of the first number on, then from the beginning of the text."""
    wanted = sorted([*values, *([step] if step else [])])
    for begin, margin in dict.fromkeys(((_begin(text, wanted[0]), _MARGIN), (0, _MARGIN), (0, ""))):
        pattern = _pattern(text, begin, wanted, step, taken)
        if pattern.startswith("(?P<") and len(wanted) == 1:
            pattern += _varying(text[wanted[0].end :])  # else it would match any line that begins with a number
        yield margin + pattern if text[begin : begin + 1].isdigit() else pattern


def _of_bars(bars: Sequence[str], taken: set[str]) -> str:
    """A pattern for the values in bars that name no step: their position may be one. Of those with one name, for the first."""
    seen, patterns = set(taken), list[str]()
    for text in bars:
        values = _in_bar(text)
        if values and (not patterns or seen.isdisjoint(one.name for one in values)):
            patterns.append(_pattern(text, _begin(text, values[0]), values, None, seen))
            seen |= {*compiled(patterns[-1]).groupindex, *(one.name for one in values)}
    either = patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"
    return either if "step" in taken else f"{_BAR_STEP}.*?{either}"


def _of_description(text: str, values: list[_Number], taken: set[str]) -> str:
    """A pattern for the values before such a bar: `loss: 0.5:  10%|█ | 6/60 [`."""
    pattern = _pattern(text, _begin(text, values[0]), values, None, taken)
    return pattern if "step" in taken else f"{pattern}.*?{_BAR_STEP}"


def _in_bar(text: str) -> list[_Number]:
    """The first values of a bar."""
    bar = _BAR.search(text)
    return [] if bar is None else [one for one in _numbers(text) if not one.whole and one.start > bar.end()][:_VALUES_MAX]


def _numbers(text: str) -> list[_Number]:
    found = []
    for match in _FOUND.finditer(text):
        whole = match[0].isdecimal()
        if not _UNITS.match(text, match.end()) and not (whole and text.startswith("%", match.end())):  # 3%: how far it is
            name = _name(text[: match.start()])
            found.append(_Number(match.start(), match.end(), name, float(match[0]), whole))
    return found


def _name(before: str) -> str:
    """The word at the end of `before`, as `train/loss`. Digits may follow its letters."""
    text = before.rstrip(_BETWEEN)
    if len(before) - len(text) > _BETWEEN_MAX:
        return ""
    quoted = _QUOTED.search(text[-64:])
    if quoted is not None:
        return quoted[1]
    text = text[:-1] if _IN_BRACKETS.search(text[-63:]) else text
    at = len(text)
    while at and (text[at - 1] in "_/" or (text[at - 1].isascii() and text[at - 1].isalnum())):
        at -= 1
    name = text[at:].lstrip("_/0123456789")
    if name in _TIMES and text[:at].rstrip()[-1:].isdigit():
        return ""  # 24.4 ms  128.0
    return _name(text[:at]) if name in _FILLERS and text[:at].strip() else name


def _step(text: str, numbers: list[_Number], later: list[list[_Number]]) -> _Number | None:
    """The number that a word calls a step, else the first that changes of those without a fraction that the line begins with.

    Else the only one without a fraction that grows: in a list, or between a word and its value.
    """
    named = [one for word in _STEPS for one in numbers if one.whole and one.word == word]
    begins = bool(numbers) and _MARKS.sub("", text[: numbers[0].start]) == _MARKS.sub("", numbers[0].name)
    leading = list(takewhile(lambda one: one.whole and one.word not in _PLACES, numbers if begins else ()))
    lines = [numbers, *later]
    moving = [at for at, one in enumerate(leading) if _changes(at, lines) or (one.name and not later)]
    first = moving[0] if moving else len(leading)
    growing = [one for at, one in enumerate(leading) if at in moving and (one.name or (at <= first and _grows(at, lines)))]
    alone = _only_growing(text, lines) if first == len(leading) or growing else []  # else an epoch, and the batch in it
    return next(iter([*named, *growing, *alone]), None)


def _only_growing(text: str, lines: list[list[_Number]]) -> list[_Number]:
    """The number that alone is larger in each later line; [] if another is, too, or if it may be a value of its word.

    `text`: the first line. Tacotron 2 prints `Train loss 36 0.875`. Of a number that does not count, two lines show little.
    """
    first, growing = lines[0], []
    if len(lines) >= _LINES_MIN and {len(line) for line in lines} == {len(first)}:
        growing = [at for at, one in enumerate(first) if one.whole and one.word not in _PLACES and _grows(at, lines)]
    if len(growing) != 1 or not all(line[growing[0]].whole for line in lines):
        return []
    one, after = first[growing[0]], first[growing[0] + 1 : growing[0] + 2]
    return [one] if not one.name or any(text[one.end : value.start].isspace() for value in after) else []


def _grows(at: int, lines: list[list[_Number]]) -> bool:
    """Whether the number at a place is larger in each later line."""
    values = [line[at].value for line in lines if at < len(line)]
    return len(values) > 1 and all(one < after for one, after in pairwise(values))


def _changes(at: int, lines: list[list[_Number]]) -> bool:
    """Whether the number at a place is not the same in all lines."""
    return len({line[at].value for line in lines if at < len(line)}) > 1


def _pattern(text: str, begin: int, wanted: list[_Number], step: _Number | None, taken: set[str]) -> str:
    pattern, at, used = "", begin, {"step", *map(str.lower, taken)}
    for number in wanted:
        pattern += _between(text[at : number.start], number.name)
        if number is step:
            pattern += r"(?P<step>\d+)"
        else:
            stem = number.name.replace("/", "_") or "value"
            name = stem if number.name and stem.lower() not in used else f"{stem}_{len(used)}"
            while name.lower() in used:
                name += "_2"
            used.add(name.lower())
            pattern += f"(?P<{name}>{_VALUE})"
        at = number.end
    return pattern


def _begin(text: str, first: _Number) -> int:
    """Where the pattern begins: at the word of its first number, or at the beginning of the text."""
    return text.rindex(first.name, 0, first.start) if first.name else 0  # and fillers after it


def _between(text: str, name: str) -> str:
    """A pattern for the text between two numbers. Digits in the name of the second belong to it."""
    before, own, after = text.rpartition(name) if name else ("", "", text)
    return f"{_varying(before)}{re.escape(own)}{_varying(after)}"


def _varying(text: str) -> str:
    """A pattern for a text in which numbers may change."""
    pattern, before = "", ""
    for part in filter(None, re.split(r"(\s+|\d[\w.]*)", text)):
        if part.isspace():
            pattern += r"\s*" if before[-1:] in _OPENING else r"\s+"  # `[   100,` is `[100000,` later
        else:
            pattern += r"\d\S*" if part[:1].isdigit() else re.escape(part)
        before = part
    return pattern
