"""Extracts steps and metric values from program output.

A line that the user's pattern matches (a regular expression with named groups, among them `step`) is read by it. Any other
is read by the first of these rules that fits it: rows and columns of tables, objects (JSON, Python dictionaries), progress
bars, and plain lines with a step, an epoch or the name of a measured value.

A program may print anything, so each line is processed in time linear in its length. In the regular expressions, no two
repeats that can match the same text are adjacent or nested; tests/unit/test_hostile_text.py checks it.
"""

from __future__ import annotations

import re

from trainmaster.agent.metrics import bars, objects
from trainmaster.agent.metrics.counting import EpochCounts, Steps, TrainerBar
from trainmaster.agent.metrics.line_text import LINE_MAX, cut, of_checkpoints, plain, without_prefix
from trainmaster.agent.metrics.pairs import Counter, Pair, counters, head, pairs, round_number, under_all
from trainmaster.agent.metrics.pairs import named as named_values
from trainmaster.agent.metrics.tables import Columns, Headings, Rows
from trainmaster.agent.metrics.vocabulary import BATCH, EPOCH, NUMBER, RANKS, coco, number
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
    b" metrics: trial prec recall entropy nll psnr fid wer dice kl: kl= tick up. batch cost pearson *** %| test: n_gen nevals"
    b" validat evaluat testing fitness generation"
)
_HINTS = (*_WORDS.split(), b" dataloader 0")
_LOADING = re.compile(
    r"\b(?:load(?:ed|ing)?|resum(?:e|ed|ing)|restor(?:e|ed|ing)"
    r"|(?:start(?:ed|s|ing)?|begin(?:s|ning)?|began|go(?:es|ing)? on|continu(?:e|es|ed|ing))(?: training)?"
    r" (?:from|at|after|with))\b",
    re.IGNORECASE,
)
_STAGE = re.compile(r"[Ss][Tt][Ee][Pp] \d{1,6}(?:/\d{1,6})? {0,2}[:.)] {1,2}[A-Z][A-Za-z]")  # Step 1: Loading data
_EPOCHS_BAR = re.compile(r"Epoch \d{1,9}/\d{1,9}: ")  # of scvi-tools; Lightning's names no total
_REPR = re.compile(r"\(?[A-Za-z_][\w.]{0,60}\)?:? ?[A-Za-z_]{0,60}\(")
_SAVING = re.compile(r"(?=[sbi\"])(?:\b(?:sav(?:e|ed|ing)|stopp(?:ed|ing)|stop|best|improv\w{1,5})\b|\")")  # before a counter
_DEFAULT = re.compile(r"\[default: ?[^]]{0,200}\]\Z")  # a list of options
_MEMBER = re.compile(r"\"[^\"]{1,100}\": {0,2}[^ {\[]{1,60}\Z")  # of an object printed over several lines: the best result, say
_SETTING = re.compile(r"[A-Za-z_]{1,40}: {0,2}\d{1,15}\Z")  # epoch: 4
_CELLS = (b"|", "┃".encode(), "│".encode())  # the second begins the header of rich's tables
_SETS = ("test", "learn")  # names of their own: CatBoost's `0: test: 0.766  best: 0.766 (0)`
_SETTINGS = re.compile(r"[=:] {0,2}(?:True|False|None|true|false|null)\b")  # in a line of options
_SETTINGS_MIN = 3
_METERS = re.compile(r"(?:test|val|valid|validation|eval|evaluation): {0,2}\[ {0,8}\d{1,9}/\d{1,9}", re.IGNORECASE)
_REACHED = re.compile(r"'([A-Za-z][\w./-]{0,60})' reached (?=[-+\d.])")  # of Lightning: 'val_loss' reached 0.25
_WHOLE = re.compile(r"(?<=step)=(\d{1,15})\.0{1,4}(?=[,\]]|$)")  # of Lightning: global_step=794.0, global_step=99.00
_EVALUATED = re.compile(r"\b(?:eval|evaluation|validation|val|test) (?:step|iteration|iter|batch)\b", re.IGNORECASE)
_MEANS_BEFORE = ("Averaged stats",)  # of torchvision's references, after `Test: Total time`
_COLLECTION = re.compile(r"collection=([\w/.-]{1,60}) {1,2}")  # of CLU
_TRIAL = re.compile(rf"Trial (\d{{1,9}}) finished with value: ({NUMBER})(?=[ .])")  # of Optuna
_PARAMETERS = ("parameters:", "params:", "hyperparameters:", "config:")
_NO_READING = ("wandb:", "best ", "best_", *_PARAMETERS)
_REVERSED = re.compile(rf"({NUMBER}) {{1,2}}= {{1,2}}([A-Za-z][A-Za-z_ ]{{1,40}})(?:\([\w-]{{1,60}}\))?\Z")  # of AutoGluon
_BEGUN = re.compile(r"\b0{1,2}:00(?::00)?(?![:.\d])")  # the time that has passed, in a bar: Elapsed Time: 0:00:00
_BEST_FOLLOWS = re.compile(r"(?i)best (?:iteration|epoch|step)(?: is)?:? {0,2}$|(best [a-z]{1,9} at (?:epoch|step) \d{1,12}:$)")


