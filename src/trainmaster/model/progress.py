"""What a program has shown of its progress in one attempt, as its agent reports it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

HEAD = 3  # steps kept from the beginning
CLOCKS = ("elapsed_time", "elapsed", "wall_time", "walltime", "total_time")  # the time since the training began
_LOSSES = 5  # the agent tells one less, and a clock
_NAME_MAX = 200
_STEP_MAX = 10**15
_WORDS = ("asked", "loaded")


@dataclass(frozen=True, slots=True)
class Progress:
    """Up to one moment of an attempt. The steps and losses are those of the lowest rank that shows any."""

    steps: tuple[int, ...] = ()  # the first `HEAD` different ones, in order
    last_step: int | None = None
    fell_to: int | None = None  # where the steps fell back to, the first time that they did
    first: dict[str, float] = field(default_factory=dict)  # loss, or one of `CLOCKS` -> its first value
    last: dict[str, float] = field(default_factory=dict)  # likewise -> its last value
    epoch_first: int | None = None  # the number of its first epoch, 0 or 1, if its steps count in each epoch anew
    epoch_steps: int | None = None  # and how many an epoch has, if no line names the total
    epoch_anew: bool | None = None  # whether its steps begin anew in each epoch, if its lines have shown that
    sdk: str | None = None  # "loaded": the SDK loaded the checkpoint; "asked": the program asked the SDK where it is

    @classmethod
    def of(cls, told: object) -> "Progress | None":
        """From an agent's report; None if there is none. What this version cannot use is left out, never refused."""
        if not isinstance(told, Mapping):
            return None
        listed, sdk = told.get("steps"), told.get("sdk")
        steps = [_step(one) for one in listed[:HEAD]] if isinstance(listed, list | tuple) else []
        return cls(
            tuple(step for step in steps if step is not None),
            _step(told.get("last_step")),
            _step(told.get("fell_to")),
            _losses(told.get("first")),
            _losses(told.get("last")),
            first if (first := _step(told.get("epoch_first"))) in (0, 1) else None,
            _step(told.get("epoch_steps")),
            anew if isinstance(anew := told.get("epoch_anew"), bool) else None,
            sdk if sdk in _WORDS else None,
        )


def _step(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _STEP_MAX else None


def _losses(told: object) -> dict[str, float]:
    named = list(told.items())[:_LOSSES] if isinstance(told, Mapping) else []
    return {
        name[:_NAME_MAX]: float(value)
        for name, value in named
        if isinstance(name, str) and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
