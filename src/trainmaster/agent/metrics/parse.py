"""Extracts steps and metric values from program output.

With a pattern (a regular expression with named groups, among them `step`), only its matches count. Without one, a line is
read by the first of these rules that fits it: rows and columns of tables, objects (JSON, Python dictionaries), progress bars,
and plain lines with a step, an epoch or the name of a measured value.

A program may print anything, so each line is processed in time linear in its length. In the regular expressions, no two
repeats that can match the same text are adjacent or nested; tests/unit/test_hostile_text.py checks it.
"""

from __future__ import annotations

import re

from trainmaster.agent.metrics import bars, objects
from trainmaster.agent.metrics.counting import StepsOfEpochs, TrainerBar
from trainmaster.agent.metrics.line_text import LINE_MAX, cut, plain, without_prefix
from trainmaster.agent.metrics.pairs import Counter, counters, head, pairs, round_number, under
from trainmaster.agent.metrics.pairs import named as named_values
from trainmaster.agent.metrics.tables import Columns, Rows
from trainmaster.agent.metrics.vocabulary import EPOCH, RANKS, STEP, number
from trainmaster.agent.transport.point_values import STEP_MAX, is_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.metrics.patterns import Search

    Found = Optional[tuple[Optional[int], dict[str, float]]]

__all__ = ["JSON_MAX", "LINE_MAX", "Parser", "is_long_json"]

JSON_MAX = 65536  # bytes of a line that is a JSON object; of a longer one only the first entries are parsed

_WORDS = (  # a line without any of these says nothing
    b"step epoch iter episode round loss acc ppl perplex bleu rouge f1 auc iou map mse mae score reward return error rew learn"
    b" precision recall entropy nll psnr fid wer dice kl: kl= %|"
)
_HINTS = _WORDS.split()
_LOADING = re.compile(
    r"\b(?:load(?:ed|ing)?|resum(?:e|ed|ing)|restor(?:e|ed|ing)|start(?:ed|s|ing)?(?: training)? (?:from|at))\b", re.IGNORECASE
)
_STAGE = re.compile(r"step \d{1,6}(?:/\d{1,6})? {0,2}[:.)] {1,2}[A-Z][a-z]", re.IGNORECASE)  # Step 1: Loading data
_REPR = re.compile(r"\(?[A-Za-z_][\w.]{0,60}\)?:? ?[A-Za-z_]{0,60}\(")
_BEST_FOLLOWS = re.compile(r"best (?:iteration|epoch|step)(?: is)?:? {0,2}$", re.IGNORECASE)


