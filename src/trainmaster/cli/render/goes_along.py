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
    groups: dict[str, list[int]] = {}
    for one in files:
        top, inside, _ = one["path"].partition("/")
        groups.setdefault(top + inside, []).append(one["bytes"])
    rows = sorted(groups.items(), key=lambda row: (-sum(row[1]), row[0]))
    told = [f"{human.size(sum(sizes)):>9}  {name}{_count(name, sizes)}" for name, sizes in rows[:_ROWS]]
    more = [f"{human.size(sum(sum(sizes) for _, sizes in rows[_ROWS:])):>9}  in {len(rows) - _ROWS:,} more"]
    return _under("copied", [*told, *(more if len(rows) > _ROWS else [])])


def _count(name: str, sizes: list[int]) -> str:
    return f"  ({human.plural(len(sizes), 'file')})" if name.endswith("/") else ""


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
    return f"{', '.join(paths[:_NAMED])}{more}"


def _under(head: str, texts: Iterable[str]) -> list[str]:
    return [_line("" if number else head, text) for number, text in enumerate(texts)]


def _line(head: str, text: str) -> str:
    return f"{head:<{_HEAD}} {text}".rstrip()