class Parser:
    """Parses the lines of one rank, in order. `rule` names the rule that read the last line.

    `automatic`: lines that the pattern does not match are read, too.
    """

    def __init__(
        self, pattern: Optional[Search] = None, automatic: bool = True, epochs: Optional[EpochCounts] = None
    ) -> None:
        self._pattern = pattern
        self.automatic = automatic
        self._steps = Steps(epochs)
        self._progress_seen = False
        self._rows = Rows()
        self._columns = Columns()
        self._trainer = TrainerBar()
        self._positions = bars.Positions()
        self._best_follows: Optional[re.Match[str]] = None  # the next line repeats the best round; DeepXDE: the rows below
        self._numbered = False  # values stand behind a step in brackets, `[10] loss = 0.5`: so do those of other names
        self._headings = Headings()
        self.rule = ""

    def parse(self, line: bytes) -> Found:
        """(step or None, values) of a line; None if it has neither. A dictionary is reported with a line after it."""
        matched = self._by_pattern(line) if self._pattern is not None else None
        if matched is not None or not self.automatic or not line.strip():
            return matched
        read = self._read(line)
        if read is not None and read[0] is not None:
            self._headings.word = ""
        found = self._trainer.take(read)
        if found is not read:
            self.rule = "object"
        self._progress_seen = self._progress_seen or found is not None
        return found

    @property
    def by_pattern(self) -> bool:
        """Whether there is a pattern."""
        return self._pattern is not None

    @property
    def waits(self) -> bool:
        """Whether a line so far is only read with one after it: a row of a table, a dictionary."""
        return self._rows.holds or self._trainer.holds

    def recounts(self) -> bool:
        """Whether a step was named just now, after epochs had been taken for steps. True once."""
        recounted, self._steps.recounted = self._steps.recounted, False
        return recounted

    def rest(self) -> Found:
        """What was read and not reported when the output ends."""
        return self._trainer.release()

    def _by_pattern(self, printed: bytes) -> Found:
        """The pattern is searched in the line as it is printed, then as it is seen, without colors."""
        assert self._pattern is not None
        self.rule, line = "pattern", cut(printed)
        match = self._pattern.search(line)
        if match is None and (seen := plain(printed)) != line:
            line, match = seen, self._pattern.search(seen)
        if match is None:
            if "step" in self._pattern.groupindex or self.automatic:
                return None
            plain_step = self._steps.choose(counters(line), True, "")[1]
            return None if plain_step is None else (plain_step, {})
        groups = match.groupdict()
        text = groups.pop("step", None)
        step = number(text)
        values = {name: value for name, value in ((name, number(text)) for name, text in groups.items()) if value is not None}
        if step is not None and abs(step) < STEP_MAX:
            counted = next((one for one in counters(line) if one.at == match.start(self._pattern.groupindex["step"])), None)
            named = counted or Counter("step", str(abs(int(step))))
            self._steps.choose([named], True, "")  # whether lines that name epochs name steps
            self._progress_seen, self._headings.word = True, ""
            self._headings.step(alone=not values)
            return int(step), values
        return self._steps.choose(counters(line), True, "")[1], values

    def _read(self, line: bytes) -> Found:
        stripped = line.strip()
        if is_long_json(line):
            return self._object(objects.of_json(stripped[: stripped.rfind(b",", 0, JSON_MAX)] + b"}"), "")
        if stripped[:1] == b"{" and stripped[-1:] == b"}":
            found = objects.of_json(stripped)
            if found is not None:
                return self._object(found, "")
        lowered = line[:LINE_MAX].lower()
        self._headings.next(stripped)
        open_ = self._rows.open or self._columns.open or self._headings.open or stripped.startswith(_CELLS)
        open_ = open_ or (self._numbered and b" = " in line) or (stripped[:1].isdigit() and b"%) " in stripped[:40])
        if not (open_ or any(hint in lowered for hint in _HINTS)):
            self._headings.passed(line, self._progress_seen)
            return None
        text = plain(line)
        belongs, read = self._rows.feed(text)
        if belongs:
            self._columns.above(text, line)
            if read is not None and self._rows.position:
                read = self._steps.choose(self._rows.position, True, "")[1], read[1]
            self.rule, self._steps.seen = "table", self._steps.seen or (read is not None and read[0] is not None)
            return read
        belongs, read = self._columns.feed(text, line)
        if not belongs:
            read = self._line(text)
            drawn = self._columns.open and self._columns.counts_epochs and ("%" in text or line.endswith(b"   "))  # or wiped
            return None if drawn and read is not None and not read[1] else read  # a bar counts epochs, perhaps from 1
        self.rule = "columns"
        if read is not None and self._columns.counts_epochs:
            values = read[1] if read[0] is not None else under_all(self._headings.word, read[1])  # a row of classes
            return (None if self._steps.seen else read[0]), values
        self._steps.seen = self._steps.seen or read is not None
        return read

    def _line(self, text: str) -> Found:
        body = without_prefix(text)
        if len(body) < len(text) and of_checkpoints(text[: len(text) - len(body)]):
            return None
        cells = objects.cells(body) if self._headings.open and body.endswith((" |", " /")) else {}
        if cells:
            self.rule = "cells"
            return None, cells
        told = _REVERSED.match(body) if " = " in body else None
        if told is not None:
            return self._plain(f"{told[2].strip()}: {told[1]}", False)
        said, self._best_follows = self._best_follows, _BEST_FOLLOWS.search(body[-40:])
        best = said is not None and (not said[1] or text.startswith("  "))
        if best and said is not None and said[1]:
            self._best_follows = said
        self._headings.line(text, body, self._progress_seen)
        if " v_num" in body and not _EPOCHS_BAR.match(body):
            self._steps.epochs.first = 0  # Lightning, which is read once in a while, counts epochs from 0
        if "{" not in body and len(_SETTINGS.findall(body)) >= _SETTINGS_MIN:
            return None
        if "step=" in body:
            body = _WHOLE.sub(r"=\1", body)
        of_boxes = coco(body)
        if of_boxes is not None:
            self.rule = "COCO summary"
            return (None, of_boxes) if of_boxes else None
        trial = _TRIAL.match(body)
        if trial is not None:
            self.rule = "trial"
            return (None if self._steps.seen else int(trial[1])), {"value": float(trial[2].replace(",", ""))}
        if best or body.lower().startswith(_NO_READING) or (_REPR.match(body) and body.endswith(")")):
            return None
        bar = bars.tqdm_bar(body)
        if bar is not None:
            step = self._trainer.at_bar(bar)
            if "{" not in bar.after:
                read = self._bar(bar)
                if read is None and step is None and bar.after[:1].isalpha():
                    return self._plain(without_prefix(bar.after), False)  # what was printed beside it
                return read if read is not None or step is None else (step, {})
            body = bar.after
        start = body.find("{")
        if start > 0 and body[:start].rstrip().lower().endswith(_PARAMETERS):
            return None
        if start == 0 or (start > 0 and "}" in body):
            found = objects.of_json(body[start:].encode()) if body[-1:] == "}" else None
            found = found or (objects.of_dictionary(body[start:]) if "}" in body else None)
            if found is not None or start == 0:
                return self._object(found, body[:start])
        if bars.is_keras_bar(body):
            self.rule = "Keras bar"
            values = {pair.name: pair.value for pair in pairs(body) if not pair.spaced}
            return (None, values) if values else None
        listed = body.startswith("# ") and self._headings.commented and not self._progress_seen
        return self._round(body) or self._plain(body.removeprefix("# "), listed or text.startswith("  "))

    def _object(self, found: Optional[objects.Object], before: str) -> Found:
        """What an object says. `before`: the text before it, which may name the step."""
        if found is None:
            return None
        self.rule, found.values = "object", self._headings.of_object(found.values)
        found.under(head(before))
        step = found.step
        if found.in_epoch:
            return None if found.apart else self._steps.choose(found.in_epoch, True, "")[1], found.values
        if step is not None:
            self._steps.seen = True
            return step, found.values
        if found.counters:
            return self._steps.choose(found.counters, True, "")[1], found.values
        if before:
            named, step = self._steps.choose(counters(before), True, "")
            if named:
                return step, found.values
        if found.epoch is not None:
            self._headings.word = ""
            if not found.whole_epoch and self._trainer.offer(found.values):
                return None
            whole = found.whole_epoch and is_step(found.epoch)
            return (int(found.epoch) if whole and not self._steps.seen else None), found.values
        if found.message:
            return self._plain(without_prefix(found.message), False)
        return (None, found.values) if found.sure else None

    def _bar(self, bar: bars.Bar) -> Found:
        """A bar of tqdm: the step from its description, and what stands in it and beside it."""
        self.rule = "progress bar"
        values = {pair.name: pair.value for pair in pairs(bar.postfix) if not pair.spaced}
        word = head(f"{bar.description}:")
        said = counters(bar.description) + ([] if word else counters(bar.postfix))
        numbered = round_number(bar.description)
        if numbered is not None and not said:
            said, bar.description = numbered
        if not (word or said or bar.epochs):
            word = self._headings.bar(bar.at, bar.total)
        beside = objects.without_step(given := list(pairs(f"{bar.description} ")), False, False)
        for pair in given:
            if said or pair in beside or (pair.measured and pair.stands_alone):
                values.setdefault(pair.name, pair.value)
        last = "epoch" if bar.epochs else bar.description.rpartition(" ")[2].lower()
        of_epochs = RANKS.get(last) == EPOCH
        if of_epochs and not said:
            self._steps.bar.epochs.draw(bar)
        epoch = None if said or word or of_epochs else self._steps.bar.epochs.epoch(bar, bool(values))
        if self._positions.stale(bar, values):
            return None
        at = self._positions.of(bar, values)
        if bar.at == 0:
            values = {name: value for name, value in values.items() if value != 0.0}  # drawn before anything was measured
        if at is None:
            return None
        bar.at = at
        if epoch is not None and values:
            self._steps.epochs.first = 0
            said = [Counter("epoch", str(epoch)), Counter("batch", str(at), str(bar.total))]
        if len(said) == 1 and said[0].rank == EPOCH and not bar.epochs and bar.at >= 0:
            itself = not self._steps.epochs.anew and self._positions.of_epochs(bar, said[0].count, said[0].total)
            said = [Counter("epoch", str(bar.at))] if itself else [*said, Counter("batch", str(bar.at), str(bar.total))]
        if said:
            named, step = self._steps.choose(said, bool(values), word)
            begins = bar.at == 0 and not values  # the bar of an epoch is drawn before its first step
            return (step, under_all(word, values)) if named and not begins else None
        if last in RANKS and bar.at >= 0 and (bar.epochs or not word) and values:
            return self._steps.choose([Counter(last, str(bar.at))], True, "")[1], under_all(word, values)
        step = self._steps.bar.moved(bar.at, bar.total) if values and bar.at >= 0 and not word else None
        return (step, under_all(word, values)) if values and not (step is None and self._positions.again) else None

    def _round(self, body: str) -> Found:
        """Lines that begin with the number of a round: `[12]  train-auc:0.9`, `100:  learn: 0.25`, `[1,  2000] loss: 2.1`."""
        found, cells = round_number(body), objects.before_cells(body)
        if found is None or cells is not None:
            return None if cells is None else self._cells(*cells)
        said, rest = found
        of = _COLLECTION.match(rest)
        rest = rest if of is None else rest[of.end() :]
        under_it = "" if of is None or of[1] == "train" else f"{of[1]}/"
        given = [pair for pair in pairs(rest) if not pair.spaced and not pair.name.lower().startswith("best")]
        bracket = body.startswith("[")
        if not bracket and any(one.alone for one in counters(rest[:120])):
            return None  # the number of a process
        if not any(pair.measured or ((bracket or pair.name in _SETS) and pair.stands_alone) for pair in given):
            return None
        self.rule, self._numbered = "round number", self._numbered or bracket
        return self._steps.choose(said, True, "")[1], {f"{under_it}{pair.name}": pair.value for pair in reversed(given)}

    def _cells(self, number_: str, given: list[Pair]) -> Found:
        """A line of cells that begins with a number: see `objects.before_cells`."""
        self.rule = "round number"
        return self._steps.choose(self._steps.bare(number_), True, "")[1], named_values("", given)

    def _plain(self, body: str, indented: bool) -> Found:
        if _DEFAULT.search(body) or (indented and (_SETTING.match(body) or _MEMBER.match(body))):
            return None
        body = _REACHED.sub(r"\1=", body)
        given = list(pairs(body))
        if _METERS.match(body) or body.startswith(_MEANS_BEFORE):
            objects.take_means(body, given)
        objects.in_one_part(body, given)
        parted = objects.in_parts(body, given) or objects.behind_training(body, given)
        valued = any(pair.measured for pair in given)
        said = counters(body) or (self._steps.below_epoch(body) if valued else [])
        before = self._headings.before if body.startswith(("*", *_MEANS_BEFORE)) else ""
        word = self._headings.before = "" if parted else head(body) or before
        word = word or ("eval" if valued and not said and self._steps.evaluates(body) else "")
        valued = valued or (bool(word) and any(pair.stands_alone for pair in given))
        if said and not valued and (_LOADING.search(body[:200]) or (not given and _STAGE.match(body)) or _mentions(body, said)):
            return None
        if said and not given and _EVALUATED.search(body[:200]):
            return None
        named, step = self._steps.choose(said, valued, word)
        if named:
            self.rule = "step words"
            counted = {one.at for one in said if one.alone or one.rank == BATCH or one.count == step}
            values = named_values(word, [pair for pair in given if pair.at not in counted])
            if any(one.rank == EPOCH for one in said):
                self._headings.word = ""
            self._headings.step(step is not None and not values)
            if not any(values.values()) and any(one.count == 0 and one.rank != EPOCH for one in said) and _BEGUN.search(body):
                values = {}  # drawn before anything was measured
            return (step, values) if values or step is not None else None
        self.rule = "names of measured values"
        of_training = any(pair.name.lower().startswith("train") for pair in given)
        under_it = word or ("" if of_training else self._headings.word)
        if len(given) == 1 and not given[0].spaced and self._headings.has(body, given[0].at, indented):
            return None, named_values(under_it, given)
        if indented and not self._progress_seen:
            given = [pair for pair in given if pair.spaced]
        told = objects.without_step(given, bool(word), self._progress_seen)
        return (None, named_values(under_it, told)) if told else None


def _mentions(body: str, said: list[Counter]) -> bool:
    """Whether a line only mentions its counter: `saving the model at the end of epoch 3`, `early stopping at epoch 3`."""
    return _SAVING.search(body[: min(one.at for one in said)].lower()) is not None


def is_long_json(line: bytes) -> bool:
    """Whether a line, or the first piece of one, begins like a JSON object and is longer than what is parsed."""
    return len(line) >= JSON_MAX and line.lstrip()[:1] == b"{" and not (len(line) == JSON_MAX and line.endswith(b"}"))
