"""Values in objects: lines of JSON, and Python dictionaries as Transformers prints them; and which of a line's values count."""

from __future__ import annotations

import json
import re

from trainmaster.agent.metrics.pairs import Counter, counters, heads, pairs, under
from trainmaster.agent.metrics.vocabulary import NUMBER, RANKS, STEP, is_rate, measured, number, words
from trainmaster.agent.transport.point_values import is_step, is_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from trainmaster.agent.metrics.pairs import Pair

_MESSAGES = ("message", "msg", "event")  # the text of a log record that is JSON
_RECORD = words(
    "lineno line_number process pid thread levelno timestamp ts created msecs relativecreated _timestamp time_ns rank"
)
_NESTED = words("metrics values scalars logs log data losses results")  # names that add nothing to those inside
_ENTRY = re.compile(
    rf"['\"]([^'\"\n]{{1,250}})['\"] {{0,2}}: {{0,2}}(?:(?:tensor|array|np\.\w{{1,12}})\(\[?)?"
    rf"(['\"]?)({NUMBER})%?\2(?=[,}}\])])"
)
_COUNT = re.compile(r"['\"]([\w/]{1,80})['\"] {0,2}: {0,2}['\"](\d{1,15})/(\d{1,15})['\"]")  # 'iter': '90/159'
_FRACTION = re.compile(r"['\"]epoch['\"]: (?:['\"]\d|\d{1,9}\.)")  # Transformers 5 writes '0.5', then '1'
_MEAN = re.compile(r"[-+\d.eE]{1,20} {0,2}\( {0,8}([-+]?\d{1,15}\.\d{1,15}(?:e[-+]?\d{1,3})?)\)")  # 28.1 ( 31.2)
_KEYS = re.compile(r"['\"] {0,2}: {0,2}")
_TEXTS = re.compile(rf"['\"] {{0,2}}: {{0,2}}(['\"])(?!{NUMBER}\1)")
_SET_KEYS = ("split", "phase", "stage", "subset", "mode")  # which set of the data an object is about
_SET = re.compile(rf"['\"](?:{'|'.join(_SET_KEYS)})['\"] {{0,2}}: {{0,2}}['\"](\w{{1,20}})['\"]")
_FIRST_MAX = 100  # characters
_IN_EPOCH = ("iter", "iteration", "itr")
SETS_BESIDE = words("val valid validation test eval evaluation dev")  # beside the training
_OF_SET = re.compile(r"(train(?:ing)?|val(?:id|idation)?|test(?:ing)?|eval(?:uation)?|dev)_", re.IGNORECASE)
_BEFORE_CELLS = re.compile(r"(\d{1,12}) {1,2}\| {1,2}(?=[A-Za-z])")  # llama2.c: `10 | loss 3.78 | lr 5.0e-04`
_IN_BARS = re.compile(rf"([A-Za-z][\w/.@-]{{0,120}}) {{1,2}}({NUMBER}) \|\Z")
_BETWEEN_SLASHES = re.compile(rf"([A-Za-z][\w/.-]{{0,120}}) ({NUMBER})\Z")
_BESIDE = re.compile(r"[Vv]al|VAL|[Tt]est|TEST|[Dd]ev|DEV")  # fast
_APART = re.compile(r"[|,;/(){}\[\]]| - |--")
_PARTS = re.compile(r"(?:\[(train|valid|val|test|eval|dev)\] |\b(train|valid|val|test|eval|dev): {0,2}\()", re.IGNORECASE)


class Object:
    """What an object says. `epoch`: the epoch, if it has one. `sure`: it may be read although it names no step or epoch."""

    def __init__(self, step: Optional[int], epoch: Optional[float], values: dict[str, float], sure: bool) -> None:
        self.step, self.epoch, self.values, self.sure = step, epoch, values, sure
        self.message = ""  # of a log record
        self.whole_epoch = True  # whether its epochs are counted in whole numbers
        self.counters: list[Counter] = []  # those that say to how many they count
        self.apart = False  # it is of another set of the data than the training's
        self.in_epoch: list[Counter] = []  # the epoch and the step, if that may begin again in each epoch

    def under(self, word: str) -> None:
        """What was measured belongs to the set of this name, if it is one beside the training's."""
        if word in SETS_BESIDE:
            self.apart = True
            self.values = {under(word, name) if measured(name) else name: value for name, value in self.values.items()}


