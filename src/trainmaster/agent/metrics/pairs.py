"""Steps and `name value` pairs in a line of text.

Values are found first, and each name is looked for in the text between the value before and its own: so the time grows with
the length of the line only.
"""

from __future__ import annotations

import re
from collections import Counter as Multiset
from itertools import islice

from trainmaster.agent.metrics.vocabulary import (
    ALONE,
    BATCH,
    NUMBER,
    RANKS,
    STEP,
    counted,
    is_exact,
    is_metric,
    is_part,
    is_rate,
    measured,
    number,
    of_all,
    out_of,
    words,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Optional

_STEP = re.compile(  # of a text in lower case: far faster than re.IGNORECASE
    r"(?=[begtncisru])(?<![\w.\\-])(?<![^\d]/)(?:(?:trainer|train)/)?"
    r"((?:global|train|training|total|num|env|current)[_ ](?:time)?steps?|num_updates|training_iteration|timesteps?"
    r"|iterations?|iters?|itr|it|steps?|epochs?|ep\.?|episode|round|generation|tick|n?updates?|up\.|batch)"
    r"(?:\((?:train|training|val|valid|test|eval)\))?['\"]? {0,2}(?:(?:no\.?|number|num|nr\.?) ?)?"
    r"(?:[:=#] {0,2})?(?:[\[(] {0,2})?"
    r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})"
    r"(?![\d%A-Za-z_]|[.,]\d|:\d\d|-\d|(?:-step=\d{1,15})?(?:-v\d{1,9})?\.[A-Za-z]"  # also not in epoch=3-step=320.ckpt
    r"| of (?:the|an?|our|this) | to \d)"  # and not in prose: epoch 6 to 15
    r"(?: ?(?:/|of) ?(\d{1,15}))?",
)
_POSITION = re.compile(  # in an epoch: `[640/60000 (1%)]`, `[0][ 10/5005]`, `1 | 200/2983 batches`, `1/9 ━━━━ 469/938 0:00:05`
    r"\d{1,9}(?: ?/ ?\d{1,9})?(?: ?\( {0,3}\d{1,3}%\))?[\]|,:\t -]{0,8}"
    r"(?:[\[(] {0,6}(\d{1,12}) {0,2}/ {0,2}(\d{1,12})(?: ?\( {0,3}\d{1,3}(?:\.\d{1,4})?%\)| [a-z]{1,12})? {0,2}[\])]"
    r"|(?:━[━╸╺]{0,200} )?(\d{1,12}) {0,2}/ {0,2}(\d{1,12})(?: (?:batches\b|\d{1,2}:\d\d)|;| {1,2}(?=[a-z_]{1,20}=)))"
)
_TRAIN = re.compile(r"Train(?:ing)?: {1,2}(\d{1,9})(?:/\d{1,9} ?\( {0,3}\d{1,3}%\))? {1,2}\[ {0,2}\d{1,12}/\d")  # timm
_AT_EPOCH = re.compile(r"(\d{1,9})epoch(?: results)?:(?:train:\d{1,9}-(\d{1,12})batch| ?[A-Za-z\[])")  # ESPnet
_LETTERS = re.compile(r"E=(\d{1,9}),? B=(\d{1,12})(?=[\s,])")  # Sockeye: the epoch, and all batches so far
_OF_EPOCHS = re.compile(r"(\d{1,12})/\d{1,12} \(epoch \d")  # char-rnn: 634/9500 (epoch 3.337), train_loss = 1.7
_SETS = re.compile(r".{0,40}\b[Tt]rain(?:ing)?: {0,2}\[(\d{1,9})(?:/\d{1,9})?\] {0,2}\[ {0,2}\d{1,12}/\d")
_ROUND_BESIDE = re.compile(  # torchtune: epoch and step; GPT-2: step and seconds
    r"(?:\d{1,9}\||\[ {0,2})(\d{1,12})(?:\|(?=[A-Za-z])| {1,2}\| {1,2}[\d.:]{1,15}\] {1,2}(?=[A-Za-z][^:=]{0,80}[:=]))"
)
_ROUND = re.compile(
    r"\[ {0,2}(\d{1,3}(?:,\d{3}){1,4}|\d{1,12})(?: {0,2}([/,]) {0,2}(\d{1,12}))?\]"
    r"(?:\[ {0,2}(\d{1,12})/(\d{1,12})\](?:\[\d{1,12}\])?)?:? {1,2}(?=\d{1,9} [a-z]{1,20}, |[A-Za-z\"'%][^:=]{0,80}[:=])"
    r"|(\d{1,12})(?:: {1,2}|, {1,2}(?=[a-z_]{1,40}=))(?:\[[\dmsh:]{1,20} / [\dmsh:]{1,20}\], {1,2})?(?=[A-Za-z][^:=]{0,80}[:=])"
)
_HEADING = re.compile(  # [ROUND 3], ****** Running generation 0 ******
    r"[\W_]{0,40}(?:running |starting )?(?:round|generation|episode)[ :#]{1,3}\d{1,12}(?: ?(?:/|of) ?\d{1,12})?[\W_]{0,40}\Z",
    re.IGNORECASE,
)
_VALUE = re.compile(
    rf"(?<=[ :=>\[('\"])({NUMBER})(?:/(\d{{1,12}})(?: ?\( {{0,2}}(\d{{1,3}}(?:\.\d{{1,6}})?) ?%\))?)?"
    r"(?!'\d)(?=%?\.{0,3}(?:[\s;|)\]}'\"<>(•]|,(?!\d)|$)|: |[+±])"
)
_WRAPPED = re.compile(r"(?<=[ :=])(?:tensor|[Aa]rray|tf\.Tensor|np\.\w{1,12})\(\[?\Z")
_OPENINGS = ("[", "'", '"')  # between a separator and a value: lr=[0.1, 0.1]
_SEPARATORS = (":", "=", "->")
_SEPARATED = (*_SEPARATORS, "[")
_AFTER_UNIT = re.compile(r" \([^()]{1,20}\)$")
_MEAN_OF = re.compile(r" \((micro|macro|weighted)\)$")  # F1 (macro): two such means are printed
_AFTER_RANGE = re.compile(r"(?<=\w) \[\d{1,12}-\d{1,12}\]$")  # avg. loss [401-500]: over which steps
_CALL = re.compile(r"(?<![\w(])[A-Za-z]\w{0,20}\([\w(),]{0,20}\)$")  # D(x)
_STOP = r" (?<![Aa]vg. )(?<![Vv]al. )(?<![Vv]alid. )"  # behind the end of a sentence, and no abbreviation
_BEFORE_NAME = re.compile(rf".*(?:[,;|()\[\]{{}}<>•→─━═█:=]|[.!?%]{_STOP}|  | - |--)", re.DOTALL)
_SENTENCE = words("with and is was are has have had achieved reached got done finished complete completed after the a an")
_JOINED = words(
    "train training val val. valid valid. validation eval evaluation test testing dev average avg avg. ave mean learning grad"
    " gradient running moving final ema meta"
)
_OF_ANOTHER = words(
    "best previous prev last max min maximum minimum target old initial baseline lowest highest worst expected"
)  # the value beside such a word is not that of now
_BEFORE_SPACED = _JOINED | _OF_ANOTHER
_NO_WORD = _SENTENCE | words("none null n/a")  # of a name: the latter stand in the place of a value
_BECOMES = re.compile(rf"(?: {{0,2}}(?:-{{1,2}}>|=>|→) {{0,2}}({NUMBER})(?![\w.]))+")  # loss 0.5 -> 0.4: before and now
_ARROWS = tuple(f"{blanks}{arrow}" for blanks in ("", " ", "  ") for arrow in ("->", "-->", "=>", "→"))
_UNIT = re.compile(  # a duration or a size is no metric
    r" ?(?:ms|us|ns|s|secs?|seconds?|mins?|minutes?|hours?|hrs?|days?|bytes|[kKMGTP](?:i?[Bb])?)(?![\w/])"
)
_RATE = re.compile(r" ?[A-Za-z]{1,20}/(?:s|sec|second) \Z")  # of the speed before: 70 samples/sec 1956 tokens/sec
_SIZES = (" G", " M", " K", " k", " T", " P")
_BEFORE_CELL = re.compile(rf".*(?:[,;|]|: |[.!?]{_STOP}|  | - )", re.DOTALL)
_BEFORE_CLAUSE = re.compile(r".*[|:;,.!?](?= )", re.DOTALL)  # End of training | test loss  5.20
_AFTER_CELL = (",", ";", "|", "  ", " - ", " |")
_PERCENT_OF = re.compile(r"% ([A-Za-z]{1,20})(?= {0,8}(?:[|,;]|$))")
_QUOTED = re.compile(r"'([A-Za-z][\w./@-]{0,80})'\Z")
_LIST = re.compile(r" {1,2}[-+]?\d")  # more numbers follow
_ROW = re.compile(r"(?: {1,2}[-+]?\d{1,12}(?:\.\d{1,15})?(?:e[-+]?\d{1,3})?){2}(?![\w.])")  # of a table: fold by fold, say
_DECIMAL = re.compile(r"\d{1,15}\.\d")
_STUCK = re.compile(r"\A\d{1,9}-")  # 10:00:00,123-Speed
_CELL_WORDS_MAX, _WORDS_MAX = 3, 6  # of a name
_GAP_MAX = 80  # characters before a value in which its name is looked for
_UNIT_MAX = 12  # characters after a number that may say that it is no count
_HEAD_MAX, _FAR_MAX = 100, 400  # characters at the beginning of a line, and of one with several parts
_VALUES_MAX, _COUNTERS_MAX = 64, 16  # of a line
_NAME = re.compile(r"(?:[A-Za-z][^\s\"'=]{0,120}|[^\W\d_][^\W_]{0,40})\Z")  # ε = 2.88: of other letters, a single word
_OTHERS = (" per", " episode", " max", " maximum", " warmup", " remaining")
_BEST = (" at", " from", " in", " was", " is", " best", " best:")
_HEAD = re.compile(
    r"(?:^|[|\]\[>-] {0,2}| \(|\bon |\b(?:epoch|iter)\()(?:evaluating |epoch |(?:I )?finished )?"
    r"(test(?:ing)?|val(?:id(?:at(?:e|ion|ing))?)?|eval(?:uat(?:e|ion|ing))?|dev|(?<=evaluating )train|saving dict)"
    r"(?: (?:set|on|net|results?|metrics?|data|loop|steps)\b[^|:\[]{0,40})?"
    r"(?: {0,2}[:\[\]|]|\)[:,]|\) {0,2}\[|(?: {1,4}-{1,2}|\)) {1,2}(?=[A-Za-z][\w/]{0,40} {0,2}[:=])"
    r"|(?= (?:epoch|step|iter|num_|for global step)|_episode=))",
    re.IGNORECASE,
)
_BESIDE = r"val(?:id(?:ation)?)?|test|eval|dev"
_BEHIND = re.compile(rf"(?<=[\s,;])({_BESIDE})(?:: {{0,2}}|\()(?=[A-Za-z])", re.IGNORECASE)
_HEADS = {
    "saving dict": "eval", "testing": "test", "validate": "val", "validating": "val", "evaluate": "eval", "evaluating": "eval",
}  # fmt: skip
_PHASE = re.compile(rf"(?i)(?:\b(?:phase|split|stage|subset)[:=] {{0,2}}|(?<=\d), (?=\w{{3,10}},))({_BESIDE})(?:[,;| ]|$)")
_COMPARED = ("cur metric,", "current metric,")  # PaddleOCR: with the best one, and the training names an `acc` of its own
_QUALIFIED = re.compile(r"(?:test|val|eval|dev)", re.IGNORECASE)
_OPERATORS = ("*", "/", "+", "<", ">", "=")
_DEVIATIONS = ("+-", "+/-")  # 0.5 +- 0.25


