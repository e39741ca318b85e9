"""Names of the sections in a comparison, and formatting of values."""

import json
from typing import Any

SECTIONS = {
    "spec": "Spec", "params": "Parameters", "recorded": "Parameters that the program does not read",
    "tags": "Tags", "code": "Code", "files": "Files", "data": "Data",
    "python": "Python", "packages": "Packages", "hardware": "Hardware", "machine": "Machine",
    "variables": "Variables", "submitted": "Submitted",
}  # fmt: skip


def shown(value: Any) -> str:
    """A value as text; `-` if a run has none."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "none"
    return json.dumps(value, ensure_ascii=False)
