"""Prints what goes along with a job: files that are copied, linked or left out and why, and variables."""

from collections.abc import Iterable, Mapping
from typing import Any

from trainmaster.cli.render import human

_ROWS = 20  # files and directories at the top of the copy
_NAMED = 12  # paths of one reason
_HEAD = 9


def draw(along: Mapping[str, Any]) -> list[str]:
    """All of it as lines of text."""
    lines = [_line("note", along["note"])] if along["note"] else []
    if along["copied"]:
        lines += _copied(along["copied"])
    for head, key in (("linked", "linked"), ("left out", "left_out")):
        by_reason: dict[str, list[str]] = {}
        for one in along[key]:
            by_reason.setdefault(one["why"], []).append(one["path"])
        lines += _under(head, (f"{_named(paths)}  ({why})" for why, paths in by_reason.items()))
    installed = along["editable"].items()
    lines += _under("imports", (f"{name} from {source}  (an editable install, not copied)" for name, source in installed))
    variables = along["variables"]
    told = [f"{', '.join(variables['shell'])} from this shell"] if variables["shell"] else []
    told += [f"{', '.join(variables['job'])} of the job"] if variables["job"] else []
    return [*lines, *_under("variables", told or ["none"])]


def _copied(files: list[dict[str, Any]]) -> list[str]:
    """The files and directories at the top, the largest first."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in files:
        top, inside, _ = one["path"].partition("/")
        groups.setdefault(top + inside, []).append(one)
    rows = sorted(((_size(group), name, group) for name, group in groups.items()), key=lambda row: (-row[0], row[1]))
    told = [f"{human.size(size):>9}  {name}{_count(name, group)}" for size, name, group in rows[:_ROWS]]
    more = [f"{human.size(sum(size for size, _, _ in rows[_ROWS:])):>9}  in {len(rows) - _ROWS:,} more"]
    return _under("copied", [*told, *(more if len(rows) > _ROWS else [])])


def _size(group: list[dict[str, Any]]) -> int:
    return sum(one["bytes"] for one in group)


def _count(name: str, group: list[dict[str, Any]]) -> str:
    """The number of files in a directory. Empty directories in it, whose paths end with a slash, are none."""
    files = sum(not one["path"].endswith("/") for one in group)
    return "" if not name.endswith("/") else f"  ({human.plural(files, 'file')})" if files else "  (empty)"


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
    return f"{', '.join(paths[:_NAMED])}{more}"


def _under(head: str, texts: Iterable[str]) -> list[str]:
    return [_line("" if number else head, text) for number, text in enumerate(texts)]


def _line(head: str, text: str) -> str:
    return f"{head:<{_HEAD}} {text}".rstrip()
