"""Validation of steps and metric values, and decoding of a point from the SDK's file."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

STEP_MAX = 1e15  # a larger number is no step count, and the server would reject the whole request


def sdk_point(message: dict[str, Any]) -> tuple[Optional[int], dict[str, float]]:
    """(step, values) of an SDK metrics message."""
    step, values = message.get("step"), message.get("values")
    given = values.items() if isinstance(values, dict) else ()
    kept = {str(name): float(value) for name, value in given if is_value(value)}
    return (int(step) if step is not None and is_step(step) else None), kept


def is_value(value: object) -> bool:
    """Whether it is a number that fits into a float. NaN and infinity count: they are important to see."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**300)


def is_step(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < STEP_MAX and value == int(value)