class Parser:
    """Parses the lines of one rank, in order. `rule` names the rule that read the last line."""

    def __init__(self, pattern: Optional[Search] = None) -> None:
        self._pattern = pattern
        self._steps_seen = False  # epochs count as steps only until a step was seen
        self._step_word = ""  # the word of the last step
        self._progress_seen = False
        self._rows = Rows()
        self._columns = Columns()
        self._epochs = StepsOfEpochs()
        self._trainer = TrainerBar()
        self._best_follows = False  # the next line repeats the best round
        self.rule = ""

    def parse(self, line: bytes) -> Found:
        """(step or None, values) of a line; None if it has neither. A dictionary is reported with a line after it."""
        if self._pattern is not None:
            return self._by_pattern(cut(line))
        if not line.strip():
            return None
        read = self._read(line)
        found = self._trainer.take(read)
        if found is not read:
            self.rule = "object"
        self._progress_seen = self._progress_seen or found is not None
        return found

    @property
    def waits(self) -> bool:
        """Whether a line so far is only read with one after it: a row of a table, a dictionary."""
        return self._rows.open or self._trainer.holds

    def rest(self) -> Found:
        """What was read and not reported when the output ends."""
        return self._trainer.release()

    def _by_pattern(self, line: str) -> Found:
        assert self._pattern is not None
        self.rule = "pattern"
        match = self._pattern.search(line)
        if match is None:
            if "step" in self._pattern.groupindex:
                return None
            plain_step = self._step(counters(line), True, "")[1]
            return None if plain_step is None else (plain_step, {})
        groups = match.groupdict()
        text = groups.pop("step", None)
        step = number(text)
        values = {name: value for name, value in ((name, number(text)) for name, text in groups.items()) if value is not None}
        if step is not None and abs(step) < STEP_MAX:
            return int(step), values
        return self._step(counters(line), True, "")[1], values

    def _read(self, line: bytes) -> Found:
        if is_long_json(line):
            stripped = line.strip()
            return self._object(objects.of_json(stripped[: stripped.rfind(b",", 0, JSON_MAX)] + b"}"), "")
        stripped = line.strip()
        if stripped[:1] == b"{" and stripped[-1:] == b"}":
            found = objects.of_json(stripped)
            if found is not None:
                return self._object(found, "")
        lowered = line[:LINE_MAX].lower()
        if not (self._rows.open or self._columns.open or stripped[:1] == b"|" or any(hint in lowered for hint in _HINTS)):
            return None
        text = plain(line)
        for table, rule in ((self._rows, "table"), (self._columns, "columns")):
            belongs, read = table.feed(text)
            if belongs:
                self.rule = rule
                if read is not None and rule == "columns" and self._columns.counts_epochs:
                    return (None if self._steps_seen else read[0]), read[1]
                self._steps_seen = self._steps_seen or read is not None
                return read
        return self._line(text)

    def _line(self, text: str) -> Found:
        body = without_prefix(text)
        best, self._best_follows = self._best_follows, _BEST_FOLLOWS.search(body[-40:]) is not None
        if best or body.startswith("wandb:") or (_REPR.match(body) and body.endswith(")")):
            return None
        bar = bars.tqdm_bar(body)
        if bar is not None:
            step = self._trainer.at_bar(bar)
            if "{" not in bar.after:
                read = self._bar(bar)
                return read if read is not None or step is None else (step, {})
            body = bar.after
        start = body.find("{")
        if start == 0 or (start > 0 and "}" in body):
            found = objects.of_json(body.encode()) if start == 0 and body[-1:] == "}" else None
            found = found or (objects.of_dictionary(body[start:]) if "}" in body else None)
            if found is not None or start == 0:
                return self._object(found, body[:start])
        if bars.is_keras_bar(body):
            self.rule = "Keras bar"
            values = {pair.name: pair.value for pair in pairs(body) if not pair.spaced}
            return (None, values) if values else None
        return self._round(body) or self._plain(body, text.startswith("  "))

    def _object(self, found: Optional[objects.Object], before: str) -> Found:
        """What an object says. `before`: the text before it, which may name the step."""
        if found is None:
            return None
        self.rule = "object"
        step = found.step
        if step is not None:
            self._steps_seen = True
            return step, found.values
        if before:
            named, step = self._step(counters(before), True, "")
            if named:
                return step, found.values
        if found.epoch is not None:
            if not found.whole_epoch and self._trainer.offer(found.values):
                return None
            whole = found.whole_epoch and is_step(found.epoch)
            return (int(found.epoch) if whole and not self._steps_seen else None), found.values
        if found.message:
            return self._plain(without_prefix(found.message), False)
        return (None, found.values) if found.sure else None

    def _bar(self, bar: bars.Bar) -> Found:
        """A bar of tqdm: the step from its description, and what stands in it and beside it."""
        self.rule = "progress bar"
        values = {pair.name: pair.value for pair in pairs(bar.postfix) if not pair.spaced}
        said = counters(bar.description)
        for pair in pairs(f"{bar.description} "):
            if said or (pair.measured and pair.stands_alone):
                values.setdefault(pair.name, pair.value)
        word = head(f"{bar.description}:")
        if said:
            named, step = self._step(said, bool(values), word)
            return (step, under_all(word, values)) if named else None
        last = bar.description.rpartition(" ")[2].lower()
        if last in RANKS and bar.at >= 0 and not word and values:
            return self._step([Counter(last, str(bar.at))], True, "")[1], values
        return (None, under_all(word, values)) if values else None

    def _round(self, body: str) -> Found:
        """Lines that begin with the number of a round: `[12]  train-auc:0.9`, `100:  learn: 0.25`, `[1,  2000] loss: 2.1`."""
        found = round_number(body)
        if found is None:
            return None
        counter, rest = found
        given = [pair for pair in pairs(rest) if not pair.spaced and not pair.name.lower().startswith("best")]
        bracket = body.startswith("[")
        if not bracket and any(one.alone for one in counters(rest[:120])):
            return None  # the number of a process
        if not any(pair.measured or (bracket and pair.stands_alone) for pair in given):
            return None
        self.rule = "round number"
        return self._step([counter], True, "")[1], {pair.name: pair.value for pair in reversed(given)}

    def _plain(self, body: str, indented: bool) -> Found:
        given = list(pairs(body))
        said = counters(body)
        valued = any(pair.measured for pair in given)
        word = head(body)
        if said and not valued and (_LOADING.search(body[:200]) or (not given and _STAGE.match(body))):
            return None
        named, step = self._step(said, valued, word)
        if named:
            self.rule = "step words"
            counted = {one.at for one in said if one.alone or one.count == step}
            values = named_values(word, [pair for pair in given if pair.at not in counted])
            return (step, values) if values or step is not None else None
        self.rule = "names of measured values"
        told = [
            pair for pair in given if (pair.measured or (word and valued)) and pair.stands_alone
            and (pair.whole or word if pair.spaced else self._progress_seen or not indented)
        ]  # fmt: skip
        return (None, named_values(word, told)) if told else None

    def _step(self, said: list[Counter], valued: bool, word: str) -> tuple[bool, Optional[int]]:
        """(whether a line names a step or an epoch, the step). An epoch counts as a step only until a step was seen."""
        ranked = sorted((one for one in said if one.alone or valued), key=lambda one: one.rank)
        if not ranked:
            return False, None
        first = ranked[0]
        if first.rank > STEP:
            return True, None if self._steps_seen else first.count
        if word and first.total:
            return True, None  # the position in an evaluation
        epoch = next((one for one in ranked if one.rank == EPOCH), None)
        if epoch is not None and first.total and self._step_word not in ("", first.word):
            return True, None  # the program counts its steps elsewhere; this is the position in an epoch
        self._steps_seen, self._step_word = True, first.word
        if epoch is None or not first.total or first.rank != 1:
            return True, first.count
        return True, self._epochs.step(epoch, first)


def under_all(word: str, values: dict[str, float]) -> dict[str, float]:
    """The values under the word that their line begins with."""
    return {under(word, name): value for name, value in values.items()}


def is_long_json(line: bytes) -> bool:
    """Whether a line, or the first piece of one, begins like a JSON object and is longer than what is parsed."""
    return len(line) >= JSON_MAX and line.lstrip()[:1] == b"{" and not (len(line) == JSON_MAX and line.endswith(b"}"))
