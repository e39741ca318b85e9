"""The step that a path names in words: `step_120.pt`, `epoch=3-step=80.ckpt`, `checkpoint-500`, `checkpoints/1200`.

A number counts only beside a word that says so. A date, a time, a version, a hash or a number of a shard is no step.
"""

import os
import re
from typing import List, Optional, Sequence

_PARTS_MAX = 2
_STEP_MAX = 10**15  # a larger number is no step count
_STEPS = "globalstep|global_step|timesteps?|steps?|iterations?|iters?|it|updates?|batch(?:es)?"
_EPOCHS = "epochs?|ep|rounds?"
_SAVED = "checkpoints?|checkpt|chkpts?|chkpnts?|ckpts?|ckp|ck|cp|snapshots?|snap|models?|weights|states?|params|saves?|saved"
# Several numbers may follow a word for a checkpoint, as in fairseq's checkpoint_2_500: the last one is the step.
_AFTER = r"(?<![A-Za-z])(?:{})[-_=. ]{{0,3}}(\d+)(?![A-Za-z\d])"
_BEFORE = r"(?<![A-Za-z\d])(\d+)[-_ ]?(?:{})(?![A-Za-z\d])"
_BESIDE = (  # steps have priority over epochs, a number after its word over one before it
    re.compile(_AFTER.format(_STEPS), re.IGNORECASE),
    re.compile(_BEFORE.format(_STEPS), re.IGNORECASE),
    re.compile(_AFTER.format(_EPOCHS), re.IGNORECASE),
    re.compile(_BEFORE.format(_EPOCHS), re.IGNORECASE),
)
_SAVED_AT = re.compile(r"(?<![A-Za-z])(?:" + _SAVED + r")((?:[-_=. ]{0,3}\d+(?![A-Za-z\d])){1,8})", re.IGNORECASE)
_SAVED_IN = re.compile(r"(?<![A-Za-z])(?:" + "|".join((_STEPS, _EPOCHS, _SAVED)) + r")(?![A-Za-z])", re.IGNORECASE)
# 2026-11-23, 2026-11-23_14-05-00, 20261123-140500
_DATE = re.compile(
    r"(?<!\d)(?:19|20)\d\d(?:([-_.])(?:0\d|1[0-2])\1(?:[0-2]\d|3[01])|(?:0\d|1[0-2])(?:[0-2]\d|3[01])(?=[-_T]?\d{4}))"
    r"(?:[-_T]?(?:[01]\d|2[0-3])[-_.h]?[0-5]\d(?:[-_.m]?[0-5]\d)?)?(?!\d)"
)
_DAY = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\Z")  # 20261123; beside a word for steps it is one
_CLOCK = re.compile(r"(?<!\d)(?:[01]\d|2[0-3])([-_.])[0-5]\d\1[0-5]\d(?!\d)")  # Hydra names a directory by the time alone
_VERSION = re.compile(r"(?<![A-Za-z\d])(?:version|ver|run|rev|v|seed|fold|rank|trial)[-_]?\d+(?:\.\d+)*", re.IGNORECASE)
_SHARD = re.compile(r"(?<!\d)\d+[-_]of[-_]\d+")
_DECIMAL = re.compile(r"(?<!\d)\d+\.\d+")


def step_of(parts: Sequence[str], matched: Sequence[bool]) -> Optional[int]:
    """The step in a path: of the file, else of its directory. Only parts that a wildcard matches (`matched`) name a step.

    Directories above are not searched: nnU-Net names one `nnUNetTrainer_100epochs__nnUNetPlans__2d`.
    """
    for back in range(1, min(len(parts), len(matched), _PARTS_MAX) + 1):
        if matched[-back]:
            found = _in_name(parts[-back], parts[-back - 1] if back < len(parts) else "")
            if found is not None:
                return found
    return None


def named_in_words(path: str) -> bool:
    """Whether a word for steps or epochs stands beside a number in the last parts of a path, and not one for a checkpoint."""
    return any(form.search(part) for part in path.split("/")[-_PARTS_MAX:] for form in _BESIDE)


def _of_several(numbers: Sequence[str]) -> str:
    """The step among the numbers after a word for a checkpoint: the last one, as in fairseq's `checkpoint_2_500`.

    A rank may follow it, where both are padded and the step has more digits: `state_00000150_00001`.
    """
    last = numbers[-1]
    padded = [one for one in numbers if len(one) > 1 and one.startswith("0")]
    return max(reversed(padded), key=len) if last in padded else last


def bounded(digits: Optional[str]) -> Optional[int]:
    """The number, unless it is too large for a step."""
    return int(digits) if digits is not None and len(digits) <= 18 and int(digits) < _STEP_MAX else None


def _in_name(name: str, parent: str) -> Optional[int]:
    stem, suffix = os.path.splitext(name)
    if suffix[1:].isdigit():
        stem = name  # ckpt.120
    for noise in (_DATE, _CLOCK, _VERSION, _SHARD, _DECIMAL):
        stem = noise.sub("-", stem)
    for form in _BESIDE:
        found: List[str] = form.findall(stem)
        if found:
            return bounded(found[-1])
    saved = [_of_several(re.findall(r"\d+", run)) for run in _SAVED_AT.findall(stem)]
    if not saved and stem.isdigit() and _SAVED_IN.search(parent):
        saved = [stem]  # Orbax: checkpoints/1200
    return bounded(saved[-1]) if saved and not _DAY.match(saved[-1]) else None
