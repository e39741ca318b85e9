"""Extracts steps and metric values from program output.

With a pattern (a regular expression with named groups, among them `step`), only its matches count. Without one: JSON objects
with a step, and plain lines with a step or an epoch ("step 12: loss 0.3", "epoch 3/20 val_loss=0.1").

A program may print anything, so each line is processed in time linear in its length. In the regular expressions here, no
two repeats that can match the same text are adjacent or nested; tests/unit/test_hostile_text.py checks it.
"""

from __future__ import annotations

import json
import re

from trainmaster.agent.transport.point_values import STEP_MAX, is_step, is_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.metrics.patterns import Search

    Found = Optional[tuple[Optional[int], dict[str, float]]]

LINE_MAX = 4096  # bytes of a line that are parsed
JSON_MAX = 65536  # bytes of a line that is a JSON object; of a longer one only the first entries are parsed

_STEP_KEYS = ("step", "global_step", "iteration", "iter")
_FILE = r"(?:-step=\d{1,15})?(?:-v\d{1,9})?\.[A-Za-z]"  # in a file name (epoch=3-step=320.ckpt) a step is no progress
_STEP = re.compile(
    r"(?<![A-Za-z_\d.])(?:global[_ ])?(step|iteration|iter|epoch)\s*(?:[:=#]\s*)?(?:\[\s*)?(\d{1,15})"
    rf"(?!\.?\d|{_FILE})",
    re.IGNORECASE,
)
_NUMBER = r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|NaN|inf|Inf|Infinity)\b)"
_PAIR = re.compile(
    r"(?<![\w./-])(?:(train|training|val|valid|validation|eval|test|dev)\s+)?([A-Za-z][\w./-]*)"
    rf"(\s*[:=]\s*|\s+)({_NUMBER})(?=%?\.?(?:[\s,;|)\]}}]|$))"
)
_NOT_METRICS = frozenset(
    [
        *("step", "global_step", "iteration", "iter", "epoch", "rank", "of", "in", "at", "to", "for", "from", "after", "took"),
        *(
            "by",
            "on",
            "is",
            "with",
            "the",
            "and",
            "or",
            "than",
            "best",
            "version",
            "line",
            "seed",
            "pid",
            "port",
            "gpu",
            "cuda",
        ),
        *("node", "world", "worker", "batch_size", "v_num"),
    ]
)


class Parser:
    """Parses the lines of one rank, in order."""

    def __init__(self, pattern: Optional[Search] = None) -> None:
        self._pattern = pattern
        self._steps_seen = False  # epochs count as steps only until a step was seen

    def parse(self, line: bytes) -> Found:
        """(step or None, values) of a line; None if it has neither."""
        if self._pattern is not None:
            return self._by_pattern(_cut(line))
        stripped = line.strip()
        if is_long_json(line):
            return self._by_json(stripped[: stripped.rfind(b",", 0, JSON_MAX)] + b"}")
        if stripped[:1] == b"{" and stripped[-1:] == b"}":
            return self._by_json(stripped)
        lowered = line[:LINE_MAX].lower()
        if b"step" in lowered or b"epoch" in lowered or b"iter" in lowered:
            return self._plain(_cut(line))
        return None

    def _by_pattern(self, line: str) -> Found:
        assert self._pattern is not None
        match = self._pattern.search(line)
        if match is None:
            if "step" in self._pattern.groupindex:
                return None
            plain = self._step(line)[1]
            return None if plain is None else (plain, {})
        groups = match.groupdict()
        text = groups.pop("step", None)
        step = _number(text)
        values = {name: value for name, value in ((name, _number(text)) for name, text in groups.items()) if value is not None}
        return (int(step) if step is not None and abs(step) < STEP_MAX else self._step(line)[1]), values

    def _by_json(self, line: bytes) -> Found:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
        step = next((found[key] for key in _STEP_KEYS if is_step(found.get(key))), None)
        if step is not None:
            self._steps_seen = True
        elif is_step(found.get("epoch")) and not self._steps_seen:
            step = found["epoch"]
        else:
            return None
        values = {str(name): float(value) for name, value in found.items() if name not in _STEP_KEYS and is_value(value)}
        return int(step), values

    def _plain(self, line: str) -> Found:
        named, step = self._step(line)
        if not named:
            return None
        values: dict[str, float] = {}
        for which, name, between, text in _PAIR.findall(line):
            exact = not text.lstrip("+-").isdigit()
            if name.lower() in _NOT_METRICS or (not between.strip() and not exact):
                continue
            value = _number(text)
            if value is not None:
                values.setdefault(f"{which}_{name}" if which else name, value)
        return step, values

    def _step(self, line: str) -> tuple[bool, Optional[int]]:
        """(whether a line names a step or an epoch, the step). An epoch counts as a step only until a step was seen."""
        epoch: Optional[int] = None
        for match in _STEP.finditer(line):
            if match.group(1).lower() != "epoch":
                self._steps_seen = True
                return True, int(match.group(2))
            epoch = int(match.group(2)) if epoch is None else epoch
        return epoch is not None, None if self._steps_seen else epoch


def is_long_json(line: bytes) -> bool:
    """Whether a line, or the first piece of one, begins like a JSON object and is longer than what is parsed."""
    return len(line) >= JSON_MAX and line.lstrip()[:1] == b"{" and not (len(line) == JSON_MAX and line.endswith(b"}"))


def _cut(line: bytes) -> str:
    """A line as text. A long line is cut between words, because a number cut in two is another number."""
    if len(line) > LINE_MAX:
        line = line[:LINE_MAX]
        line = line[: max(line.rfind(b" "), line.rfind(b"\t")) + 1]
    return line.decode(errors="replace")


def _number(text: Optional[str]) -> Optional[float]:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
