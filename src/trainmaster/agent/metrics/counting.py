"""Steps that a program's lines do not name as such: those counted in each epoch anew, and those of Transformers' bar."""

from __future__ import annotations

import re

from trainmaster.agent.metrics.pairs import Counter
from trainmaster.agent.metrics.vocabulary import BATCH, EPOCH, STEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.metrics.bars import Bar

    Found = Optional[tuple[Optional[int], dict[str, float]]]

_OF_EPOCH = ("steps", "train_steps", "training_steps", "total_steps")  # beside an epoch: how many it has, or all so far
_BARE = "number"  # the word of a counter that has none
_SHARE = 5  # a bar may be late by a fifth
_NAMED_SHARE = 50  # a step counted over epochs is within this share of a named one, if both count the same
_EPOCHS_PASSED = 2  # while a step stands still
_AT_END = re.compile(r"\[ {0,8}(\d{1,12})/(\d{1,12})\]\Z")  # of PyTorch's tutorial: loss: 2.30  [   64/60000]
_AT_BEGIN = re.compile(r"(\d{1,12})/(\d{1,12}), {1,2}(?=[A-Za-z])")  # of MONAI's: 1/5, train_loss: 0.51
_DRAWN = re.compile(r"\[=*>?\.*\] .*? {1,2}(\d{1,9})/(\d{1,9})\Z")  # [====>...] Step: 62ms | Loss: 2.333 | Acc: 10.8%  10/16
_LINES_HELD = 5  # a dictionary waits so long for the bar


class EpochCounts:
    """How a program numbers its epochs: learned from its lines, and given to its next attempt, which may begin in any epoch.

    `given`: the step in the name of the checkpoint that this attempt was given.
    """

    __slots__ = ("anew", "first", "given", "steps")

    def __init__(
        self,
        first: Optional[int] = None,
        steps: Optional[int] = None,
        anew: Optional[bool] = None,
        given: Optional[int] = None,
    ) -> None:
        self.first = first  # the number of its first epoch: 0 or 1
        self.steps = steps  # of an epoch, if each begins anew and no line names the total
        self.anew = anew  # whether the steps to a total begin anew in each epoch; None: not known yet
        self.given = given

    def follows(self, epoch: int, step: int) -> bool:
        """Whether a first line goes on from the given checkpoint's step. One that may be an epoch's number says nothing."""
        return self.given is not None and epoch < self.given < step and _SHARE * (step - self.given) <= self.given


