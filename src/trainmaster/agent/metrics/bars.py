"""Progress bars: tqdm's `desc: 45%|███ | 450/1000 [00:10<00:12, 45.0it/s, loss=0.3]`, Keras's, and tables of progress."""

from __future__ import annotations

import math
import re

from trainmaster.agent.metrics.vocabulary import NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional, Set, Tuple

    Found = Optional[tuple[Optional[int], dict[str, float]]]

LINES_WITHOUT_ROW = 30  # after so many, the header of a table no longer counts

_BAR = re.compile(r"(\d{1,3})%\|[^|]{0,400}\| {0,2}([\d.]{1,15}[kMGT]?)/([\d.]{1,15}[kMGT]?) {0,2}\[([^]\n]{0,2000})(\]?)")
_RATE = re.compile(r"(?:\?|[\d.]{1,15}) {0,2}(?:[a-z]{1,12}/s|s/[a-z]{1,12})(?:, |$)", re.IGNORECASE)
_BYTES = re.compile(r"(?:\?|[\d.]{1,15}) {0,2}(?:[kmgt]?i?b(?:ytes)?/s|s/[kmgt]?i?b(?:ytes)?(?!\w))", re.IGNORECASE)
_EPOCHS = re.compile(r"(?:\?|[\d.]{1,15}) {0,2}(?:epochs?/s|s/epochs?)(?:, |$)", re.IGNORECASE)  # `tqdm(unit="epoch")`
_KERAS = re.compile(r"(?:Epoch \d{1,9}(?:/\d{1,9})? )?\d{1,12}/(?:\d{1,12}|Unknown|None) {1,2}(?:\[[=>.]|━|- )")
_DASHED = re.compile(r"(?:^|(?<=, ))([A-Za-z][^\s,:=]{0,60}) - (?=[-+]?[\d.]|nan|inf)")  # dice_loss - 0.7, iou_score - 0.2
_DONE = re.compile(r"(step|iter|iteration|epoch) \(% ?done\)(?: {2}|\Z)", re.IGNORECASE)
_DONE_ROW = re.compile(r"(\d{1,15}) \((\d{1,4}(?:\.\d{1,4})?)%\)(?: {2}|\Z)")
_TIME = re.compile(r"\d{1,9}(?:\.\d{1,6})? (?:ms|[smhd])(?:[ ,]|\Z)")
_ROUNDED = 0.02  # how far the totals of two rows may be apart, whose shares are rounded
_SCALED = re.compile(rf"({NUMBER}) ?([KMBTP]?)\Z")
_SCALES = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12, "P": 15}
_DRAWN_MAX = 100  # rows that are known again


class Bar:
    """One state of a bar: what stands before it, where it is, and what stands in it and after it.

    `counts`: where it is, its total, and whether it counts epochs.
    """

    def __init__(self, description: str, counts: Tuple[int, int, bool], postfix: str, after: str) -> None:
        self.description = description
        self.at, self.total, self.epochs = counts
        self.postfix = postfix
        self.after = after


class _Sets:
    """How often the values of a bar were set between its moves: equally often for each position.

    A state that is drawn again with the same values is a step with the same loss, or the same step: a bar is also drawn again
    when a line is printed above it. Which of the two it is shows when the bar moves on.
    """

    def __init__(self) -> None:
        self._equal: Set[bool] = set()  # whether drawing the same values again was a step: what was seen so far
        self.begin()

    def begin(self) -> None:
        """The bar begins again."""
        self._move = self._per_move = 0  # the last move, and how often values were set before it
        self._changes = self._draws = 0  # since then

    def moved(self, by: int) -> None:
        """The bar has moved on."""
        count = self._count()
        if self._changes != self._draws:
            if self._changes and self._changes % by == 0:
                count = self._changes
                self._equal.add(False)
            elif self._draws % by == 0:
                count = self._draws
                self._equal.add(True)
        self._move, self._per_move = by, max(1, count)
        self._changes = self._draws = 0

    def draw(self, changed: bool, moved: bool) -> None:
        """The bar was drawn, with other values or the same, at another position or the same."""
        self._changes += changed
        self._draws += changed or not moved

    def part(self) -> Optional[int]:
        """How far beyond the position of the bar its values are. None if that is not known."""
        if not self._move or (self._changes != self._draws and len(self._equal) != 1):
            return None
        part = math.ceil(self._count() * self._move / self._per_move)
        return part if 0 < part <= self._move else None

    def _count(self) -> int:
        return self._draws if self._equal == {True} else self._changes


