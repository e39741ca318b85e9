"""Judges whether an attempt went on from what it was given, by what its program has shown. Pure.

Three things differ: what was *given* (the checkpoint that was put in place), what is *seen* of the program, and what is
*unknown*. A checkpoint that was given proves nothing about the program. Steps that go on, the SDK's word and a loss near the
last one speak for it. Steps that begin low again, and checkpoints of lower steps saved again, speak against it. Weights may be
loaded while the steps begin at 0 again, or the count of steps without the weights: a loss near the last one with low steps, or
with steps that begin below the checkpoint, and steps that go on with a loss as at the beginning, leave it unknown. So do
checkpoints of higher steps: a program that begins again comes to them too, and only some of what it saves is stored.

Steps are compared with the first steps of the attempt that began without a checkpoint, because programs print each step, each
hundredth one, or epochs. If the steps of that attempt fell back while it ran (a count for each epoch), low steps say nothing.
So they do if the first time that the attempt shows to have passed is that of an earlier one: it prints lines of before again.
A first step that falls short of the checkpoint speaks for it only if that step is not exact and the output names fixed steps: a
program that prints by time begins further on where it runs faster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from trainmaster.model.job import Attempt, State
from trainmaster.model.progress import CLOCKS, HEAD, Progress

_LOW, _ON = 0.1, 0.5  # shares of the way from the first steps to the checkpoint: at most, to begin again; at least, to go on
_ON_ALONE = 0.9  # likewise, if the first steps are not known
_BETWEEN = 0.3  # neither
_BEYOND = 2  # times the step of the checkpoint: no step follows it, unless the first steps are known
_FAR, _SAME = 0.5, 0.1  # it had at least halved, and is within this share of that difference: no noise
_APART, _NEAR = 0.1, 0.25  # losses tell something if they differ by so much; near means within this share of the difference


class Word(StrEnum):
    """What the evidence says."""

    SEEN = "seen"  # it went on
    AGAINST = "against"  # it began again
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The word of this moment, and what was seen, as clauses: `its first step was 121`."""

    word: Word
    because: tuple[str, ...] = ()
    loss_anew: bool = False  # its first loss is as at the beginning, which speaks against loaded weights


@dataclass(frozen=True, slots=True)
class _Sign:
    """One kind of evidence. `speaks`: for it (True), against it (False), or neither."""

    speaks: bool | None = None
    text: str = ""
    begin: int | None = None  # the first step of the attempt's own work, if its steps say it


_NO_SIGN = _Sign()


def evidence(attempts: Sequence[Attempt]) -> dict[int, Evidence]:
    """By number, for each attempt that was given a checkpoint. One that was given none has an entry if its steps go on."""
    begun = _begun(attempts)
    found: dict[int, Evidence] = {}
    before = Progress()
    for attempt in attempts:
        if attempt.restored is not None:
            found[attempt.number] = _given(attempt, begun)
        elif attempt.number > 1 and (on := _by_steps(attempt, begun, _reached(before.last_step))).speaks:
            found[attempt.number] = Evidence(Word.SEEN, (on.text,))
        shown = progress_of(attempt)
        before = shown if shown.steps else before
    return found


def lost_work(attempts: Sequence[Attempt]) -> tuple[tuple[int, int], ...]:
    """(attempt, step) for each attempt of which it is certain that earlier work from that step on is lost.

    Wherever the program began, what was done after the checkpoint that it was given is lost. Earlier work is lost if its steps
    say where it began, which they need not: they may count from 0 with the weights loaded.
    """
    seen, begun, before = evidence(attempts), _begun(attempts), Progress()
    found: list[tuple[int, int]] = []
    for attempt in attempts:
        shown, at = progress_of(attempt), attempt.given or Progress()
        reached = _reached(before.last_step) if attempt.restored is None else _reached(attempt.resumed_from_step, at.last_step)
        sign = _by_steps(attempt, begun, reached)
        if attempt.restored is None and sign.speaks is False and _by_loss(shown, begun, before).speaks:
            sign = _NO_SIGN  # it found weights of its own, and counts its epochs from 0
        again = sign.speaks is False and (attempt.restored is None or seen[attempt.number].word is Word.AGAINST)
        began = sign.begin if again or sign.speaks is not False else None
        if attempt.restored is None and not reached and len(shown.steps) > 1 and shown.fell_to is None:
            began = _own_first(shown.steps)  # the agents before were lost: nothing is known of their steps
        first = min(_reached(began, _behind(attempt, begun)), default=None)
        if attempt.number > 1 and first is not None:
            found = [*(one for one in found if one[1] < first), (attempt.number, first)]
        before = shown if shown.steps else before
    return tuple(found)


