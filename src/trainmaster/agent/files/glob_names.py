"""Matches one name against one component of a glob: `*`, `?`, `[…]`, `{step}` for digits. Never backtracks.

A component is split at `*` into pieces of fixed length. The first must be at the start of a name and the last at its end.
Those between are searched one after the other, each at its earliest position. That is O(name × component).
"""

import re
from typing import Dict, List, Optional, Pattern, Tuple

STEP = "{step}"
_ANY = r"[^/]"
_NONE = r"(?!)"


def is_wild(component: str) -> bool:
    """Whether it contains a wildcard."""
    return any(mark in component for mark in ("*", "?", "[", STEP))


def literal(path: str) -> str:
    """A pattern that matches this path: what would be a wildcard in it stands for any character."""
    return re.sub(r"[][*?{}]", "?", path)


class Component:
    """One component of a pattern. `steps`: how many `{step}` it contains; the first one gives the step."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.wild = is_wild(text)
        self.steps = text.count(STEP)
        before, _, self._rest = text.partition(STEP)
        self._hidden = not is_wild(text[:1]) and not text.startswith(STEP)  # only then it matches a leading dot
        self._before = _Pieces(before)
        self._behind = _Pieces(self._rest) if self.steps else None

    def matches(self, name: str) -> bool:
        """Whether `name` matches. A leading dot matches only if the component begins with a literal character."""
        if not self.wild:
            return name == self.text
        if self.text == "**":
            return not name.startswith(".")
        if self._behind is not None:
            return self.step(name) is not None
        return (self._hidden or not name.startswith(".")) and self._before.fit(name)

    def step(self, name: str) -> Optional[str]:
        """The digits that `{step}` matches: the earliest, and as many as possible. None if `name` does not match."""
        if self._behind is None or (not self._hidden and name.startswith(".")):
            return None
        if self.steps > 1:  # all must be the same digits, and only whole numbers are tried
            numbers = dict.fromkeys(re.findall("[0-9]+", name))
            return next((digits for digits in numbers if self.given(digits).matches(name)), None)
        fits: Dict[int, bool] = {}
        for begin, end in _runs(name):
            if not self._before.fit(name[:begin]):
                continue
            for at in range(end, begin, -1):
                if at not in fits:
                    fits[at] = self._behind.fit(name[at:])
                if fits[at]:
                    return name[begin:at]
        return None

    def given(self, digits: str) -> "Component":
        """This component with `{step}` replaced by digits."""
        return Component(self.text.replace(STEP, digits))


def _runs(name: str) -> List[Tuple[int, int]]:
    """(start, end of the digit run) for each digit of the name."""
    found: List[Tuple[int, int]] = []
    for match in re.finditer("[0-9]+", name):
        found += [(begin, match.end()) for begin in range(match.start(), match.end())]
    return found


class _Pieces:
    """A text with wildcards, split at its stars."""

    def __init__(self, text: str) -> None:
        pieces = _cut(text)
        self._patterns: List[Pattern[str]] = [re.compile("".join(piece), re.DOTALL) for piece in pieces]
        self._lengths = [len(piece) for piece in pieces]

    def fit(self, name: str) -> bool:
        """Whether it matches all of `name`."""
        if len(self._patterns) == 1:
            return self._patterns[0].fullmatch(name) is not None
        last = len(name) - self._lengths[-1]
        match = self._patterns[0].match(name)
        for pattern in self._patterns[1:-1]:
            if match is None:
                return False
            match = pattern.search(name, match.end())
        return match is not None and match.end() <= last and self._patterns[-1].match(name, last) is not None


def _cut(text: str) -> List[List[str]]:
    """For each piece between stars, the regular expressions of its characters."""
    pieces: List[List[str]] = [[]]
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        end = text.find("]", at + 1) if character == "[" else -1
        if character == "*":
            pieces.append([])
        elif character == "?":
            pieces[-1].append(_ANY)
        elif end > 0:
            pieces[-1].append(_class(text[at:end]))
            at = end + 1
        else:
            pieces[-1].append(re.escape(character))
    return pieces


def _class(inside: str) -> str:
    """The regular expression of a bracket expression `a-c1` or `!a-c1`; a reversed range matches nothing."""
    negative = inside[:1] in ("!", "^")
    inside = inside[1:] if negative else inside
    members: List[str] = []
    at = 0
    while at < len(inside):
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            if inside[at] <= inside[at + 2]:
                members.append(f"{re.escape(inside[at])}-{re.escape(inside[at + 2])}")
            at += 3
        else:
            members.append(re.escape(inside[at]))
            at += 1
    if not members:
        return _ANY if negative else _NONE
    return f"[{'^' if negative else ''}{''.join(members)}]"
