"""Resolves plain scalars by the rules of YAML 1.2. Separate from the reader, because the command line needs no parser.

Source: YAML 1.2.2, section 10.3 (core schema).
"""

import math
import re

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = r"[-+]?[0-9]+\Z"
_OCTAL = r"0o[0-7]+\Z"
_HEX = r"0x[0-9a-fA-F]+\Z"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"
_INFINITE = r"[-+]?\.(?:inf|Inf|INF)\Z"
_NAN = frozenset((".nan", ".NaN", ".NAN"))


def scalar(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar. Raises: ValueError for a number beyond 64 bits."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    for pattern, base in ((_INT, 10), (_OCTAL, 8), (_HEX, 16)):
        if re.match(pattern, text):
            return _integer(text, base)
    if re.match(_FLOAT, text):
        return float(text)
    if re.match(_INFINITE, text):
        return -math.inf if text[0] == "-" else math.inf
    return math.nan if text in _NAN else text


def _integer(text: str, base: int) -> int:
    value = int(text, base if base == 10 else 0) if len(text) <= 64 else 2**64
    if not -(2**63) <= value < 2**63:
        raise ValueError("the number does not fit into 64 bits; quote it if it is text")
    return value