class Steps:
    """Chooses the step among the counters of a line. An epoch is one until a step was seen, a batch until an epoch was."""

    def __init__(self, epochs: Optional[EpochCounts] = None) -> None:
        self.seen = False  # whether a step was
        self.recounted = False  # whether steps were seen after epochs were taken for them
        self._epochs_seen = False
        self._taken = False  # whether an epoch was taken for a step
        self._standing = StandingStep()
        self._word = ""  # of the last step
        self._others: set[str] = set()  # counters that stood beside the step: they count something else
        self.epochs = epochs or EpochCounts()
        self._over_epochs = StepsOfEpochs(self.epochs)
        self._counted: Optional[int] = None  # the last step that was counted over epochs
        self._agrees = False  # whether it was so far when a line named a step
        self.bar = BesideSteps()

    def bare(self, number: str) -> list[Counter]:
        """A number without a word as a counter. One below a step that a word named is none: it may be of a class.

        If only epochs were seen so far, it may count the batches of each.
        """
        word = "batch" if self._epochs_seen and not self.seen else _BARE
        return [] if self._word not in ("", _BARE) and int(number) < self.bar.last else [Counter(word, number)]

    def below_epoch(self, text: str) -> list[Counter]:
        """The counters of a line of values that says its position in the epoch above it, as long as no line names a step."""
        return self._over_epochs.above.position(text) if not self.seen or self._word == "batch" else []

    def evaluates(self, text: str) -> bool:
        """Whether a line of values without a counter is that of an evaluation, by its place in the epoch above it."""
        return self._over_epochs.above.evaluates(text)

    def choose(self, said: list[Counter], valued: bool, word: str) -> tuple[bool, Optional[int]]:
        """(whether a line names a step or an epoch, the step). `word`: see `pairs.head`."""
        measured, valued = valued, valued or any(one.alone for one in said)
        usual = self._word if self._standing.moved else ""  # Caffe's `Iteration 5000, step = 1` counts its learning rates
        ranked = [one for one in said if one.alone or valued]
        ranked.sort(key=lambda one: (one.rank, one.word != usual, "step" not in one.word))
        if not ranked:
            return False, None
        epoch = next((one for one in ranked if one.rank == EPOCH), None)
        first = ranked[0] if epoch is None or ranked[0].word not in _OF_EPOCH else epoch
        if epoch is first:
            first = next((one for one in ranked if one.rank == BATCH and self._is_position(first, one)), first)
        self._epochs_seen = self._epochs_seen or epoch is not None
        self._over_epochs.above.named(epoch, alone=len(said) == 1 and not measured)
        within = epoch is not None and first.rank in (1, STEP, BATCH) and (first.rank != STEP or not first.total)
        if first.rank > STEP and not within:
            if first.rank == EPOCH:
                self._standing.epoch(first.count)
            counted = (not self.seen or self._standing.stands) and not (first.rank == BATCH and self._epochs_seen)
            self._taken = self._taken or counted
            return True, first.count if counted else None
        self._others.update(one.word for one in ranked if one.rank <= STEP and one.word != first.word)
        if (first.word in self._others and first.word != self._word) or (word and (first.total or first.rank == BATCH)):
            return True, None  # or the position in an evaluation
        if epoch is not None and first.total and self._word not in ("", first.word):
            self._counted = self._over_epochs.step(epoch, first)
            return True, self._counted if self._agrees else None  # the program names its steps elsewhere
        self._standing.step(first.count)
        if self._standing.stands:
            return True, None
        self.recounted = self.recounted or (self._taken and not self.seen)
        self.seen, self._word = True, first.word
        step, before = first.count, self._counted
        if within and epoch is not None:
            step = self._counted = self._over_epochs.step(epoch, first)
        if not first.total:
            self._agrees = before is not None and _NAMED_SHARE * abs(step - before) <= step
        self.bar.named(step)
        return True, step

    def _is_position(self, epoch: Counter, batch: Counter) -> bool:
        """Whether a batch beside an epoch is the position in it. If no line says of how many, the program may name steps."""
        if batch.total:
            return batch.count <= batch.total
        return self._over_epochs.moves(epoch, batch) and self._word in ("", batch.word)


class StandingStep:
    """A count that stands still while epochs go on is no step: scikit-learn prints `Iteration 1` at each `partial_fit`."""

    def __init__(self) -> None:
        self._only: Optional[int] = None  # the only step that was named
        self.moved = False  # whether another one was
        self._epoch = -1  # the last one, on a line without a step
        self._passed = 0  # epochs since the step was named

    @property
    def stands(self) -> bool:
        """Whether the step is none."""
        return not self.moved and self._passed >= _EPOCHS_PASSED

    def step(self, count: int) -> None:
        """A line named a step."""
        self.moved = self.moved or self._only not in (None, count)
        self._only = count

    def epoch(self, count: int) -> None:
        """A line named an epoch and no step."""
        self._passed += self._only is not None and count > self._epoch >= 0
        self._epoch = count


class EpochsBar:
    """A bar of the epochs that are over, `Epoch:  25%|██▌  | 1/4`, and below it one that begins again in each epoch."""

    def __init__(self) -> None:
        self._at = self._total = 0
        self._goes_on = False  # the bar below it: it counts over all epochs
        self._begin()

    def _begin(self) -> None:
        self._below: Optional[tuple[str, int]] = None  # the bar below it: the first one with values
        self._last = -1  # where that was
        self._epoch = 0  # of its values
        self._moved = False  # whether the epochs did since

    def draw(self, bar: Bar) -> None:
        """It was drawn."""
        if bar.at < self._at or bar.total != self._total:
            self._begin()
        self._moved = self._moved or bar.at > self._at
        self._at, self._total = bar.at, bar.total

    def epoch(self, bar: Bar, valued: bool) -> Optional[int]:
        """In which epoch another bar counts, from 0; None if it does not."""
        self._below = self._below or ((bar.description, bar.total) if valued else None)
        if (bar.description, bar.total) != self._below or not 0 <= self._at < self._total or bar.at < 0:
            return None
        self._goes_on = self._goes_on or (self._moved and bar.at >= self._last > 0)
        self._epoch = max(self._epoch + (bar.at < self._last), self._at)  # the move of a fast program may not be drawn
        self._last, self._moved = bar.at, False
        return 0 if self._goes_on else self._epoch


