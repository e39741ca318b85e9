"""Steps and `name value` pairs in a line of text.

Values are found first, and each name is looked for in the text between the value before and its own: so the time grows with
the length of the line only.
"""

from __future__ import annotations

import re
from collections import Counter as Multiset
from itertools import islice

from trainmaster.agent.metrics.vocabulary import ALONE, NUMBER, RANKS, STEP, is_exact, is_metric, measured, number, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Optional

_STEP = re.compile(  # of a text in lower case: far faster than re.IGNORECASE
    r"(?=[egtnisru])(?<![\w.\\-])(?<![^\d]/)(?:(?:trainer|train)/)?"
    r"((?:global|train|training|total|num|env)[_ ](?:time)?steps?|num_updates|training_iteration|timesteps?|iterations?|iters?"
    r"|itr|it|steps?|epoch|episode|round|generation|updates?)"
    r"(?:\((?:train|training|val|valid|test|eval)\))?['\"]? {0,2}(?:(?:no\.?|number|num|nr\.?) )?"
    r"(?:[:=#] {0,2})?(?:[\[(] {0,2})?"
    r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})"
    r"(?![\d%A-Za-z_]|[.,]\d|:\d\d|-\d|(?:-step=\d{1,15})?(?:-v\d{1,9})?\.[A-Za-z])"  # also not in epoch=3-step=320.ckpt
    r"(?: ?(?:/|of) ?(\d{1,15}))?",
)
_TRAIN = re.compile(r"Train(?:ing)?: (\d{1,9}) {1,2}\[ {0,2}\d{1,12}/\d")  # timm: the epoch, and the batch in brackets
_ROUND = re.compile(
    r"\[ {0,2}(\d{1,12})(?: {0,2}([/,]) {0,2}\d{1,12})?\](\[ {0,2}\d{1,12}/\d{1,12}\])?:? {1,2}(?=[A-Za-z\"'%][^:=]{0,80}[:=])"
    r"|(\d{1,12}): {1,2}(?=[A-Za-z][^:=]{0,80}[:=])"
)
_VALUE = re.compile(
    rf"(?<=[ :=>\[('\"])({NUMBER})(?:/(\d{{1,12}})(?: ?\( {{0,2}}(\d{{1,3}}(?:\.\d{{1,6}})?) ?%\))?)?"
    r"(?=%?\.{0,3}(?:[\s;|)\]}'\"<(•]|,(?!\d)|$)|: |[+±])"
)
_OPENINGS = ("tensor([", "tensor(", "[", "'", '"')  # between a separator and a value: lr=[0.1, 0.1]
_SEPARATORS = (":", "=", "->")
_AFTER_UNIT = re.compile(r" \([^()]{1,20}\)$")
_CALL = re.compile(r"(?<![\w(])[A-Za-z]\w{0,20}\([\w(),]{0,20}\)$")  # D(x)
_BEFORE_NAME = re.compile(r".*(?:[,;|()\[\]{}<>•→─━═█]|[.:!?%] |[:=]|  | - |--)", re.DOTALL)
_SENTENCE = words("with and is was are has have had achieved reached got done finished complete completed after the a an")
_JOINED = words(
    "train training val valid validation eval evaluation test testing dev average avg mean learning grad gradient running final"
)
_WORDS_MAX = 6  # of a name
_GAP_MAX = 80  # characters before a value in which its name is looked for
_UNIT_MAX = 12  # characters after a number that may say that it is no count
_HEAD_MAX = 100  # characters at the beginning of a line
_VALUES_MAX, _COUNTERS_MAX = 64, 16  # of a line
_NAME = re.compile(r"[A-Za-z][^\s\"'=]{0,120}\Z")
_BEST = (" at", " from", " in", " was", " is", " best", " best:")
_HEAD = re.compile(
    r"(?:^|[|\]\[-] {0,2})(test|testing|val|valid|validation|validating|eval|evaluation|evaluating|dev)"
    r"(?: (?:set|on|results?|metrics?|data|loop)\b[^|:\[]{0,40})?(?: {0,2}[:\[\]|]|(?= (?:epoch|step|iter|num_)))",
    re.IGNORECASE,
)
_HEADS = {"testing": "test", "validating": "val", "evaluating": "eval"}
_QUALIFIED = re.compile(r"(?:test|val|eval|dev)", re.IGNORECASE)
_OF = re.compile(r"((?:[A-Za-z]{1,20} ){0,2}[A-Za-z]{1,20}) (?:of|on|for|over) [^:=]{1,100}[:=] {0,2}")
_OPERATORS = ("*", "/", "+", "<", ">", "=")


class Counter:
    """A counter that a line names: its rank in `RANKS`, its number, and the number that it counts to, if it says so."""

    def __init__(self, word: str, digits: str, total: Optional[str] = None, at: int = -1) -> None:
        self.at = at  # where its number begins
        self.word = word.lower().replace(" ", "_")
        self.rank = RANKS.get(self.word, RANKS.get(self.word.rpartition("_")[2], STEP))
        self.count = int(digits.replace(",", ""))
        self.total = int(total) if total else 0

    @property
    def alone(self) -> bool:
        """Whether it counts as progress where no value is beside it."""
        return self.word in ALONE


class Pair:
    """A value and its name. `spaced`: only blanks are between them; `whole`: nothing but the name is before it."""

    def __init__(self, name: str, value: float, spaced: bool, at: int) -> None:
        self.name, self.value, self.spaced = name, value, spaced
        self.at = at  # where its number begins
        self.whole = self.stands_alone = self.measured = False
        # `stands_alone`: written as a measured value is, and not part of a formula


