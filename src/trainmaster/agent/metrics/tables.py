"""Values in tables: rows of `| name | value |` between lines (Stable-Baselines3), and columns under a header (fastai).

Also rows below a step or a heading, which are no tables: `[batch=1/4800]:`, below it `train/loss: 11.2`.
"""

from __future__ import annotations

import re

from trainmaster.agent.metrics.bars import LINES_WITHOUT_ROW, Progressing
from trainmaster.agent.metrics.line_text import aligned, plain, without_prefix
from trainmaster.agent.metrics.named_rows import CELL, NAME, RULE, NamedRows
from trainmaster.agent.metrics.pairs import Counter, under_all
from trainmaster.agent.metrics.vocabulary import EPOCH, NUMBER, RANKS, STEP, measured, number
from trainmaster.agent.transport.point_values import is_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    Found = Optional[tuple[Optional[int], dict[str, float]]]

_ROWS_MAX = 300
_RULE_MIN = 5  # characters
_HEADER_MAX = 600  # characters
_MEASURED = re.compile(r"[A-Za-z]\w{0,40}(?:\.\w{1,40})? metric\Z")  # Lightning: `Test metric`, `Validate metric`
_MEASURED_PLAIN = re.compile(r"[A-Za-z]\w{0,40}(?:\.\w{1,40})? metric {1,2}DataLoader 0\Z")  # without rich
_PLAIN_ROW = re.compile(rf" {{0,2}}([A-Za-z][^\s|]{{0,120}}) {{1,2}}({NUMBER})\Z")
_GROUP = re.compile(r"(?<=\|) {0,60}([A-Za-z][^|]{0,60}?) {0,60}(?=\|)")
_GAP = re.compile(r"  |[|,;]")
_FIELDS = re.compile(r"[ |,;]+")
_FIELD = re.compile(r"[^ |,;]+")
_WORDS = re.compile(r"[^ |,;]+(?: [^ |,;]+)*")  # of a header with gaps
_DASHES = re.compile(r" *-{2,}(?: +-{2,})+ *\Z")  # a line between the header and the rows
_VALUED = re.compile(r" [-+]?\.?\d[\d.,%e+-]{0,30}\Z")  # `Epoch 10 | Loss 0.5` is no header
_BAR = re.compile(r": {1,2}\d{1,3}%\|")
_THIN_BAR = re.compile(r": {1,2}\d{1,3}% [━─╸╺]")  # Ultralytics, after the last column
_COMMENT = re.compile(r"\A {0,2}(?:[A-Za-z]{2,30} {1,2})?# {0,2}(?=[A-Za-z])")  # `  Train  #  Epoch  loss`, of NequIP
_LABELLED = re.compile(r"! (?:Initial )?(Train|Validation|Test) {1,2}(?=\d)")  # a row below such a header
_LABELS = {"Train": "", "Validation": "val", "Test": "test"}
_SHORT = ("e", "#")  # of spaCy
_COUNTS = {**RANKS, "e": EPOCH, "#": 1, **dict.fromkeys(("n_gen", "gen"), RANKS["generation"])}
_OF_VALUES = {"n_gen", "nevals"}  # in headers of pymoo and DEAP, whose columns are what was measured, whatever their names
_CLASS, _ALL = "class", "all"  # Ultralytics: one row per class, the first one for all of them
_COUNT = re.compile(r"(\d{1,15})(?:/\d{1,15})?\Z")
_BELOW = re.compile(r"[|>*\- ]{0,8}[A-Za-z][^:=|]{0,120}[:=] {0,30}[-+\w.,]{1,30}%?(?: {1,3}\([^()]{0,40}\))?\Z")  # a step
_BELOW_MAX = 60  # lines
_OF_BEFORE = ("best", "epoch n-1")  # a row with such a word repeats an earlier value
_SECTION = re.compile(r"[>=#*-]{0,12} {0,2}(TRAINING|EVALUATION|VALIDATION|TESTING)(?: {0,2}\([^()]{0,40}\))?[ =#*-]{0,12}\Z")
_OTHER_PART = re.compile(  # KataGo: Beginning validation after epoch!
    r"(?:(?:Beginning|Starting|Running) (validation|evaluation|testing)\b"
    r"|(Validating|Evaluating|Testing) (?:the model|after|at|on(?! (?:the )?train))\b)[^:=\d]{0,80}\Z"
    r"|(Validating|Evaluating|Testing)(?:[ .:!…]{0,5}| [^ :=]{1,200}\.\.\.)\Z"  # YOLO: Validating runs/exp/weights/best.pt...
    r"|(Validation|Evaluation|Test)(?: (?:set|[Dd]ata|phase|results?|metrics))?[ .:!…]{0,5}\Z"
    r"|On (?:the )?([Vv]alidation|[Tt]est) (?:set|[Dd]ata)[ .:!…]{0,5}\Z"  # PyOD
)
_TRAINS = re.compile(
    r"(?:(?:Resuming|Continuing|Back to) training|On (?:the )?[Tt]rain(?:ing)? (?:set|[Dd]ata)"
    r"|Train(?:ing)?(?: (?:set|[Dd]ata|phase|results?|metrics))?)[ .:!…]{0,5}\Z"
)
_METRICS_OF = re.compile(r"- (Train|Training|Validation|Val|Test|Eval) metrics:\Z")  # of Ignite's examples
_RESULTS = re.compile(r"\*{3,10} [^*]{0,60}(?:metrics|results) \*{3,10}", re.IGNORECASE)
_RULES = ("--", "**", "##")
_BARS = ("|", "╭", "├")  # of a table of rows
_BEFORE_OBJECT = {b"valid:": "val", b"validation:": "val", b"eval:": "eval", b"test:": "test"}  # ParlAI: `REPORT   | valid:`
_BEFORE_OBJECT_MAX = 12  # bytes
_LABEL = re.compile(r"[A-Za-z][\w./-]{0,80}\Z")  # of an evaluation: OLMo's `piqa`