def _behind(attempt: Attempt, begun: Progress) -> int | None:
    """The first step that is certainly after the checkpoint that it was given; None if the output may count otherwise."""
    at, exact = attempt.given, _exact(attempt)
    if exact is None or at is None or at.last_step is None or at.fell_to is not None or begun.fell_to is not None:
        return None
    return exact + 2  # its name may count from 0 what the output counts from 1


def progress_of(attempt: Attempt) -> Progress:
    """What the program has shown in an attempt. Logs of older versions know its first and last step."""
    outcomes = [node.outcome for node in attempt.nodes if node.outcome is not None]
    told = [*(outcome.progress for outcome in outcomes), attempt.progress]
    known = next((one for one in told if one is not None and one != Progress()), None)
    if known is not None:
        return known
    first = min((o.first_step for o in outcomes if o.first_step is not None), default=None)
    last = max((o.last_step for o in outcomes if o.last_step is not None), default=None)
    return Progress(() if first is None else (first,), last)


def _begun(attempts: Sequence[Attempt]) -> Progress:
    """The first steps and losses of attempts that began without a checkpoint, and whether the steps of any fell back."""
    shown = [progress_of(attempt) for attempt in attempts if attempt.restored is None]
    steps = next((one.steps for one in shown if one.steps), ())
    losses = next((one.first for one in shown if one.first), {})  # of some programs only these are read
    return Progress(steps, fell_to=next((one.fell_to for one in shown if one.fell_to is not None), None), first=losses)


def _given(attempt: Attempt, begun: Progress) -> Evidence:
    shown, at = progress_of(attempt), attempt.given or Progress()
    if not begun.steps:
        begun = replace(begun, steps=at.steps, fell_to=at.fell_to)  # of a fork: of the attempt that made its checkpoint
    steps = _by_steps(attempt, begun, _reached(attempt.resumed_from_step, at.last_step))
    saved, loss = _by_checkpoints(attempt), _by_loss(shown, begun, at)
    again = _printed_again(shown, begun, at)
    if again.text:
        steps, loss = replace(steps, speaks=None, begin=None), again
    if steps.speaks:  # what says the same is nothing new
        saved = saved if saved.speaks is False else _NO_SIGN
    more = [sign for sign in (saved, loss) if not (steps.speaks and sign.speaks)]
    counts = _otherwise_counted(attempt.resumed_from_step, at.last_step) if steps.speaks else _NO_SIGN
    told = tuple(sign.text for sign in (_SDK.get(shown.sdk or "", _NO_SIGN), steps, counts, *more) if sign.text)
    word, against = Word.UNKNOWN, steps.speaks is False or saved.speaks is False
    below = not again.text and _begins_below(attempt, begun)
    if shown.sdk == "loaded" or (steps.speaks and loss.speaks is not False):
        word = Word.SEEN
    elif steps.speaks:
        word = Word.UNKNOWN  # the count may be loaded without the weights
    elif loss.speaks:
        word = Word.UNKNOWN if against or below else Word.SEEN
    elif against:
        word = Word.UNKNOWN if saved.text and saved.speaks is None else Word.AGAINST
        if word is Word.AGAINST and steps.speaks is None:
            told = tuple(text for text in told if text != steps.text)  # which says nothing, and nothing against it
    elif not shown.steps:
        told = (*told, _silent(attempt))
    return Evidence(word, told, loss_anew=bool(loss.text) and not loss.speaks and not again.text)