def of_json(line: bytes) -> Optional[Object]:
    """A JSON object; None if it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    flat: dict[str, Any] = {}
    for key, value in found.items():
        if isinstance(value, dict):
            prefix = "" if key in _NESTED else f"{key}/"
            flat.update((f"{prefix}{name}", inner) for name, inner in value.items())
        else:
            flat[str(key)] = value
    texts = [value for value in flat.values() if isinstance(value, str)]
    if texts and all(re.fullmatch(f"{NUMBER}%?", text) for text in texts):
        flat = {name: number(value.rstrip("%")) if isinstance(value, str) else value for name, value in flat.items()}
    values = {name: float(value) for name, value in flat.items() if name.lower() not in _RECORD and is_value(value)}
    made = of_numbers(values, all_numbers=len(values) == len(found))
    made.under(next((found[key].lower() for key in _SET_KEYS if isinstance(found.get(key), str)), ""))
    made.counters = _counters(line.decode(errors="replace"))
    results = found.get("results")  # StyleGAN: {"results": {"fid50k_full": 9.5}, "metric": "fid50k_full"}
    made.sure = made.sure or (isinstance(results, dict) and any(measured(name) for name in results if name in values))
    made.message = next((found[key] for key in _MESSAGES if isinstance(found.get(key), str)), "")
    return made


def of_dictionary(text: str) -> Optional[Object]:
    """The entries of a Python dictionary whose values are numbers; None if there are none."""
    values: dict[str, float] = {}
    for name, _, digits in _ENTRY.findall(text):
        value = number(digits)
        if value is not None:
            values.setdefault(name, value)
    if not values:
        return None
    made = of_numbers(values, all_numbers=len(_KEYS.findall(text)) <= len(values))
    made.sure = made.sure and any(map(measured, values))
    made.whole_epoch = _FRACTION.search(text) is None
    if _TEXTS.search(text) and not any(map(measured, values)):
        return None
    made.counters = _counters(text)
    of_set = _SET.search(text)
    made.under(of_set[1].lower() if of_set is not None else "")
    return made


def _counters(text: str) -> list[Counter]:
    """The counters of `"epoch": "10/50", "iter": "90/159"` and of `'global_step/max_steps': '1/94'`."""
    said = ((next((word for word in name.lower().split("/") if word in RANKS), ""), count, total)
            for name, count, total in _COUNT.findall(text))  # fmt: skip
    return [Counter(word, count, total) for word, count, total in said if word]


def of_numbers(values: dict[str, float], all_numbers: bool = True) -> Object:
    """Values by name, some of them counters. `all_numbers`: there is nothing else in the object."""
    ranked = sorted(
        (RANKS[last], name) for name, last in ((name, _last(name)) for name in values) if RANKS.get(last, 9) <= STEP
    )
    ranked = [(rank, name) for rank, name in ranked if is_step(values[name])]
    step = int(values[ranked[0][1]]) if ranked else None
    epoch = next((value for name, value in values.items() if name.lower() == "epoch"), None)
    used = (ranked[0][1], "total_steps") if ranked else ()
    kept = {
        name: value for name, value in values.items() if not ranked or (RANKS.get(name.lower(), 9) > 1 and name not in used)
    }
    made = Object(step, epoch, kept, all_numbers and any(map(measured, values)))
    if ranked and epoch is not None and is_step(epoch) and _last(ranked[0][1]) in _IN_EPOCH:
        made.in_epoch = [Counter("epoch", str(int(epoch))), Counter(_last(ranked[0][1]), str(step))]
    return made


def _last(name: str) -> str:
    return name.rpartition("/")[2].lower()


def in_parts(body: str, given: list[Pair]) -> bool:
    """`[train] loss=0.3, [valid] loss=0.4` and `Train: (loss = 0.3)  Test: (loss = 0.4)`: each name has that of its part.

    Returns whether the line is such a one.
    """
    parts = [(match.end(), (match[1] or match[2]).lower()) for match in _PARTS.finditer(body)]
    for pair in given if len(parts) > 1 else ():
        word = next((word for begin, word in reversed(parts) if begin <= pair.at), "")
        pair.name = pair.name if not word or pair.name.lower().startswith(word) else f"{word}_{pair.name}"
    return len(parts) > 1


def before_cells(text: str) -> Optional[tuple[str, list[Pair]]]:
    """The number that a line of cells begins with, and the values in them: `10 | loss 3.78 | lr 5.0e-04 | 31.62ms`.

    The first cell has one, which a summary of a model has not: `0 | loss | CrossEntropyLoss | 0`.
    """
    match = _BEFORE_CELLS.match(text)
    rest = "" if match is None else text[match.end() :]
    given = list(pairs(rest))
    if match is None or not given or "|" in rest[: given[0].at] or not any(pair.measured for pair in given):
        return None
    return None if any(one.alone for one in counters(rest[:_FIRST_MAX])) else (match[1], given)


def cells(body: str) -> dict[str, float]:
    """The values of a row of Ray, `loss 0.5 |`, or of DreamerV3, `train/loss 0.5 / train/fps 20 /`. Empty if it is none."""
    row = _IN_BARS.match(body)
    if row is not None:
        other = row[1].startswith("config/") or _last(row[1]) in RANKS
        return {} if other else {row[1]: float(row[2].replace(",", ""))}
    found = [_BETWEEN_SLASHES.match(cell) for cell in body.removesuffix(" /").split(" / ")]
    return {one[1]: float(one[2].replace(",", "")) for one in found if one is not None} if all(found) else {}


def in_one_part(body: str, given: list[Pair]) -> None:
    """`train Loss: 0.9 Acc: 0.5`: what was measured right behind a value of a set is of this set, too."""
    word, at = "", 0
    for pair in given if len(given) > 1 else ():
        said, between = _OF_SET.match(pair.name), ""
        if said is not None or word:
            between = body[at : pair.at]
        if said is not None and f"{said[1]} " in between:
            word = said[1]
        elif word and pair.measured and "_" not in pair.name and not _APART.search(between):
            pair.name = f"{word}_{pair.name}"
        else:
            word = ""
        at = pair.at


def behind_training(body: str, given: list[Pair]) -> bool:
    """`loss 0.9 | val: loss 0.8`: a word behind a value of the training names only what follows it.

    Returns whether the line is such a one.
    """
    words = heads(body) if len(given) > 1 and _BESIDE.search(body, given[0].at) else []
    first = words[0][0] if words else 0
    before = [pair for pair in given if pair.at < first]
    of_training = any(pair.measured or pair.name.lower().startswith("train") for pair in before)
    if not of_training or body[:first].endswith("on "):
        return False
    for pair in given[len(before) :]:
        pair.name = under([word for at, word in words if at < pair.at][-1], pair.name)
    return True


def take_means(body: str, given: list[Pair]) -> None:
    """Of an evaluation, the result is the mean over its batches: `Test: [48/48]  Acc@1  28.125 ( 31.250)`."""
    for pair in given:
        mean = _MEAN.match(body, pair.at)
        value = number(mean[1]) if mean is not None else None
        pair.value = pair.value if value is None else value


def without_step(given: list[Pair], headed: bool, progress_seen: bool) -> list[Pair]:
    """Of a line that names no step: what was measured, and what stands beside it if that is surely a line of metrics.

    `headed`: the line begins with a word such as `Test`.
    """
    sure = [pair for pair in given if pair.measured and pair.stands_alone]
    beside = (progress_seen or len(sure) > 1) and not all(pair.spaced for pair in sure)
    headed_values = headed and any(pair.measured for pair in given)
    return [
        pair for pair in given
        if (pair in sure or (headed_values and pair.stands_alone) or (beside and (not pair.spaced or is_rate(pair.name))))
        and (not pair.spaced or pair.whole or headed or is_rate(pair.name))
    ]  # fmt: skip
