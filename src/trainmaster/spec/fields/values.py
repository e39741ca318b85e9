"""Parses the values of a spec's fields. Each function takes the raw value and returns the parsed one, or raises a refusal.

A refusal says what was expected, what was found, and the nearest correct value if there is one.
"""

import math
import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeGuard

from pydantic_core import PydanticCustomError

from trainmaster.agent.metrics.patterns import PatternError, compiled
from trainmaster.model.ids import NAME
from trainmaster.model.options.notify_targets import kind_of
from trainmaster.spec.faults import describe, nearest

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)\Z", re.ASCII)
_DECIMAL_UNITS = {f"{prefix}B": 1000**n for n, prefix in enumerate("kMGTP", 1)}
_SIZE_UNITS: dict[str, int] = {"B": 1} | _DECIMAL_UNITS | {f"{prefix}iB": 1024**n for n, prefix in enumerate("KMGTP", 1)}
_SIZE_EXAMPLE = "a size such as 64GiB, 500MB or 1.5TiB"
MEMORY_MIN_BYTES = 1024 * 1024
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?\Z", re.ASCII)
_DURATION_EXAMPLE = "a duration such as 12h, 30m, 90s, 1h30m or 1d, or a number of seconds"
_DURATION_WORDS = ("d", "days", "h", "hours", "hrs", "m", "min", "minutes", "s", "seconds")
_RANGE = re.compile(r"(\d{1,5})\s*(?:\.\.\.?|-|–|:|to)\s*(\d{1,5})", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?\Z", re.ASCII)
_DURATION_MAX_S = 10 * 365 * 86400.0
_GPU_KIND = re.compile(r"(?P<kind>[A-Za-z][A-Za-z0-9_.-]*)(?::(?P<count>[0-9]{1,6}|[0-9]*\.[0-9]{1,9}))?\Z")
_GPUS_EXPECTED = "a whole number such as 2, a fraction of one such as 0.25, or a kind and either such as h100:8"
GPUS_MAX = 1024
_PLACEHOLDER = re.compile(r"(?<!\$)\{[^{}]*\}")
_WORD_IN_BRACES = re.compile(r"(?<!\$)\{(?:[A-Za-z_]*|(?:path|step)[:!][^{}]*)\}")
_TRUTHS = {"yes": True, "no": False}  # text in YAML 1.2, but commonly meant as booleans
_SUGGESTION_MAX = 200
_NUMBER_MAX = 10**300
TEXT_MAX = 4096  # characters of a path, a URL or arguments
GLOB_MAX = 1000
COMMAND_MAX = 100_000  # for a command, one of its arguments, or a variable: the kernel allows 128 KiB each
PARAM_MAX = 20_000
NAME_MAX = 250  # for the name of a parameter or a tag


def refusal(expected: str, got: object, suggestion: str | None = None, message: str | None = None) -> PydanticCustomError:
    """The error that a field's parser raises."""
    words = describe(got)
    text = message or f"expected {expected}, got {words}"
    if suggestion is not None and len(suggestion) > _SUGGESTION_MAX:
        suggestion = None
    if suggestion is not None:
        text += f"; did you mean {suggestion!r}?"
    return PydanticCustomError(
        "spec", "{message}", {"message": text, "expected": expected, "got": words, "nearest": suggestion}
    )


def unsupported(what: str, instead: str, got: object = None) -> PydanticCustomError:
    """The refusal of something that is not supported yet; `instead` says what to do."""
    return refusal("", got, message=f"{what} is not supported yet; {instead}")


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is a finite number that fits into a float. (`math.isfinite` raises for integers of 400 digits.)"""
    if isinstance(value, bool):
        return False
    return (isinstance(value, int) and abs(value) < _NUMBER_MAX) or (isinstance(value, float) and math.isfinite(value))


def whole(value: object, low: int, high: int) -> int:
    """A whole number in a range."""
    expected = f"a whole number from {low} to {high:,}"
    if isinstance(value, int) and not isinstance(value, bool):
        if low <= value <= high:
            return value
        raise refusal(expected, value, str(low if value < low else high))
    if isinstance(value, float) and value.is_integer() and low <= value <= high:
        raise refusal(expected, value, str(int(value)))
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value) and low <= int(value) <= high:
        raise refusal(expected + " (without quotes)", value, str(int(value)))
    raise refusal(expected, value)


def nodes(value: object, high: int) -> int:
    """A number of nodes. A range is rejected with a hint where it belongs."""
    return whole(not_a_range(value, f"a whole number from 1 to {high:,}"), 1, high)


def not_a_range(value: object, expected: str) -> object:
    """`value`, unless it is a range: `2..8`, `2-8`, `[2, 8]`, `{min: 2, max: 8}`."""
    found: Sequence[object] = ()
    if isinstance(value, str):
        match = _RANGE.fullmatch(value.strip())
        found = match.groups() if match is not None else ()
    elif isinstance(value, list):
        found = value
    elif isinstance(value, dict) and value.keys() == {"min", "max"}:
        found = value["min"], value["max"]
    if len(found) == 2 and all(re.fullmatch(r"[0-9]{1,5}", str(one)) for one in found):
        low, high = found
        form = f"elastic: {{nodes_min: {low}, nodes_max: {high}}}"
        raise refusal(expected, value, message=f"from {low} to {high} nodes is written '{form}'")
    return value


def cpus(value: object) -> float:
    """CPU cores; may be fractional."""
    expected = "a number of cores greater than 0, such as 4 or 0.5"
    if not is_number(value):
        suggestion = value if isinstance(value, str) and _NUMBER.match(value) else None
        raise refusal(expected + (" (without quotes)" if suggestion else ""), value, suggestion)
    if not 0.001 <= value <= 100_000:
        raise refusal(expected, value)
    return float(value)


def gpus(value: object) -> tuple[float, str | None]:
    """`2`, `0.25` or `h100:8` -> (number, kind). The number is whole, or a fraction of one GPU in thousandths."""
    if isinstance(value, list | tuple):
        raise refusal(_GPUS_EXPECTED, value, message="a choice of GPUs (a list) is possible for ranks only; name one kind here")
    if isinstance(value, float) and not value.is_integer():
        return _gpu_part(value, value), None
    if isinstance(value, str):
        return _gpu_kind(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refusal(_GPUS_EXPECTED, value, str(int(value)) if isinstance(value, float) and math.isfinite(value) else None)
    if not 0 <= value <= GPUS_MAX:
        raise refusal(f"from 0 to {GPUS_MAX} GPUs per node", value)
    return value, None


def gpu_choice(value: object) -> tuple[float, str | None]:
    """One of several choices: a kind and a number."""
    found = gpus(value) if isinstance(value, str) and not re.fullmatch(r"[\d.\s]*", value) else (0, None)
    if found[1] is None:
        raise refusal("a kind and a number such as h100:8 for each of several choices", value)
    return found


def _gpu_part(number: float, value: object) -> float:
    part = round(number, 3) if math.isfinite(number) else 0.0
    if not 0 < part < 1:
        raise refusal("a whole number of GPUs, or a fraction of one GPU from 0.001 to 0.999", value)
    return part


def _gpu_kind(value: str) -> tuple[float, str | None]:
    match = _GPU_KIND.match(value)
    if match is None or match["count"] is None:
        turned = re.fullmatch(r"([0-9]{1,4})(?:\s+|\s*[:x*]\s*)([A-Za-z][A-Za-z0-9_.-]*)", value)
        suggestion = f"{value}:1" if match else f"{turned[2]}:{turned[1]}" if turned else None
        if re.fullmatch("[0-9]{1,4}", value):
            raise refusal(_GPUS_EXPECTED + " (a number without quotes)", value, value)
        raise refusal(_GPUS_EXPECTED, value, suggestion)
    if "." in match["count"]:
        return _gpu_part(float(match["count"]), value), match["kind"].lower()
    count = int(match["count"])
    if not 1 <= count <= GPUS_MAX:
        raise refusal(f"from 1 to {GPUS_MAX} GPUs of a kind per node", value)
    return count, match["kind"].lower()


def size_bytes(value: object) -> int:
    """`64GiB` -> bytes; a bare number is bytes."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise refusal(_SIZE_EXAMPLE, value)
    match = _SIZE.match(str(value).strip())
    if match is None or len(match["number"]) > 20:
        raise refusal(_SIZE_EXAMPLE, value)
    unit = match["unit"] or "B"
    if unit not in _SIZE_UNITS:
        raise refusal(_SIZE_EXAMPLE, value, _near_unit(match["number"], unit))
    number = match["number"]
    factor = _SIZE_UNITS[unit]
    total = int(number) * factor if number.isdigit() else round(float(number) * factor)
    if total < MEMORY_MIN_BYTES:
        suggestion = f"{number}GiB" if not match["unit"] and total else None
        raise refusal("at least 1MiB", value, suggestion)
    if total > 2**60:
        raise refusal("at most 1024PiB", value)
    return total


def _near_unit(number: str, unit: str) -> str | None:
    prefix = unit[0].upper()
    if prefix not in "KMGTP":
        return None
    binary = "i" in unit.lower() or len(unit) == 1 or prefix == "K"
    return f"{number}{prefix}{'iB' if binary else 'B'}"


def duration_s(value: object) -> float:
    """`1h30m` -> seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise refusal(_DURATION_EXAMPLE, value)
    if not isinstance(value, str) and not is_number(value):
        raise refusal("a duration of at most 10 years", value)
    seconds = _seconds(value) if isinstance(value, str) else float(value)
    if not (math.isfinite(seconds) and 0 < seconds <= _DURATION_MAX_S):
        raise refusal("a duration greater than 0 and at most 10 years", value)
    return seconds


def _seconds(value: str) -> float:
    text = value.strip()
    if _NUMBER.match(text) and len(text) <= 20:
        return float(text)
    match = _DURATION.match(text.replace(" ", "")) if text and len(text) <= 60 else None
    if match is None:
        raise refusal(_DURATION_EXAMPLE, value, _near_duration(text))
    return sum(float(part) * unit for part, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True) if part)


def _near_duration(text: str) -> str | None:
    clock = re.fullmatch(r"([0-9]{1,3}):([0-9]{2})(?::([0-9]{2}))?", text)
    if clock:  # 12:30 as in batch systems: hours first
        hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return "".join(f"{n}{u}" for n, u in ((hours, "h"), (minutes, "m"), (seconds, "s")) if n) or None
    worded = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)", text)
    if worded and nearest(worded[2], _DURATION_WORDS):
        return worded[1] + worded[2][0].lower()
    return None


def name(value: object) -> str:
    """The name of a job, experiment or project."""
    expected = "a name of up to 63 letters, digits, '-', '_' and '.', beginning with a letter or digit"
    if not isinstance(value, str):
        quoted = isinstance(value, int | float) and not isinstance(value, bool)
        raise refusal("a name in quotes" if quoted else expected, value)
    if NAME.match(value) is None:
        raise refusal(expected, value, valid_name(value) or None)
    return value


def valid_name(text: str) -> str:
    """The nearest valid name; empty if there is none."""
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).lstrip("-_.")[:63].rstrip("-.")
    return kept if NAME.match(kept) else ""


def text(value: object, expected: str = "a text", most: int = TEXT_MAX) -> str:
    """A non-blank string of at most `most` characters."""
    if not isinstance(value, str):
        quoted = isinstance(value, bool | int | float)
        raise refusal(expected + (" in quotes" if quoted else ""), value)
    if not value.strip():
        raise refusal(expected, value, message=f"expected {expected}, got an empty one")
    return _short(value, expected, most)


def notify_target(value: object) -> str:
    """A webhook, an e-mail address or a command."""
    expected = "https://…, an e-mail address, or run:COMMAND"
    given = text(value, expected)
    if kind_of(given) is None:
        raise refusal(expected, given)
    return given


def _short(value: str, expected: str, most: int) -> str:
    if len(value) > most:
        raise refusal(expected, value, message=f"expected {expected} of at most {most:,} characters, got {len(value):,}")
    return value


def label(name: str) -> str:
    """The name of a parameter or a tag."""
    return _short(name, "a name", NAME_MAX)


def command(value: object) -> str | tuple[str, ...]:
    """A line for bash, or a list of arguments."""
    expected = "a command such as 'python train.py', or a list of its arguments"
    if isinstance(value, str):
        return text(value, expected, COMMAND_MAX)
    if isinstance(value, bool):
        raise refusal(expected, value, message=f"expected {expected}, got {describe(value)}; write it in quotes")
    if not isinstance(value, list | tuple):
        raise refusal(expected, value)
    if not value or (isinstance(value[0], str) and not value[0].strip()):
        raise refusal(expected, value, message=f"expected {expected}, got an empty one")
    found = tuple(argument(part) for part in value)
    _short("".join(found), expected, COMMAND_MAX)
    return found


def argument(value: object) -> str:
    """A text, or a number converted to text."""
    if isinstance(value, bool) or value is None:
        raise refusal("a text", value, message=f"expected a text, got {describe(value)}; write it in quotes")
    if isinstance(value, int | float):
        return repr(value)
    if not isinstance(value, str):
        raise refusal("a text or a number", value)
    return _short(value, "a text", COMMAND_MAX)


def param(value: object) -> Any:
    """A scalar that JSON can hold."""
    if isinstance(value, float) and not math.isfinite(value):
        raise refusal("a finite number, or a text in quotes", value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise refusal("a number of at most 64 bits, or a text in quotes", value)
    if isinstance(value, str):
        return _short(value, "a text", PARAM_MAX)
    if value is None or isinstance(value, int | float):
        return value
    raise refusal("a text, a number, true, false or null", value)


def glob(value: object, what: str) -> str:
    """A relative glob inside the work directory that does not match all of it."""
    written = text(value, what, GLOB_MAX)
    if written.startswith(("/", "~")):
        raise refusal(what + ", relative to the work directory", value)
    if ".." in written.split("/"):
        raise refusal(what + " inside the work directory, without '..'", value)
    path = posixpath.normpath(written)
    if all(set(part) <= {"*"} for part in path.split("/")) or path == ".":
        message = f"{describe(written)} matches the program itself; name a directory or a suffix, as 'out/*.pt'"
        raise refusal(what, value, message=message)
    return path


def checkpoint_path(value: object) -> str:
    """A glob with at most one `{step}`."""
    path = glob(value, "a path such as out/ckpt*.pt")
    found = _PLACEHOLDER.findall(path)
    wrong = next((mark for mark in found if mark != "{step}"), None)
    if wrong is not None:
        raise refusal("{step} as the only placeholder", value, path.replace(wrong, "{step}") if len(found) == 1 else None)
    if len(found) > 1:
        raise refusal("{step} at most once", value)
    return path


def resume_arguments(value: object) -> str:
    """Arguments, with no placeholders but `{path}`, `{directory}` and `{step}`, which take no format (`{step:>5}`)."""
    arguments = text(value, "arguments such as '--resume {path}'")
    known = ("{path}", "{directory}", "{step}")
    wrong = next((mark for mark in _WORD_IN_BRACES.findall(arguments) if mark not in known), None)
    if wrong is not None:
        meant = next((mark for mark in ("{step}", "{directory}") if wrong.startswith(mark[:4])), "{path}")
        raise refusal("no placeholders but {path}, {directory} and {step}", value, arguments.replace(wrong, meant))
    return arguments


def metrics_pattern(value: object) -> str:
    """A regular expression with a named group. `step` alone gives the steps of the values on other lines."""
    expected = r"a regular expression with named groups such as 'step (?P<step>\d+): loss (?P<loss>[\d.]+)'"
    pattern = text(value, expected)
    if (why := pattern_fault(pattern)) is not None:
        raise refusal(expected, value, message=why)
    return pattern


@lru_cache(maxsize=256)  # jobs of a batch mostly share one pattern
def pattern_fault(pattern: str) -> str | None:
    """Why a metrics pattern is rejected; None if it is valid."""
    try:
        groups = compiled(pattern).groupindex
    except PatternError as error:
        return f"this pattern cannot be used: {error}"
    return None if groups else r"no named group, so nothing is read; name what to read: (?P<loss>[\d.]+), (?P<step>\d+)"


def truth(value: object) -> bool:
    """True or false."""
    if isinstance(value, str) and value in _TRUTHS:
        return _TRUTHS[value]
    if not isinstance(value, bool):
        raise refusal("true or false", value)
    return value


def choice(value: object, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    expected = " or ".join(repr(c) for c in choices)
    if isinstance(value, str) and value in choices:
        return value
    raise refusal(expected, value, nearest(value, choices, 0.4) if isinstance(value, str) else None)