def _silent(attempt: Attempt) -> str:
    """That no step is known of it. One that went far enough to show a loss, or succeeded, did not end before its first step."""
    if attempt.ended_s is None:
        return "no step of it was read yet"
    succeeded = attempt.verdict is not None and attempt.verdict.state is State.SUCCEEDED
    return "no step of it was read" if succeeded or progress_of(attempt).first else "it ended before a step of it was read"


_SDK = {
    "loaded": _Sign(True, "the SDK loaded it"),
    "asked": _Sign(None, "it asked the SDK for it"),
}


def _otherwise_counted(step: int | None, printed: int | None) -> _Sign:
    """What tells a reader that the checkpoint's name counts something else than the output: epochs, say."""
    if step is None or printed is None or max(step, printed) < 2 * max(1, min(step, printed)):
        return _NO_SIGN
    return _Sign(None, f"its output was at about step {printed} when that checkpoint was saved")


def _reached(*steps: int | None) -> list[int]:
    """How far the program had come, in the counts that are known: of the checkpoint's name, and of the output."""
    return [step for step in steps if step is not None]


def _by_steps(attempt: Attempt, begun: Progress, reached: Sequence[int]) -> _Sign:
    shown = progress_of(attempt)
    if not shown.steps:
        return _NO_SIGN
    first = f"its first step was {shown.steps[0]}"
    shares = _shares(shown.steps, begun.steps, reached)
    if not shares or (not begun.steps and shown.steps[0] > _BEYOND * max(reached)):
        return _Sign(None, f"the first step read of it was {shown.steps[0]}")  # many may have gone before
    back = {} if shown.fell_to is None else _shares((shown.fell_to,), begun.steps, reached)
    fell = shown.fell_to is not None and all(share <= _LOW for share in back.values())
    # One step alone may only be named, "loads step 120". With none to compare it with, it may be the only one ever printed.
    moved = len(shown.steps) > 1 or (bool(begun.steps) and any(shown.steps[0] > step for step in reached))
    furthest, enough = max(shares.values()), _ON if begun.steps else _ON_ALONE
    if furthest >= enough and not fell:
        on = next(step for step, share in shares.items() if share >= enough)
        said = first if on == shown.steps[0] else f"{first}, and then {on}"
        if not moved:
            return _Sign(None, first)
        own = min(step for step, share in (shares | back).items() if share >= _ON)  # before it, it may print its epoch
        short = _falls_short(attempt, begun, reached, shares)
        return _Sign(None, first, own) if short else _Sign(True, said, own)
    sure = len(shown.steps) > 1 or attempt.ended_s is not None  # a first line may count epochs, and the next one steps
    if not fell and (furthest > (_LOW if begun.steps else 0.0) or not sure):
        return _Sign(None, first)
    again = f"its steps fell back to {shown.fell_to}" if fell else f"its steps began again at {shown.steps[0]}"
    if begun.fell_to is not None:
        return _Sign(None, f"{again}, and they fall back in one attempt too")
    return _Sign(False, again, min(shown.steps if shown.fell_to is None else (*shown.steps, shown.fell_to)))


def _falls_short(attempt: Attempt, begun: Progress, reached: Sequence[int], shares: Mapping[int, float]) -> bool:
    """Whether the steps may have begun again, or at an earlier checkpoint, although they are far on the way."""
    steps, exact = progress_of(attempt).steps, _exact(attempt)
    goal = _goal(begun.steps, reached) if exact is None else exact - 1  # the output may count from 0, and names from 1
    own = {step for step, share in shares.items() if share > _LOW} | {_own_first(steps)}
    return goal is not None and min(own) < goal and (exact is not None or not _at_fixed_steps(steps, begun.steps))


def _begins_below(attempt: Attempt, begun: Progress) -> bool:
    """Whether its steps begin below those of the checkpoint, in the same count: it may have loaded an older one of its own."""
    shown, at, exact = progress_of(attempt), attempt.given or Progress(), _exact(attempt)
    if exact is None or at.last_step is None or len(shown.steps) < 2 or (shown.fell_to, begun.fell_to) != (None, None):
        return False
    return _own_first(shown.steps) < exact - 1  # the output may count from 0, and names from 1


