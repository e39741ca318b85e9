"""Writes a mapping as YAML that the reader, and any YAML 1.1 or 1.2 reader, reads back as the same values."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from trainmaster.spec.yaml.scalars import scalar

_STR = "tag:yaml.org,2002:str"
_WIDTH = 2**31  # nothing is folded
_PLAIN = re.compile("[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]*")  # needs no escapes


class _Dumper(yaml.SafeDumper):
    """Block style without aliases; text that a reader could take for something else is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values out."""
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    lines = "\n" in text.strip("\n") and _PLAIN.fullmatch(text) is not None
    return dumper.represent_scalar(_STR, text, "|" if lines else '"' if _looks_otherwise(text) else None)


def _looks_otherwise(text: str) -> bool:
    if "\n" in text or _PLAIN.fullmatch(text) is None:
        return True
    try:
        return not isinstance(scalar(text), str)
    except ValueError:  # a number beyond 64 bits
        return True


_Dumper.add_representer(str, _text)


def to_yaml(mapping: Mapping[str, Any]) -> str:
    """The mapping as a YAML file."""
    return str(yaml.dump(dict(mapping), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH))