class BesideSteps:
    """A bar with values, and beside it lines that name some of the steps: `[ITER 7000] Evaluating`.

    From the first such line on, the bar's position gives the steps between, if it is near the named step. The bar of a resumed
    program may begin at 0: then two named steps must be as far apart as the bar's positions. It is drawn some steps late.
    """

    def __init__(self) -> None:
        self.epochs = EpochsBar()  # another bar
        self._at = self._total = 0
        self._behind: Optional[int] = None  # the steps by this much
        self._named: Optional[tuple[int, int]] = None  # the last named step, and where the bar was

    @property
    def last(self) -> int:
        """The last named step."""
        return -1 if self._named is None else self._named[0]

    def moved(self, at: int, total: int) -> Optional[int]:
        """A bar was printed. Returns its step if that is known."""
        if total != self._total or at < self._at:
            self._behind = self._named = None
        self._at, self._total = at, total
        return at + self._behind if self._behind is not None else None

    def named(self, step: int) -> None:
        """A line named a step."""
        before, self._named = self._named, (step, self._at)
        apart = step - self._at
        if self._at <= 0 or apart < 0:
            self._behind = None
        elif _SHARE * apart <= step:
            self._behind = 0
        elif before is not None and _SHARE * abs(step - before[0] - (self._at - before[1])) <= step - before[0]:
            self._behind = apart if self._behind is None else min(apart, self._behind)
        else:
            self._behind = None


class EpochAbove:
    """The epoch that a line named and nothing else, and the positions in it that lines below it begin or end with."""

    def __init__(self) -> None:
        self._epoch: Optional[int] = None
        self._total = ""  # of the positions
        self._at = 0  # where the bar of characters was
        self._again = False  # it began again in this epoch, or another one did

    def named(self, epoch: Optional[Counter], alone: bool) -> None:
        """A line named an epoch. `alone`: nothing else is in it."""
        if epoch is not None and alone:
            if epoch.count != self._epoch:
                self._at, self._again = 0, False
            self._epoch = epoch.count

    def position(self, text: str) -> list[Counter]:
        """The epoch above, and the position that a line begins or ends with. One of another total counts otherwise."""
        drawn = _DRAWN.match(text)
        match = drawn or _AT_BEGIN.match(text) or (_AT_END.match(text, text.rfind("[")) if text.endswith("]") else None)
        if match is None or self._epoch is None:
            return []
        is_other = match[2] != (self._total or match[2])
        if drawn is not None:
            self._again = self._again or is_other or int(drawn[1]) < self._at
            self._at = int(drawn[1])
        if is_other or (drawn is not None and self._again):
            return []
        self._total = match[2]
        return [Counter("epoch", str(self._epoch)), Counter("batch", match[1], match[2], match.start(1))]

    def evaluates(self, text: str) -> bool:
        """Whether a line is of a second bar of characters in this epoch: the first is that of the training."""
        return self._again and _DRAWN.match(text) is not None