def _own_first(steps: Sequence[int]) -> int:
    """The first step of these that is none of a line before the work, such as the number of its epoch: a jump follows that."""
    jump = len(steps) > 1 and (len(steps) < HEAD or steps[1] - steps[0] > 2 * abs(steps[2] - steps[1]))
    return steps[1] if jump else steps[0]


def _exact(attempt: Attempt) -> int | None:
    """The step of the checkpoint that it was given, if it is exact and counts the same as the output."""
    step, at = attempt.resumed_from_step, attempt.given or Progress()
    return None if attempt.resumed_about or _otherwise_counted(step, at.last_step).text else step


def _at_fixed_steps(steps: Sequence[int], begun: Sequence[int]) -> bool:
    """Whether both attempts name each step, or each tenth one, say: no speed lets such an output begin further on."""
    if len(steps) < 2 or len(begun) < 2:
        return False
    every = begun[-1] - begun[-2]
    return every > 0 and steps[-1] - steps[-2] == every and (steps[-1] - begun[-1]) % every == 0


def _shares(steps: Sequence[int], begun: Sequence[int], reached: Sequence[int]) -> dict[int, float]:
    """How far each step that tells something is on the way from the step of the first attempt at this place to the checkpoint.

    0 is the former, 1 the latter.
    A program that prints every few seconds begins at another step each time. So a step that is less than twice the former is
    not far, and no step is compared that was near the checkpoint in the first attempt already.
    """
    pairs = list(zip(steps, begun, strict=False)) if begun else [(steps[0], 1)]
    goal = _goal(begun, reached)
    if goal is None:
        return {}
    ahead = [(now, then, goal - then) for now, then in pairs if 2 * (goal - then) >= goal - pairs[0][1]]
    return {now: min(max(0.0, (now - then) / way), 1.0 if now >= 2 * then else _BETWEEN) for now, then, way in ahead}


def _goal(begun: Sequence[int], reached: Sequence[int]) -> int | None:
    """The nearest step of the checkpoint, in either count, that is beyond the first step of the first attempt."""
    return min((step for step in reached if step > (begun[0] if begun else 1)), default=None)


def _by_checkpoints(attempt: Attempt) -> _Sign:
    """The first of its checkpoints that was stored, if both steps are exact. Earlier ones may be gone before they could be."""
    given, saved = attempt.resumed_from_step, attempt.saved_step
    if given is None or attempt.resumed_about or saved is None or saved == given:
        return _NO_SIGN
    if saved < given:
        return _Sign(False, f"it saved a checkpoint of the lower step {saved}")
    return _Sign(None, f"its first stored checkpoint is of step {saved}")


def _printed_again(shown: Progress, begun: Progress, at: Progress) -> _Sign:
    """Whether its first lines are of an earlier attempt: no clock shows the same time twice to so many digits."""
    for name in CLOCKS:
        now = shown.first.get(name)
        if now is not None and now in (begun.first.get(name), at.first.get(name)) and now != float(f"{now:.3e}"):
            return _Sign(None, f"its first {name}, {now:g}, is that of an earlier attempt: it prints lines of before again")
    return _NO_SIGN


def _by_loss(shown: Progress, begun: Progress, at: Progress) -> _Sign:
    """The first loss that is known at all three places and changed between the beginning and the checkpoint."""
    for name, now in shown.first.items():
        if name not in begun.first or name not in at.last or name in CLOCKS:
            continue
        first, last = begun.first[name], at.last[name]
        apart = abs(first - last)
        if apart <= _APART * max(abs(first), abs(last)):
            continue
        if abs(now - last) <= _NEAR * apart:
            return _Sign(True, f"its first {name}, {now:.4g}, is near the {last:.4g} of the checkpoint")
        risen = last > first and "loss" in name.lower()  # noisy, or diverging: a lower value is no sign of lost weights
        if abs(now - first) <= _NEAR * apart and not risen:
            clear = apart >= _FAR * abs(first) and abs(now - first) <= _SAME * apart
            return _Sign(False if clear else None, f"its first {name}, {now:.4g}, is as at the beginning ({first:.4g})")
    return _NO_SIGN
