"""Adds file, line and column to faults, and converts pydantic's errors to faults."""

from collections.abc import Callable, Iterator
from typing import Any

from trainmaster.spec.faults import Fault, describe
from trainmaster.spec.yaml.reader import Path as FieldPath
from trainmaster.spec.yaml.reader import Positions, dotted

Unknown = Callable[[FieldPath, object], Fault]  # makes the fault for an unknown field


def at(where: Positions, path: FieldPath, fault: Fault, key: bool = False) -> Fault:
    """`fault` with the position of `path` in the file: of its value, or with `key` of its key."""
    if not where.file:
        return fault
    line, column = where.key(path) if key else where.value(path)
    return Fault(fault.field, fault.message, fault.expected, fault.got, fault.nearest, where.file, line, column)


def unspeakable(mapping: dict[Any, Any], where: Positions) -> list[Fault]:
    """Faults for texts with NUL characters or lone surrogates, and for keys that are not text."""
    faults: list[Fault] = []
    for path, value in _walk(mapping):
        if isinstance(value, dict):
            faults += [
                at(where, path, Fault(dotted(path), f"a name must be text, not {describe(key)}", "a name", describe(key)))
                for key in value if not isinstance(key, str)
            ]  # fmt: skip
        elif isinstance(value, str) and not _is_text(value):
            field = dotted(path).encode("utf-8", "replace").decode().replace("\0", "?")
            faults.append(at(where, path, Fault(field, "holds a NUL or half a character", "a text", "an unusable text")))
    return faults


def with_text(mapping: dict[Any, Any], where: Positions, hidden: str) -> list[Fault]:
    """Faults for texts that hold the word that stands for a hidden credential."""
    message = f"holds {hidden}, which stands for a credential; put the credential in its place"
    return [
        at(where, path, Fault(dotted(path), message, "the real value", hidden))
        for path, value in _walk(mapping)
        if isinstance(value, str) and hidden in value
    ]


def _walk(mapping: dict[Any, Any]) -> Iterator[tuple[FieldPath, Any]]:
    """Everything in a mapping, names included, with its path."""
    left: list[tuple[FieldPath, Any]] = [((), mapping)]
    while left:
        path, value = left.pop()
        yield path, value
        if isinstance(value, dict):
            left += [((*path, key), item) for key, item in value.items() if isinstance(key, str)]
            left += [((*path, key), key) for key in value if isinstance(key, str)]
        elif isinstance(value, list | tuple):
            left += [((*path, index), item) for index, item in enumerate(value)]


def _is_text(value: str) -> bool:
    return "\0" not in value and (value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value))


def fault_of(error: dict[str, Any], where: Positions, unknown: Unknown) -> Fault:
    """Convert one of pydantic's errors to a fault."""
    path: FieldPath = tuple(error["loc"])
    at_key = bool(path) and path[-1] == "[key]"
    path = path[:-1] if at_key else path
    field, kind = dotted(path), error["type"]
    if kind == "extra_forbidden":
        return at(where, path, unknown(path, error["input"]), key=True)
    if kind == "missing":
        message = f"missing; every role needs it, as '{path[-1]}: python eval.py --watch'"
        return at(where, path, Fault(field, message, "a command", "nothing"))
    if kind == "spec":
        context = error["ctx"]
        fault = Fault(field, context["message"], context["expected"], context["got"], context["nearest"])
        return at(where, path, fault, key=at_key)
    got = describe(error["input"])
    expected = {"model_type": "a mapping", "dict_type": "a mapping of names to values", "list_type": "a list"}.get(kind, "")
    message = f"expected {expected}, got {got}" if expected else error["msg"]
    alone = kind == "list_type" and isinstance(error["input"], str) and len(error["input"]) < 200
    suggestion = f"[{error['input']}]" if alone else None
    hint = f"; did you mean {suggestion!r}?" if suggestion else ""
    return at(where, path, Fault(field, message + hint, expected, got, suggestion))