class StepsOfEpochs:
    """Of `Epoch [2/10], Step [100/600]`, the step over all epochs: 700.

    A program may also count over all epochs itself. Then the step's share of its total is that of the epochs, or a higher
    epoch does not begin with a lower step. Without a total, an epoch is as long as its printed steps say: from the
    first to the last one, and as far as from one to the next.
    """

    def __init__(self, counts: EpochCounts) -> None:
        self._counts = counts
        self._last = (-1, -1)  # epoch and step of the line before
        # If no line names the total:
        self._first, self._highest, self._gap = 0, 0, 0  # steps of this epoch, and between its last two lines
        self._before = 0  # steps before this epoch
        self.above = EpochAbove()
        self._batches: list[Counter] = []  # the last epoch, and the batch without a total beside it
        self._moved = False

    def moves(self, epoch: Counter, batch: Counter) -> bool:
        """Whether the batches that lines name without a total change in an epoch. Else they may be the size of one."""
        before, self._batches = self._batches, [epoch, batch]
        self._moved = self._moved or self._counts.steps is not None  # in an earlier attempt
        if not self._moved and before and before[0].count == epoch.count and before[1].count != batch.count:
            self._moved = True
            self.step(*before)
        return self._moved

    def step(self, epoch: Counter, step: Counter) -> int:
        """The step over all epochs."""
        if epoch.count == 0 or (epoch.count == 1 and self._counts.first is None):
            self._counts.first = epoch.count  # a later one says nothing: the bar of a fast program is not read at each epoch
        (before, last), self._last = self._last, (epoch.count, step.count)
        passed = max(0, epoch.count - (1 if self._counts.first is None else self._counts.first))
        if not step.total:
            return self._unbounded(passed, epoch.count - before if before >= 0 else None, step.count)
        if step.rank == BATCH:
            self._counts.anew = True  # a position in an epoch
        if passed and self._counts.anew is None:
            follows = before < 0 and self._counts.follows(epoch.count, step.count)
            if follows or step.count > step.total or (before == epoch.count - 1 and step.count > last >= 0):
                self._counts.anew = False
            elif (before < epoch.count and step.count <= last) or not epoch.total or not _shared(passed, step, epoch):
                self._counts.anew = True
        if step.count > step.total:
            self._counts.anew = False  # whatever an earlier attempt told
        return passed * step.total + step.count if self._counts.anew and step.count <= step.total else step.count

    def _unbounded(self, passed: int, further: Optional[int], count: int) -> int:
        """`further`: epochs since the line before; None for the first line."""
        if further is None or further < 0:
            self._before = passed * (self._counts.steps or 0)
        elif further and count <= self._highest:
            length = self._highest + self._gap - self._first if self._gap else self._highest
            self._counts.steps = max(length, self._counts.steps or 0, self._highest - count + 1)
            self._before += further * self._counts.steps
        if further == 0 and count > self._highest:
            self._gap = count - self._highest
        self._first, self._highest = (self._first, max(count, self._highest)) if further == 0 else (count, count)
        return self._before + count


def _shared(passed: int, step: Counter, epoch: Counter) -> bool:
    """Whether the step's share of its total is that of an epoch, after `passed` whole ones."""
    return passed <= step.count / step.total * epoch.total <= passed + 1


class TrainerBar:
    """Transformers prints dictionaries without a step, and beside them a bar of all steps.

    The bar may be drawn late. But it is drawn again after each dictionary, so a dictionary is reported with the line after it.
    """

    def __init__(self) -> None:
        self.total = 0  # of the bar of all steps
        self._at = 0
        self._used = False  # a dictionary was printed beside it: other bars are those of evaluations
        self._moved = False  # by the line that is read now
        self._held: list[Found] = []
        self._offered: Optional[dict[str, float]] = None
        self._lines = 0  # since the held dictionary

    @property
    def holds(self) -> bool:
        """Whether something is to be reported later."""
        return bool(self._held)

    def at_bar(self, bar: Bar) -> Optional[int]:
        """A bar was printed. Returns its step if it is the bar of all steps, which is known from the first dictionary on."""
        if bar.description or bar.epochs or bar.total <= 0:
            return None
        if bar.total == self.total or not self.total or (not self._used and self._at >= self.total):
            self.total, self._at, self._moved = bar.total, bar.at, True
        return self._at if self._moved and self._used else None

    def offer(self, values: dict[str, float]) -> bool:
        """A dictionary without a step was printed. Returns whether the bar will say its step. A download's bar does not."""
        if not self.total or (not self._used and self._at >= self.total):
            return False
        self._offered = values
        return True

    def take(self, found: Found) -> Found:
        """What is to be reported after a line that said `found`."""
        moved, self._moved = self._moved, False
        offered, self._offered = self._offered, None
        held = self._held
        if not held:
            if offered is not None:
                self._used = True
                self._held, self._lines = [(None, offered)], 0
            return found
        self._lines += 1
        if not moved and offered is None and found is None and self._lines < _LINES_HELD:
            return None
        due = self.release()
        if offered is not None:
            self._held, self._lines = [(None, offered)], 0
        elif found is not None and found[1]:
            self._held, self._lines = [found], _LINES_HELD
        return due

    def release(self) -> Found:
        """What is held; a dictionary gets the bar's step."""
        held, self._held = self._held, []
        if not held or held[0] is None:
            return None
        step, values = held[0]
        return (self._at if step is None else step), values
