"""Progress bars: tqdm's `desc: 45%|███ | 450/1000 [00:10<00:12, 45.0it/s, loss=0.3]` and those of Keras."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Tuple

_BAR = re.compile(r"(\d{1,3})%\|[^|]{0,400}\| {0,2}([\d.]{1,15}[kMGT]?)/([\d.]{1,15}[kMGT]?) {0,2}\[([^]\n]{0,2000})(\]?)")
_RATE = re.compile(r"(?:\?|[\d.]{1,15}) {0,2}(?:[a-z]{1,12}/s|s/[a-z]{1,12})(?:, |$)", re.IGNORECASE)
_ITERATIONS = re.compile(r"(?:\?|[\d.]{1,15})(?:it/s|s/it)")
_EPOCHS = re.compile(r"(?:\?|[\d.]{1,15}) {0,2}(?:epochs?/s|s/epochs?)(?:, |$)", re.IGNORECASE)  # `tqdm(unit="epoch")`
_KERAS = re.compile(r"(?:Epoch \d{1,9}(?:/\d{1,9})? )?\d{1,12}/(?:\d{1,12}|Unknown|None) {1,2}(?:\[[=>.]|━|- )")


class Bar:
    """One state of a bar: what stands before it, where it is, and what stands in it and after it.

    `counts`: where it is, its total, and whether it counts epochs.
    """

    def __init__(self, description: str, counts: Tuple[int, int, bool], postfix: str, after: str) -> None:
        self.description = description
        self.at, self.total, self.epochs = counts
        self.postfix = postfix
        self.after = after


def tqdm_bar(text: str) -> Optional[Bar]:
    """The bar of a line; `at` and `total` are -1 if they are no counts of iterations (`21.0M`)."""
    if "%|" not in text:
        return None
    match = _BAR.search(text)
    if match is None:
        return None
    inside = match.group(4)
    rate = _RATE.search(inside)
    epochs = _EPOCHS.search(inside) is not None
    whole = match.group(2).isdigit() and match.group(3).isdigit() and (epochs or _ITERATIONS.search(inside) is not None)
    counts = (int(match.group(2)), int(match.group(3)), epochs) if whole else (-1, -1, False)
    description = text[: match.start()].strip().rstrip(":").rstrip()
    postfix = inside[rate.end() :] if rate is not None else ""
    return Bar(description, counts, postfix, text[match.end() :].strip())


def is_keras_bar(text: str) -> bool:
    """Whether a line is a bar of Keras, or the line that Keras prints in place of one."""
    return _KERAS.match(text) is not None and (": " in text)
