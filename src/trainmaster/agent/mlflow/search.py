"""The filters and orders of searches for runs and models: comparisons joined by AND, as MLflow's syntax has them. No I/O.

What is written otherwise is refused, never ignored. A line is read in linear time.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Union

    Body = dict[str, Any]
    Value = Union[str, float, None]

_LIKE_MAX = 200  # characters of a pattern: each may be compared with each of a value
TEXT_MAX = 5000  # characters of a filter or an order
_KINDS = {
    **dict.fromkeys(("metrics", "metric"), "metrics"),
    **dict.fromkeys(("params", "parameters", "param", "parameter"), "params"),
    **dict.fromkeys(("tags", "tag"), "tags"), **dict.fromkeys(("attributes", "attribute", "attr", "run"), "attributes"),
}  # fmt: skip
RUN_ATTRIBUTES = {
    **{name: name for name in ("run_id", "run_name", "status", "artifact_uri", "user_id", "start_time", "end_time")},
    "run name": "run_name", "Run name": "run_name", "Run Name": "run_name", "created": "start_time", "Created": "start_time",
}  # fmt: skip
MODEL_ATTRIBUTES = {
    **{name: name for name in ("name", "model_id", "model_type", "status", "source_run_id", "artifact_uri")},
    **{f"creation_{word}": "creation_timestamp_ms" for word in ("time", "timestamp", "timestamp_ms")},
    **{f"last_updated_{word}": "last_updated_timestamp_ms" for word in ("time", "timestamp", "timestamp_ms")},
}  # fmt: skip
_TIMES = ("start_time", "end_time", "creation_timestamp_ms", "last_updated_timestamp_ms")
_TOKEN = re.compile(
    r"\s{0,100}(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<quoted>`[^`]*`)|(?P<number>-?\.?\d[\d.eE+-]*)|(?P<sign>!=|>=|<=|=|<|>|[(),])"
    r"|(?P<word>[A-Za-z_][\w/-]*)|(?P<dot>\.))"
)


class SearchError(ValueError):
    """The filter or order is not understood; the text says what is."""


def matching(found: list[Body], text: str, order_by: list[str], attributes: dict[str, str]) -> list[Body]:
    """The runs or models that a filter selects, in order. Raises: SearchError.

    `found`: as MLflow's answers show them, in the order in which equal ones are to be. `attributes`: the names of those in
    `info` that they can be searched by, and their own names there.
    """
    tests = _tests(text, attributes)
    found = [one for one in found if all(test(one) for test in tests)]
    for order in reversed(order_by):
        _sort(found, order, attributes)
    return found


def _sort(runs: list[Body], order: str, attributes: dict[str, str]) -> None:
    tokens = _tokens(order)
    name, rest = _name(tokens, attributes)
    word = rest[0][1].upper() if rest else "ASC"
    if word not in ("ASC", "DESC") or len(rest) > 1:
        raise SearchError(f"{order!r} is no order: write metrics.loss ASC")
    valued = [run for run in runs if (value := _value(run, name)) is not None and value == value]  # NaN is last
    missing = [run for run in runs if (value := _value(run, name)) is None or value != value]
    valued.sort(key=lambda run: _value(run, name), reverse=word == "DESC")  # type: ignore[arg-type,return-value]
    runs[:] = [*valued, *missing]


def _tests(text: str, attributes: dict[str, str]) -> list[Callable[[Body], bool]]:
    tokens, tests = _tokens(text), []
    while tokens:
        name, tokens = _name(tokens, attributes)
        test, tokens = _comparison(name, tokens)
        tests.append(test)
        if tokens:
            if tokens[0][1].upper() != "AND" or len(tokens) == 1:
                raise SearchError(f"only comparisons joined by AND are understood, not {tokens[0][1]!r}")
            tokens = tokens[1:]
    return tests


def _tokens(text: str) -> list[tuple[str, str]]:
    """(kind, text) of each token."""
    if len(text) > TEXT_MAX:
        raise SearchError(f"at most {TEXT_MAX} characters are understood")
    text, at, found = text.rstrip(), 0, []
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SearchError(f"it is not understood from {text[at : at + 20]!r} on")
        kind = str(match.lastgroup)
        said = match.group(kind)
        found.append((kind, said[1:-1] if kind in ("text", "quoted") else said))
        at = match.end()
    return found


def _name(tokens: list[tuple[str, str]], attributes: dict[str, str]) -> tuple[tuple[str, str], list[tuple[str, str]]]:
    """(kind, key) that the tokens begin with, and the others: `metrics.loss`, params."a b", tags.`a.b`, status."""
    if not tokens or tokens[0][0] not in ("word", "quoted", "text"):
        raise SearchError("a comparison begins with a name such as metrics.loss")
    first = tokens[0][1]
    if len(tokens) < 2 or tokens[1][0] != "dot":
        if first not in attributes:
            raise SearchError(f"{first!r} is no name: write metrics.…, params.…, tags.… or attributes.…")
        return ("attributes", attributes[first]), tokens[1:]
    kind, at, parts = _KINDS.get(first), 2, []
    while at < len(tokens) and tokens[at][0] in ("word", "quoted", "text", "number"):
        parts.append(tokens[at][1])
        if tokens[at][0] in ("quoted", "text") or at + 1 >= len(tokens) or tokens[at + 1][0] != "dot":
            at += 1
            break
        at += 2
    key = ".".join(parts)
    if kind is None or not key or (kind == "attributes" and key not in attributes):
        raise SearchError(f"{first}.{key} is no name that can be searched by")
    return (kind, attributes[key] if kind == "attributes" else key), tokens[at:]


def _comparison(
    name: tuple[str, str], tokens: list[tuple[str, str]]
) -> tuple[Callable[[Body], bool], list[tuple[str, str]]]:
    said = tokens[0][1].upper() if tokens else ""
    if said == "IS" and name[0] in ("params", "tags"):
        there = len(tokens) > 2 and tokens[1][1].upper() == "NOT"
        if [token[1].upper() for token in tokens[1 : 3 if there else 2]][-1:] == ["NULL"]:
            return (lambda run: (_value(run, name) is not None) is there), tokens[3 if there else 2 :]
    negated = said == "NOT"
    if negated:
        tokens, said = tokens[1:], tokens[1][1].upper() if len(tokens) > 1 else ""
    if said == "IN" and len(tokens) > 2 and tokens[1][1] == "(":
        end = next((at for at, token in enumerate(tokens) if token == ("sign", ")")), 0)
        listed = {token[1] for token in tokens[2:end] if token[0] == "text"}
        if end and listed:
            among = lambda run: _value(run, name) is not None and (_value(run, name) in listed) is not negated  # noqa: E731
            return among, tokens[end + 1 :]
    if len(tokens) > 1 and tokens[1][0] in ("text", "number") and not negated:
        number = tokens[1][0] == "number"
        if number != (name[0] == "metrics" or name[1] in _TIMES):
            raise SearchError(f"{'.'.join(name)} is compared with {'a text in quotes' if number else 'a number'}")
        test = _operator(said, _number(tokens[1][1]) if number else tokens[1][1])
        if test is not None:
            fits = str if not number else float
            return (lambda run: isinstance(value := _value(run, name), fits) and test(value)), tokens[2:]
    raise SearchError(f"the comparison of {'.'.join(name)} is not understood: write = != > < >= <= LIKE ILIKE IN and a value")


def _operator(sign: str, wanted: Union[str, float]) -> Optional[Callable[[Any], bool]]:
    if isinstance(wanted, str) and sign in ("LIKE", "ILIKE"):
        if len(wanted) > _LIKE_MAX:
            raise SearchError(f"LIKE is understood with up to {_LIKE_MAX} characters")
        fold = str.lower if sign == "ILIKE" else str
        return lambda value: _like(fold(value), fold(wanted))
    signs: dict[str, Callable[[Any], bool]] = {
        "=": lambda value: value == wanted, "!=": lambda value: value != wanted, ">": lambda value: value > wanted,
        "<": lambda value: value < wanted, ">=": lambda value: value >= wanted, "<=": lambda value: value <= wanted,
    }  # fmt: skip
    ordered = isinstance(wanted, float) or sign in ("=", "!=")
    return signs.get(sign) if ordered else None


def _like(text: str, pattern: str) -> bool:
    """Whether `text` has the form of `pattern`: `%` stands for any characters, `_` for one."""
    at = said = 0
    again: Optional[tuple[int, int]] = None  # where the last `%` may take one character more
    while at < len(text):
        if said < len(pattern) and pattern[said] == "%":
            again, said = (at, said + 1), said + 1
        elif said < len(pattern) and pattern[said] in ("_", text[at]):
            at, said = at + 1, said + 1
        elif again is not None:
            again = (again[0] + 1, again[1])
            at, said = again
        else:
            return False
    return not pattern[said:].strip("%")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise SearchError(f"{text!r} is no number") from error


def _value(run: Body, name: tuple[str, str]) -> Value:
    kind, key = name
    if kind == "attributes":
        value = run["info"].get(key)
        return float(value) if isinstance(value, int) else value
    found = next((one["value"] for one in run["data"][kind] if one["key"] == key), None)
    return float(found) if kind == "metrics" and found is not None else found