class Counter:
    """A counter that a line names: its rank in `RANKS`, its number, and the number that it counts to, if it says so."""

    def __init__(self, word: str, digits: str, total: Optional[str] = None, at: int = -1) -> None:
        self.at = at  # where its number begins
        self.word = word.lower().rstrip(".").replace(" ", "_")
        self.rank = BATCH if self.word == "batch" else RANKS.get(self.word, RANKS.get(self.word.rpartition("_")[2], STEP))
        self.count = int(digits.replace(",", ""))
        self.total = int(total) if total else 0
        self.alone = self.word in ALONE or (self.rank == BATCH and self.total > 0)
        # `alone`: it counts as progress where no value is beside it


class Pair:
    """A value and its name. `spaced`: only blanks are between them; `whole`: nothing but the name is before it."""

    def __init__(self, name: str, value: float, spaced: bool, at: int) -> None:
        self.name, self.value, self.spaced = name, value, spaced
        self.at = at  # where its number begins
        self.whole = self.stands_alone = self.measured = False
        self.gap = ""  # the text that ends with a spaced name
        # `stands_alone`: written as a measured value is, and not part of a formula


def counters(text: str) -> list[Counter]:
    """All counters of a line. The number of a best epoch, or of steps per epoch, is none."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text  # a letter that has two in lower case
    lowered = lowered[: max(map(lowered.rfind, "0123456789")) + _UNIT_MAX]  # after the last digit is no counter
    found = [Counter(match[1], match[2], match[3], match.start(2)) for match in islice(_STEP.finditer(lowered), _COUNTERS_MAX)
             if not _of_another(f" {lowered[max(0, match.start() - 60) : match.start()]}".rstrip(" '\""))]  # fmt: skip
    found = [one for one in found if one.word != "epochs" or one.total]  # of how many
    if len(found) == 1 and not found[0].alone:
        found[0].alone = _HEADING.match(text) is not None  # [ROUND 3]
    at_epoch = _AT_EPOCH.match(text)
    train = _TRAIN.match(text) or _SETS.match(text) or at_epoch
    if train is not None:
        found.append(Counter("epoch", train[1], at=train.start(1)))
    if at_epoch is not None and at_epoch[2]:
        found.append(Counter("iter", at_epoch[2], at=at_epoch.start(2)))
    letters = _LETTERS.match(text)
    if letters is not None:
        found += [Counter(word, letters[at], at=letters.start(at)) for at, word in enumerate(("epoch", "iter"), 1)]
    of_epochs = _OF_EPOCHS.match(text)
    if of_epochs is not None:
        found.append(Counter("global_step", of_epochs[1], at=0))
    epoch = next((one for one in found if one.word == "epoch"), None)
    position = None if epoch is None else _POSITION.match(text, epoch.at)
    if position is not None:
        group = 1 if position[1] else 3
        found.append(Counter("batch", position[group], position[group + 1], position.start(group)))
    return found


def _of_another(before: str) -> bool:
    """Whether the text before a counter says that it is not the count of now: `best results at epoch 72`, `steps per epoch`."""
    return before.endswith(_OTHERS) or ("best" in before and before.endswith(_BEST))


def round_number(text: str) -> Optional[tuple[list[Counter], str]]:
    """The number at the beginning of a line, as XGBoost, LightGBM and CatBoost print it, and the rest of the line.

    Two counters if the line begins with an epoch and the batch in it: `[0/5][100/782] Loss_D: 0.3`, `[1,  2000] loss: 2.1`.
    """
    match = _ROUND.match(text)
    if match is None:
        beside = _ROUND_BESIDE.match(text)
        return None if beside is None else ([Counter("step", beside[1])], text[beside.end() :])
    batch = match[4] or (match[3] if match[2] == "," else "")
    said = [Counter("epoch" if batch else "step", match[1] or match[6])]
    return [*said, Counter("batch", batch, match[5])] if batch else said, text[match.end() :]


def head(text: str) -> str:
    """`test`, `val` or another word that a line begins with and that belongs to all its values; "" if there is none."""
    match = _HEAD.search(text, 0, _HEAD_MAX) or _PHASE.search(text, 0, _HEAD_MAX)
    if match is None:
        return "eval" if text.startswith(_COMPARED) else ""
    word = match[1].lower()
    return _HEADS.get(word, word)


def heads(text: str) -> list[tuple[int, str]]:
    """All such words of a line, and where they begin."""
    matches = (match for one in (_BEHIND, _HEAD) for match in one.finditer(text, 0, _FAR_MAX))
    return [(at, _HEADS.get(word, word)) for at, word in sorted((match.start(1), match[1].lower()) for match in matches)]


def under(word: str, name: str) -> str:
    """`name` below the word that its line begins with."""
    return name if not word or _QUALIFIED.match(name) else f"{word}_{name}"


def under_all(word: str, values: dict[str, float]) -> dict[str, float]:
    """The values under the word that their line begins with."""
    return {under(word, name): value for name, value in values.items()}


def named(word: str, given: list[Pair]) -> dict[str, float]:
    """The values of a line by name. `word`: see `head`.

    Of a name that comes twice, as in `Train Loss: 0.3 Acc: 0.8 | Test Loss: 0.4 Acc: 0.7`, each is under the word of the value
    before it: `Train_Acc`, `Test_Acc`; or under the word before the name: `kd loss 0.3 ce loss 0.4`.
    """
    times = Multiset(pair.name for pair in given)
    values: dict[str, float] = {}
    last = ""
    for pair in given:
        first, _, rest = pair.name.partition("_")
        name = pair.name
        if rest and first.lower() in _JOINED:
            last = first
        elif times[name] > 1 and (word_before := _word_before(pair.gap, name)):
            name = f"{word_before}_{name}"
        elif last and times[name] > 1:
            name = f"{last}_{name}"
        values.setdefault(under(word, name), pair.value)
    return values


def pairs(text: str) -> Iterator[Pair]:
    """The named values of a line."""
    before = 0
    of_name, of_end = of_all(text)
    for match in islice(_VALUE.finditer(text), _VALUES_MAX):
        start, end = match.span()
        becomes = _BECOMES.match(text, end) if text.startswith(_ARROWS, end) else None
        digits, end = (match[1], end) if becomes is None else (becomes[1], becomes.end())
        text_before = text[max(before, start - _GAP_MAX) : start]
        gap, spaced = _separated(text_before.removesuffix("(") if text.startswith(",)", end) else text_before)  # lr:(0.1,)
        if not gap.strip(" ") and start != of_end:
            before = end
            continue
        if spaced and (_ROW.match(text, end) or (before and _RATE.match(gap))):
            before = end
            continue
        if spaced and match[1].isalpha() and not measured(gap.rstrip(" ").rpartition(" ")[2]):
            continue  # number of nan iterations: 0
        after = text[end : end + 4]
        cell = _cell(gap, after, before == 0) if spaced else ""
        name = cell or _name(gap, spaced) or _after(text, end, gap)
        known = bool(name) and measured(name)
        unit = _UNIT.match(text, end) if after[:2].strip(" ").isalpha() else None
        if known and unit is not None and unit[0] in _SIZES:
            unit = None  # what is measured has no size: D loss: 0.9 G loss: 0.1
        before = end if unit is None else unit.end()
        if start == of_end and not known:
            name, known = of_name, True
        value = number(digits)
        exact = is_exact(digits)
        if not name or value is None or unit is not None or is_part(text, *match.span(1)):
            continue
        total = match[2] or out_of(text, end, exact)
        if total and becomes is None:
            if not known or not int(total):
                continue
            value = round(value / int(total) * (100 if match[3] else 1), 6)
        elif not known and (
            counted(name, value) or not (cell or _beside(gap, spaced, exact or is_rate(name), after))
        ):
            continue
        rest = after.strip()
        pair = Pair(name, value, spaced, start)
        pair.measured, pair.whole = known, _is_whole(gap)
        pair.gap = gap if spaced else ""
        shown = exact or "," in match[1] or bool(total) or rest.startswith("%")
        pair.stands_alone = shown and (not rest.startswith(_OPERATORS) or rest.startswith(_DEVIATIONS))
        yield pair


def _word_before(gap: str, name: str) -> str:
    """`kd` in `kd loss `."""
    before = gap.rstrip(" ").removesuffix(name).rstrip(" ").rpartition(" ")[2]
    return before if before.isidentifier() and f"{before} {name}" in gap else ""


def _is_whole(gap: str) -> bool:
    """Whether nothing but the name is before a value, in its clause."""
    before = _BEFORE_CLAUSE.match(gap)
    clause = gap if before is None else gap[before.end() :]
    said = clause.strip(" *|,;-").split(" ")
    return len(said) <= 2 or all(word.lower() in _JOINED for word in said[:-1])  # Meta Train Error 1.6


def _separated(gap: str) -> tuple[str, bool]:
    """(the text before the separator of a value, whether the separator is only blanks). No text if there is no separator."""
    wrapped = _WRAPPED.search(gap) if gap.endswith(("(", "([")) else None
    if wrapped is not None:
        return gap[: wrapped.start()].rstrip(" :="), False  # loss tensor(0.5, grad_fn=...)
    blank = gap.endswith(" ")
    gap = gap.rstrip(" ")
    if blank and gap.endswith(" is"):
        return gap[:-3], not measured(gap[:-3].rpartition(" ")[2])  # loss is 0.5
    if blank and not gap.endswith(_SEPARATED):
        return f"{gap} ", True
    if gap.endswith(_OPENINGS):
        gap = gap[:-1].rstrip(" ")
    if not gap.endswith(_SEPARATORS):
        return "", False
    return gap[: -2 if gap.endswith("->") else -1], False


def _cell(gap: str, after: str, first: bool) -> str:
    """The name in a cell of only a name and a number, between bars, commas or wide gaps: `| wps 34422 |`, `, Peak mem 5.0,`."""
    after = after.lstrip("%")
    if not after.startswith(_AFTER_CELL) and after.strip(" "):
        return ""
    inside = gap.rstrip(" ")
    match = _BEFORE_CELL.match(inside)
    if match is None and not first:
        return ""
    said = inside if match is None else inside[match.end() :]
    if " " not in said.strip(" "):
        name = said.strip(" ")
        return name if _NAME.match(name) and is_metric(name) and name != "batch" else ""
    words_of = said.split()
    if len(words_of) > _CELL_WORDS_MAX or not all(word[0].isalpha() and word.lower() not in _SENTENCE for word in words_of):
        return ""
    name = "_".join([word.rstrip(".") for word in words_of])
    return name if _NAME.match(name) and is_metric(name) and is_metric(words_of[-1]) else ""


def _after(text: str, end: int, gap: str) -> str:
    """The name of a measured value after its number, in a cell of only these: `| loss 3.6 | 50.0% accuracy`."""
    match = _PERCENT_OF.match(text, end) if gap.strip(" ") in ("|", ",") else None
    return match[1] if match is not None and measured(match[1]) else ""


def _beside(gap: str, spaced: bool, exact: bool, after: str) -> bool:
    """Whether a name belongs to its number: prose has more words before it, a list more numbers after it."""
    return (exact and len(gap.rpartition(": ")[2].split()) <= _CELL_WORDS_MAX) if spaced else not _LIST.match(after)


def _name(gap: str, spaced: bool) -> str:
    tail = gap.rstrip(" '\"")
    quoted = _QUOTED.search(gap) if gap.endswith("'") else None
    if quoted is not None:
        tail = quoted[1]
    if tail.endswith(")"):
        tail = _AFTER_UNIT.sub("", _MEAN_OF.sub(r"_\1", tail))
        call = _CALL.search(tail)
        if call is not None:
            return call.group()
    tail = _AFTER_RANGE.sub("", tail) if tail.endswith("]") else tail
    match = _BEFORE_NAME.match(tail)
    if match is not None:
        if tail.endswith("--", 0, match.end()) and not tail.startswith(" ", match.end()):
            return ""  # an option of a command
        tail = tail[match.end() :]
    said = [word.strip("'\"*#") for word in tail.replace("'s ", "_").split()]
    last = len(said) - 1
    if said and said[last][:1].isdigit() and _DECIMAL.match(said[last]):
        return ""  # Time 359.59s : 3007.81 words/s
    first = last
    while not spaced and first > 0 and said[first - 1].lower() not in _NO_WORD and not said[first - 1][:1].isdigit():
        first -= 1
    if said and (spaced or last - first >= _WORDS_MAX):
        first = last
        while first > 0 and said[first - 1].lower() in _BEFORE_SPACED:
            first -= 1
    name = "_".join([word.rstrip(".") for word in said[max(first, 0) :]])
    name = _STUCK.sub("", name) if name[:1].isdigit() else name
    return name if _NAME.match(name) and is_metric(name) else ""