class Rows:
    """A table with one value per row. It is read when its last line, a rule of dashes, comes."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._section = ""
        self._measured = self._begun = False  # its header says so: such a table needs no step; a row of it was read
        self._named = NamedRows()
        self.position: list[Counter] = []  # the epoch and the batch that the last table named, and no step

    @property
    def open(self) -> bool:
        """Whether a table has begun."""
        return self.holds or self._named.open

    @property
    def holds(self) -> bool:
        """Whether rows were read that are not reported yet."""
        return self._measured or bool(self._values)

    def feed(self, text: str) -> tuple[bool, Found]:
        """(whether the line belongs to a table, what a table that ends here says)."""
        cells, self.position = text.strip().split("|"), []
        belongs, read = self._named.feed(cells)
        if belongs:
            return True, read
        if len(cells) == 4 and not cells[0] and not cells[3]:
            loaded = cells[2].strip().startswith("DataLoader")  # Ludwig names what it chose: `Validation metric | roc_auc`
            self._measured = self._measured or (loaded and _MEASURED.match(cells[1].strip()) is not None)
            self._row(cells[1], cells[2].strip())
            return True, None
        rule = not text.strip(RULE) and len(text) >= _RULE_MIN
        if not self._values:
            return self._plain(text, rule)
        values, self._values, self._section = self._values, {}, ""
        measured_, self._measured = self._measured, False
        if not rule:
            return False, None
        found = _without_counts(values) if measured_ else _with_step(values)
        self.position = _position(values, None if found is None else found[1])
        return True, found

    def _plain(self, text: str, rule: bool) -> tuple[bool, Found]:
        """A line of a table of measured values without bars. `rule`: it is one, below the header or at the end."""
        row = _PLAIN_ROW.match(text) if self._measured else None
        if row is not None:
            self._begun = True
            return True, _without_counts({row[1]: float(row[2].replace(",", ""))})
        self._measured = (rule and self._measured and not self._begun) or _MEASURED_PLAIN.match(text.strip()) is not None
        self._begun = False
        return False, None

    def _row(self, cell: str, text: str) -> None:
        name = cell.strip()
        if not text:
            self._section = name if name.endswith("/") else ""
        elif CELL.match(text) and name and len(self._values) < _ROWS_MAX:
            value = number(text.rstrip("%"))
            if value is not None:
                self._values[(self._section if cell.startswith("  ") else "") + name] = value


class Columns:
    """A table with a header line, whose rows begin with a step, an epoch, another count, or the name of a class."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._spans: list[tuple[int, int]] = []  # where each column stands in its line
        self._step = 0  # the column of the step; -1 in a table of classes, of which the row for all is read
        self._lines = 0  # without a row, since the last one
        self._groups: list[tuple[int, int, str]] = []  # of columns, in the last line of such: where each stands, and its name
        self._done = Progressing()

    @property
    def open(self) -> bool:
        """Whether a header was seen."""
        return bool(self._names) or self._done.open

    @property
    def counts_epochs(self) -> bool:
        """Whether its rows are of epochs, or of classes, and not of steps."""
        if self._done.open:
            return self._done.counts_epochs
        return self._step < 0 or _COUNTS[self._names[self._step].lower()] > STEP

    def above(self, text: str, line: bytes) -> None:
        """Learn the groups of columns from a line that may stand above a header: `| Population Average | Best |` (gplearn)."""
        edged = text.lstrip().startswith("|") and text.endswith("|")
        found = _GROUP.finditer(aligned(line)) if edged else ()
        self._groups = [(*each.span(), each[1].replace(" ", "_")) for each in found]

    def feed(self, text: str, line: bytes) -> tuple[bool, Found]:
        """(whether the line is a header or a row, what a row says). `text`: the plain text of the line."""
        belongs, read = self._done.feed(text)
        if belongs:
            self._names = []
            return True, read
        bar = _THIN_BAR.search(text)
        text = text if bar is None else text[: bar.start()]
        if self._header(text, line):
            self._names = [self._grouped(index, name) for index, name in enumerate(self._names)]
            return True, None
        self.above(text, line)
        if not self._names:
            return False, None
        if _DASHES.match(text):
            self._stand(_FIELD, line)
        label = _LABELLED.match(text)
        row = self._row(text if label is None else text[label.end() :], line)
        if label is not None and row is not None:
            row = row[0], under_all(_LABELS[label[1]], row[1])
        drawn = "|" in text and "%" in text  # fastai draws its bars between the rows
        self._lines = 0 if row is not None else self._lines + (not drawn)
        if self._lines > LINES_WITHOUT_ROW:
            self._names = []
        return row is not None, row

    def _header(self, text: str, line: bytes) -> bool:
        if len(text) > _HEADER_MAX:
            return False
        bar = _BAR.search(text)
        text = text if bar is None else text[: bar.start()]
        text = _COMMENT.sub("", text)
        first = (text.split(None, 1) or [""])[0].rstrip("|,;").lower()
        if (_COUNTS.get(first, 9) > 4 and first != _CLASS) or ":" in text or "=" in text:
            return False
        gaps = _GAP.search(text.strip()) is not None
        names = [name.strip() for name in (_GAP.split(text) if gaps else text.split()) if name.strip()]
        named = len(names) > 1 and all(map(NAME.match, names)) and not any(map(_VALUED.search, names))
        if not named or not (any(map(measured, names)) or not _OF_VALUES.isdisjoint(names)):
            return False
        self._names, self._lines = [_balanced(name.replace(" ", "_")) for name in names], 0
        self._spans = []
        self._stand(_WORDS if gaps else _FIELD, line)
        ranked = [(_COUNTS[name.lower()], index) for index, name in enumerate(names) if name.lower() in _COUNTS]
        self._step = min(ranked)[1] if ranked else -1
        return True

    def _grouped(self, index: int, name: str) -> str:
        """The name of a column; of several with one name, each has that of its group before it."""
        if self._names.count(name) < 2 or not self._spans:
            return name
        begin, end = self._spans[index]
        return next((f"{group}_{name}" for first, last, group in self._groups if first <= begin and end <= last), name)

    def _stand(self, column: re.Pattern[str], line: bytes) -> None:
        """Learn where the columns stand, if this line has one text for each."""
        spans = [found.span() for found in column.finditer(aligned(line))]
        self._spans = spans if len(spans) == len(self._names) else self._spans

    def _by_place(self, line: bytes) -> list[str]:
        """The fields of a row in which some are blank, "" for those; [] if the place of one does not tell its column."""
        fields = [""] * len(self._spans)
        for found in _FIELD.finditer(aligned(line)):
            columns = [at for at, (begin, end) in enumerate(self._spans) if found.start() < end and begin < found.end()]
            if len(columns) != 1 or fields[columns[0]]:
                return []
            fields[columns[0]] = found.group()
        return fields

    def _row(self, text: str, line: bytes) -> Found:
        bar = text.find("%|")
        fields = [field for field in _FIELDS.split(text) if field]
        if 1 < len(fields) < len(self._names) and len(text) <= _HEADER_MAX:
            fields = self._by_place(line)  # skorch marks its best rows in a column that is blank in others
        if len(fields) < len(self._names) or (len(fields) > len(self._names) and bar < 0):
            return None
        step = _COUNT.match(fields[self._step]) if self._step >= 0 else None
        if step is None and not (self._step < 0 and fields[0].lower() == _ALL):
            return None
        values = {}
        for index, name in enumerate(self._names):
            field = fields[index].rstrip(":")
            if name.lower() not in _SHORT and index != self._step and CELL.match(field):
                value = number(field.rstrip("%"))
                if value is not None:
                    values[name] = value
        return (int(step.group(1)) if step is not None else None, values) if values else None


