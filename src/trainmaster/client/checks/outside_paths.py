"""A note before the submit on what a command names beside the work directory, which the job's copy does not have."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.client.checks.command_words import commands, words

_NAMED_MAX = 3


def outside(spec: Mapping[str, Any], directory: Path) -> list[str]:
    """`../data` of `--root ../data`, if it is there. Where it is not, a program may load it anew and not say so."""
    named = (word.rpartition("=")[2] for command in commands(spec) for word in words(command))
    root = os.path.realpath(directory)
    found = [path for path in dict.fromkeys(named) if path.startswith("../") and _is_beside(root, path)]
    if not found:
        return []
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    lie = "lies" if len(found) == 1 else "lie"
    return [
        f"{', '.join(found[:_NAMED_MAX])}{more} {lie} beside the directory, and not beside the job's copy of it: "
        "write absolute paths, or use --workdir .. or --in-place"
    ]


def _is_beside(root: str, path: str) -> bool:
    try:
        place = os.path.realpath(os.path.join(root, path))
        return os.path.exists(place) and os.path.commonpath((root, place)) != root
    except (OSError, ValueError):  # too long, a NUL
        return False