class Positions:
    """Of which position the values in a bar are.

    `for x in tqdm(…): …; bar.set_postfix(loss=…)` draws the values of a step before the bar moves on to it: `0/4 [loss=1.4]`,
    then `1/4 [loss=1.4]`, `1/4 [loss=1.3]`. That shows at the beginning, where nothing has been done. In such a bar, values
    that change belong to the position that comes next. A fast bar moves by several positions at once, and a step may change
    its values more than once: how often they changed before the last move tells to which position a change belongs.
    """

    def __init__(self) -> None:
        self._total = self._at = self._begun = -1
        self._sets = _Sets()
        self._ahead: Optional[bool] = None  # whether values are drawn before the move; None: no values yet
        self._values = ""  # as text, in which NaN equals itself
        self._given: Optional[int] = None
        self._within = False  # a bar that may count epochs counted the batches of one
        self._told = ""  # the last position and its values
        self.again = False  # it was told before: where the bar says no step, this is no second point

    def of_epochs(self, bar: Bar, epoch: int, epochs: int) -> bool:
        """Whether a bar counts the epochs that stand before it, `Epoch 2/12:   8%|▊ | 1/12`, and not as many batches."""
        if bar.total != epochs:
            return False
        self._within = self._within or bar.at not in (epoch - 1, epoch)
        return not self._within

    def stale(self, bar: Bar, values: Dict[str, float]) -> bool:
        """Whether a bar begins again with the values that it showed last, as Lightning's does after each epoch."""
        return bar.total == self._total and bar.at == 0 < self._at and values != {} and repr(values) == self._values

    def of(self, bar: Bar, values: Dict[str, float]) -> Optional[int]:
        """The position of the values that a bar has now. None if it is a later one, and it is not known which that is."""
        at = self._of(bar, values) if bar.at >= 0 else bar.at
        before, self._told = self._told, repr((at, values))
        self.again = self._told == before
        return at

    def _of(self, bar: Bar, values: Dict[str, float]) -> Optional[int]:
        shown = repr(values)
        if not values and self._values not in ("", "{}") and bar.total != self._total and self._at < self._total:
            return bar.at  # of a loop inside, such as a validation: the bar of the training goes on below it
        if bar.total != self._total or bar.at < self._at:
            self._total, self._begun = bar.total, bar.at
            self._sets.begin()
            self._ahead = False if any(values.values()) else None
            self._at, self._values, self._given = bar.at, shown, bar.at
            return bar.at
        changed = shown != self._values
        if self._ahead is None and any(value != 0.0 and math.isfinite(value) for value in values.values()):
            self._ahead = bar.at == self._begun
        moved = bar.at - self._at
        if moved:
            self._sets.moved(moved)
            self._given = bar.at
        self._at, self._values = bar.at, shown
        self._sets.draw(changed, bool(moved))
        if self._ahead and changed:
            part = self._sets.part()
            self._given = None if part is None else min(bar.at + part, bar.total)
        return self._given


def tqdm_bar(text: str) -> Optional[Bar]:
    """The bar of a line; `at` and `total` are -1 if they are rounded (`21.0M`) or bytes of a download."""
    if "%|" not in text:
        return None
    match = _BAR.search(text)
    if match is None:
        return None
    inside, after = match.group(4), text[match.end() :].strip()
    if after.startswith(": ") and after.endswith("]"):
        inside, after = f"{inside}]{after[:-1]}", ""  # of NumPyro: avg. loss [401-500]: -163.66]
    rate = _RATE.search(inside)
    epochs = _EPOCHS.search(inside) is not None
    whole = match.group(2).isdigit() and match.group(3).isdigit() and (rate is None or _BYTES.match(rate[0]) is None)
    counts = (int(match.group(2)), int(match.group(3)), epochs) if whole else (-1, -1, False)
    description = text[: match.start()].strip().rstrip(":").rstrip()
    postfix = inside[rate.end() :] if rate is not None else inside.partition(", ")[2]  # NeMo's bar has no rate
    return Bar(description, counts, _DASHED.sub(r"\1=", postfix), after)


def is_keras_bar(text: str) -> bool:
    """Whether a line is a bar of Keras, or the line that Keras prints in place of one."""
    return _KERAS.match(text) is not None and (": " in text)


class Progressing:
    """A table of how much is done: `Step (% Done)  Train Rays / Sec`, and below it `10 (1.11%)  117.66 K` (nerfstudio).

    Its last rows are drawn again below each new one. Columns of other values than numbers, such as times, are left out, and a
    row without one of the columns has only its step: which of them is blank is not known. So has each row where no header is
    printed, as after a resume: two rows with a time, which agree on the total, show that there is a table.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._word = ""  # of the first column
        self._drawn: dict[str, None] = {}  # rows, in their order
        self._lines = 0  # without a row, since the last one
        self._before = (0, 0.0)  # the step of a row without a header, and its total

    @property
    def open(self) -> bool:
        """Whether a header was seen."""
        return bool(self._word)

    def _begins(self, row: re.Match[str], rest: str) -> bool:
        """Whether a row without a header and one before it agree on the total."""
        step, share = int(row[1]), float(row[2])
        if not share or _TIME.match(rest) is None:
            return False
        (before, total), self._before = self._before, (step, step / share)
        return step > before > 0 and abs(step / share - total) <= _ROUNDED * total

    @property
    def counts_epochs(self) -> bool:
        """Whether its rows are of epochs."""
        return self._word == "epoch"

    def feed(self, text: str) -> tuple[bool, Found]:
        """(whether the line is a header or a row, what a row says that was not drawn before)."""
        header = _DONE.match(text)
        if header is not None:
            self._word, self._lines = header[1].lower(), 0
            cells = [name.strip() for name in text[header.end() :].split("  ") if name.strip()]
            self._names = [name.replace(" / ", "/").replace(" ", "_") for name in cells]
            return True, None
        row = _DONE_ROW.match(text)
        if row is not None and not self._word and self._begins(row, text[row.end() :]):
            self._word, self._names = "step", []
        if row is None or not self._word:
            self._lines += 1
            self._word = self._word if self._lines <= LINES_WITHOUT_ROW else ""
            return False, None
        self._lines = 0
        if text in self._drawn:
            return True, None
        self._drawn[text] = None
        if len(self._drawn) > _DRAWN_MAX:
            del self._drawn[next(iter(self._drawn))]
        cells = text[row.end() :].split("  ") if row.end() < len(text) else []
        found = [_SCALED.match(cell.strip()) for cell in cells] if len(cells) == len(self._names) else []
        values = {
            name: float(f"{cell[1].replace(',', '')}e{_SCALES[cell[2]]}")
            for name, cell in zip(self._names, found)  # noqa: B905 - Python 3.9
            if cell is not None and "e" not in cell[1].lower() and cell[1][-1:].isdigit()
        }
        return True, (int(row[1]), values)