class Headings:
    """What lines without a step belong to: the step above them, or the part of the run that a heading names."""

    def __init__(self) -> None:
        self.word = ""  # names below ` > EVALUATION` begin with it, until a line names a step or an epoch
        self.before = ""  # `test` if the line before began with it: ImageNet's summary ` * Acc@1 69.8` belongs to it
        self._left = 0  # lines that may still be rows
        self._indented = False  # rows of this output are `    train/loss=0.5`: such ones may stand below a name, too
        self._named = False  # a name is above these rows
        self._bar = (-1, -1)  # where the last bar was, and its total
        self._begins = False  # `Validating` was the last heading, and the next bar that begins is of it
        self._of_word = False  # the last bar is
        self._object = ""  # what an object on the next line belongs to
        self._comments = 0  # lines in a row that begin with `# `

    @property
    def commented(self) -> bool:
        """Whether the line is one of several comments: `# batch size: 100`, then `# epoch: 20`."""
        return self._comments > 1

    @property
    def open(self) -> bool:
        """Whether rows may follow."""
        return self._left > 0

    def next(self, line: bytes) -> None:
        """A line comes that is no object."""
        self._comments = self._comments + 1 if line.startswith(b"# ") else 0
        self._left -= self._left > 0
        end = line.rstrip()[-_BEFORE_OBJECT_MAX:].split(b" ")[-1]
        self._object = _BEFORE_OBJECT.get(end, "")

    def line(self, text: str, body: str, begun: bool) -> None:
        """What a line says as a heading, or as an end of rows. `body`: the text without what loggers put before it.

        `begun`: the program has shown progress. What is validated before is no model.
        """
        section, of = _SECTION.match(body), _METRICS_OF.match(text.strip())
        if section is not None:
            self.word = {"EVALUATION": "eval", "VALIDATION": "val", "TESTING": "test"}.get(section[1], "")
        self._part(body, begun)
        if of is not None:
            self.word, self._left, self._named = of[1].lower(), _BELOW_MAX, False
        if _RESULTS.match(body):
            self._left, self._named = _BELOW_MAX, False
        elif ":" not in body and "=" not in body and not body.startswith(_RULES) and not text.startswith(_BARS):
            self._named = self._indented and _LABEL.match(body) is not None
            self._left = _BELOW_MAX if self._named else 0

    def bar(self, at: int, total: int) -> str:
        """What the values of a bar belong to that says nothing about it: `Validating`, above the line at which it begins.

        The bar of the training may be drawn again below that, and go on after it.
        """
        if total != self._bar[1] or at < self._bar[0]:
            self._of_word, self._begins = self._begins and bool(self.word), False
        self._bar = (at, total)
        return self.word if self._of_word else ""

    def _part(self, body: str, begun: bool) -> None:
        """`Validating` begins a part, and `Training`, or `Resuming training`, ends it."""
        part = _OTHER_PART.match(body) if begun else None
        if part is not None:
            self.word, self._begins, self._of_word = part[part.lastindex or 0][:4].lower().replace("vali", "val"), True, False
        if self.word and _TRAINS.match(body):
            self.word, self._begins = "", False

    def passed(self, line: bytes, begun: bool) -> None:
        """A line that says nothing else."""
        if self.word or b"est " in line:  # Test set
            self._part(without_prefix(plain(line)), begun)
        if self._indented:
            text = plain(line)
            self.line(text, without_prefix(text), True)

    def of_object(self, values: dict[str, float]) -> dict[str, float]:
        """The values of an object, by the names that the line before it gives them: `valid:`."""
        word, self._object = self._object, ""
        return under_all(word, values)

    def step(self, alone: bool) -> None:
        """A line named a step. `alone`: without values, so that they may stand in rows below it."""
        self._left, self._named = _BELOW_MAX if alone else 0, False

    def has(self, body: str, at: int, indented: bool) -> bool:
        """Whether a line of one value, which begins at `at`, is such a row."""
        if not self.open or _BELOW.match(body) is None or any(word in body.lower() for word in _OF_BEFORE):
            return False
        joined = indented and body[at - 1] == "="
        self._indented = self._indented or joined
        return joined or not self._named