def counters(text: str) -> list[Counter]:
    """All counters of a line. The number of a best epoch, or of steps per epoch, is none."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text  # a letter that has two in lower case
    lowered = lowered[: max(map(lowered.rfind, "0123456789")) + _UNIT_MAX]  # after the last digit is no counter
    found = [Counter(match[1], match[2], match[3], match.start(2)) for match in islice(_STEP.finditer(lowered), _COUNTERS_MAX)
             if not _of_another(f" {lowered[max(0, match.start() - 60) : match.start()]}".rstrip(" '\""))]  # fmt: skip
    train = _TRAIN.match(text)
    return [*found, Counter("epoch", train[1], at=train.start(1))] if train is not None else found


def _of_another(before: str) -> bool:
    """Whether the text before a counter says that it is not the count of now: `best results at epoch 72`, `steps per epoch`."""
    return before.endswith(" per") or ("best" in before and before.endswith(_BEST))


def round_number(text: str) -> Optional[tuple[Counter, str]]:
    """The number at the beginning of a line, as XGBoost, LightGBM and CatBoost print it, and the rest of the line."""
    match = _ROUND.match(text)
    if match is None:
        return None
    word = "epoch" if match[2] == "," or match[3] else "step"
    return Counter(word, match[1] or match[4]), text[match.end() :]


def head(text: str) -> str:
    """`test`, `val` or another word that a line begins with and that belongs to all its values; "" if there is none."""
    match = _HEAD.search(text, 0, _HEAD_MAX)
    if match is None:
        return ""
    word = match[1].lower()
    return _HEADS.get(word, word)


def under(word: str, name: str) -> str:
    """`name` below the word that its line begins with."""
    return name if not word or _QUALIFIED.match(name) else f"{word}_{name}"


def named(word: str, given: list[Pair]) -> dict[str, float]:
    """The values of a line by name. `word`: see `head`.

    Of a name that comes twice, as in `Train Loss: 0.3 Acc: 0.8 | Test Loss: 0.4 Acc: 0.7`, each is under the word of the value
    before it: `Train_Acc`, `Test_Acc`.
    """
    times = Multiset(pair.name for pair in given)
    values: dict[str, float] = {}
    last = ""
    for pair in given:
        first, _, rest = pair.name.partition("_")
        name = pair.name
        if rest and first.lower() in _JOINED:
            last = first
        elif last and times[name] > 1:
            name = f"{last}_{name}"
        values.setdefault(under(word, name), pair.value)
    return values


def pairs(text: str) -> Iterator[Pair]:
    """The named values of a line."""
    before = 0
    of_name, of_end = _of(text)
    for match in islice(_VALUE.finditer(text), _VALUES_MAX):
        gap, spaced = _separated(text[max(before, match.start() - _GAP_MAX) : match.start()])
        name = _name(gap, spaced)
        known = bool(name) and measured(name)
        if spaced and match[1].isalpha() and not known:
            continue  # number of nan iterations: 0
        before = match.end()
        if match.start() == of_end and not known:
            name, known = of_name, True
        value = number(match[1])
        if not name or value is None:
            continue
        exact = is_exact(match[1])
        if match[2]:
            if not known or not int(match[2]):
                continue
            value = round(value / int(match[2]) * (100 if match[3] else 1), 6)
        elif spaced and not exact and not known and not _is_cell(gap, text[match.end() : match.end() + 3]):
            continue
        rest = text[match.end() : match.end() + 3].strip()
        exact = exact or bool(match[2]) or rest.startswith("%")
        whole = len(gap.strip(" *|,;-").split(" ")) <= 2
        pair = Pair(name, value, spaced, match.start())
        pair.measured, pair.whole, pair.stands_alone = known, whole, exact and not rest.startswith(_OPERATORS)
        yield pair


def _separated(gap: str) -> tuple[str, bool]:
    """(the text before the separator of a value, whether the separator is only blanks). No text if there is no separator."""
    if gap.endswith(" ") and not gap.rstrip(" ").endswith((*_SEPARATORS, "[")):
        return gap, True
    gap = gap.rstrip(" ")
    opening = next((one for one in _OPENINGS if gap.endswith(one)), "")
    gap = gap[: len(gap) - len(opening)].rstrip(" ")
    separator = next((one for one in _SEPARATORS if gap.endswith(one)), "")
    return (gap[: len(gap) - len(separator)] if separator else ""), False


def _is_cell(before: str, after: str) -> bool:
    """Whether a name and a number are all between two bars: `| wps 34422 |`."""
    return before.strip().startswith("|") and after.strip()[:1] in ("", "|")


def _name(gap: str, spaced: bool) -> str:
    tail = gap.rstrip(" '\"")
    if tail.endswith(")"):
        tail = _AFTER_UNIT.sub("", tail)
        call = _CALL.search(tail)
        if call is not None:
            return call.group()
    match = _BEFORE_NAME.match(tail)
    if match is not None:
        if tail.endswith("--", 0, match.end()):
            return ""  # an option of a command
        tail = tail[match.end() :]
    said = [word.strip("'\"*#") for word in tail.replace("'s ", "_").split()]
    last = len(said) - 1
    first = last
    while first > 0 and said[first - 1].lower() not in _SENTENCE:
        first -= 1
    if said and (spaced or last - first >= _WORDS_MAX):
        first = last
        while first > 0 and said[first - 1].lower() in _JOINED:
            first -= 1
    name = "_".join(said[max(first, 0) :])
    return name if _NAME.match(name) and is_metric(name) else ""


def _of(text: str) -> tuple[str, int]:
    """The name in `Accuracy of the network on the 10000 test images: 97 %`, and where its value begins."""
    match = _OF.match(text)
    return (match[1].replace(" ", "_"), match.end()) if match is not None and measured(match[1]) else ("", -1)
