"""The fields of MLflow's requests, each checked, and the errors in its format. No I/O."""

from __future__ import annotations

import math
import posixpath
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Body = dict[str, Any]
    Answer = tuple[int, Body]

NAME_MAX = 250  # characters
VALUE_MAX = 8000  # characters of a parameter or tag: the rest is cut off, as MLflow does
_STEP_MAX = 2**63 - 1
_NAME = re.compile(r"[/\w.\- :]+")
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # the JSON encoding of protobuf


class Fault(Exception):
    """The request is answered with an error in MLflow's format."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer: Answer = (status, {"error_code": code, "message": message})


def invalid(message: str) -> Fault:
    """The error for an invalid request."""
    return Fault(400, "INVALID_PARAMETER_VALUE", message)


def metric(body: Body) -> tuple[str, float, int]:
    """(name, value, step). Raises: Fault."""
    name, value, step = key(body), body.get("value"), body.get("step", 0)
    if isinstance(value, str):
        value = _WORDS.get(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise invalid(f"metric {name!r}: its value is not a number")
    try:
        number = int(step or 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"metric {name!r}: step {step!r} is not an integer") from error
    if abs(number) > _STEP_MAX:
        raise invalid(f"metric {name!r}: step {step!r} is beyond 64 bits")
    try:
        return name, float(value), number
    except OverflowError as error:
        raise invalid(f"metric {name!r}: its value is too large a number") from error


def time_ms(body: Body, field: str, default: int) -> int:
    """A time in milliseconds since the epoch. Raises: Fault."""
    try:
        found = int(body.get(field) or default)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"{field} must be in whole milliseconds") from error
    if not 0 <= found <= _STEP_MAX:
        raise invalid(f"{field} must be in milliseconds since 1970, of at most 63 bits")
    return found


def whole(body: Body, field: str, default: int) -> int:
    """A number that is not negative; a negative one is 0. Raises: Fault."""
    try:
        return max(0, int(body.get(field) or default))
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"{field} must be a whole number") from error


def key(body: Body) -> str:
    """The name of a metric, param or tag. Raises: Fault for one that MLflow does not take."""
    name = text(body, "key", NAME_MAX)
    if not _NAME.fullmatch(name):
        raise invalid(f"{name[:80]!r} is not a name: it may have letters, digits, spaces and _ - . : /")
    plain = posixpath.normpath(name)
    if plain != name or plain == "." or plain.startswith(("..", "/")):
        raise invalid(f"{name[:80]!r} is not a name: as a path, it is {plain[:80]!r}")
    return name


def tags(body: Body) -> dict[str, str]:
    """The tags of a request. Raises: Fault, and KeyError for one without a value."""
    return {key(tag): str(tag["value"]) for tag in body.get("tags") or []}


def text(body: Body, field: str, longest: int) -> str:
    """A text. Raises: Fault."""
    value = body.get(field)
    if not isinstance(value, str) or len(value) > longest:
        raise invalid(f"{field} must be a text of at most {longest} characters")
    return value


def out(value: float) -> Any:
    """A number as JSON has it."""
    return value if math.isfinite(value) else next(word for word, number in _WORDS.items() if str(number) == str(value))