def _balanced(name: str) -> str:
    """`P` of `Box(P`, `mAP50-95` of `mAP50-95)`: a bracket around several columns belongs to no name."""
    opened, closed = name.count("("), name.count(")")
    return name.rstrip(")") if opened < closed else name.rpartition("(")[2] if opened > closed else name


def _without_counts(values: dict[str, float]) -> Found:
    """What a table of measured values says: the step is not in it. Lightning's may have the epoch."""
    measured_ = {name: value for name, value in values.items() if name.lower() not in RANKS}
    return (None, measured_) if measured_ else None


def _with_step(values: dict[str, float]) -> Found:
    """A table without a step says nothing: it may be a configuration."""
    ranked = [
        (RANKS[last], name) for name, last in ((name, name.rpartition("/")[2].lower()) for name in values) if last in RANKS
    ]
    if not ranked:
        return None
    name = min(ranked)[1]
    step = values[name]
    if not is_step(step):
        return None
    return int(step), {key: value for key, value in values.items() if key != name}


def _position(values: dict[str, float], kept: Optional[dict[str, float]]) -> list[Counter]:
    """The epoch and the batch of a table that names no step; the latter is no longer `kept` then."""
    names = {name.rpartition("/")[2].lower(): name for name in values}
    epoch, batch = (values.get(names.get(word, "")) for word in ("epoch", "batch"))
    stepped = any(RANKS.get(word, EPOCH) <= STEP for word in names)
    if kept is None or stepped or epoch is None or batch is None or not (is_step(epoch) and is_step(batch)):
        return []
    del kept[names["batch"]]
    return [Counter("epoch", str(int(epoch))), Counter("iter", str(int(batch)))]
