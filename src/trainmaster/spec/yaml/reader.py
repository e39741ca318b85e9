"""A YAML 1.2 reader (core schema) that records the line and column of everything.

PyYAML's C parser delivers events. Scalars are resolved here, because PyYAML's own resolver follows YAML 1.1
(`on` is true, `12:30` is 750, `010` is 8, `1e-4` a string). Duplicate keys are faults; merge keys have no special meaning.
Nesting, aliases and size are bounded, so every file is read quickly.
Source: YAML 1.2.2, section 10.3 (core schema).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from trainmaster.spec.faults import Fault, describe, spec_error
from trainmaster.spec.yaml.scalars import scalar

SIZE_MAX_BYTES = 1024 * 1024
_DEPTH_MAX = 30
_NODES_MAX = 50_000  # in the file, and again after aliases are expanded
_FAULTS_MAX = 1000  # collected; far more than are shown
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAG = "tag:yaml.org,2002:"
_NAME_SHOWN = 80  # characters of a name, a tag or an anchor in a message
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_MEANT = {  # message of the parser -> the usual cause
    "found unknown escape character": "in double quotes a backslash escapes: put the text in 'single quotes'",
    "did not find expected alphabetic or numeric character": "a text that begins with * or & needs quotes",
    "found character that cannot start any token": "a text that begins with @, % or ` needs quotes",
    "mapping values are not allowed": "check the indentation; a text with a colon and a space in it needs quotes",
    "did not find expected ',' or '}'": "close the {; a text with { or } in it needs quotes inside of it",
    "did not find expected ',' or ']'": "close the [; a text with [ or ] in it needs quotes inside of it",
    "found unexpected end of stream": "close the quotes",
    "block sequence entries are not allowed": "begin the list on a line of its own, or write [a, b]",
}

Path = tuple[str | int, ...]
Place = tuple[int, int]


@dataclass(slots=True)
class Positions:
    """The positions of everything in a file, as (line, column), both from 1."""

    file: str
    values: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)  # numbers as they are written in the file

    def value(self, path: Path) -> Place:
        """The position of a value, or of its nearest parent if the file does not have it."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, (1, 1))

    def key(self, path: Path) -> Place:
        """The position of a key, or of its value if it has none."""
        return self.keys.get(path) or self.value(path)


@dataclass(frozen=True, slots=True)
class Document:
    """A file that could be parsed: its value, its positions, and its faults."""

    value: Any
    where: Positions
    faults: tuple[Fault, ...] = ()


@dataclass(slots=True)
class _Node:
    """`value` is a scalar, a list of nodes, or a list of (key node, node)."""

    kind: str  # "scalar" | "list" | "mapping"
    place: Place
    value: Any
    text: str | None = None


def parse(data: bytes, file: str) -> Document:
    """Parse the single document of a file. Raises: SpecError if it is not YAML."""
    text = _decoded(data, file)
    composer = _Composer(file)
    try:
        root = composer.document(iter(yaml.parse(text, Loader=_Loader)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is not None and not "\n".join(text.split("\n")[mark.line :])[mark.column :].strip():
            mark = error.context_mark or mark  # at the end of the file, the start of the open construct is more useful
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise _unreadable(file, place, _plain_words(error, text, place)) from error
    except yaml.YAMLError as error:
        raise _unreadable(file, (1, 1), f"not YAML: {error}") from error
    where = Positions(file)
    value = _Values(where, composer).build(root, ()) if root is not None else None
    if root is None or root.value is None:
        where.values[()] = (1, 1)
    return Document(value, where, tuple(composer.faults))


def _decoded(data: bytes, file: str) -> str:
    if len(data) > SIZE_MAX_BYTES:
        raise _unreadable(file, (1, 1), f"the file has more than {SIZE_MAX_BYTES:,} bytes, the maximum")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = len(data[data.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", "replace")) + 1
        raise _unreadable(file, (line, column), "not UTF-8 text; save the file as UTF-8") from error
    text = text.removeprefix("\ufeff")
    odd = _UNPRINTABLE.search(text)
    if odd is not None:
        line = text.count("\n", 0, odd.start()) + 1
        column = odd.start() - text.rfind("\n", 0, odd.start())
        raise _unreadable(file, (line, column), f"the character U+{ord(odd.group()):04X} is not allowed in YAML")
    return text


def _plain_words(error: yaml.MarkedYAMLError, text: str, place: Place) -> str:
    lines = text.split("\n")
    line = lines[place[0] - 1] if place[0] <= len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "a tab in the indentation; YAML is indented with spaces"
    context = f" ({error.context})" if error.context else ""
    problem = error.problem or "unreadable"
    meant = next((f"; {meant}" for said, meant in _MEANT.items() if problem.startswith(said)), "")
    return f"not YAML: {problem}{context}{meant}"


def _unreadable(file: str, place: Place, message: str) -> Exception:
    return spec_error([Fault("", message, file=file, line=place[0], column=place[1])])


def _place(event: Any) -> Place:
    return event.start_mark.line + 1, event.start_mark.column + 1


class _Composer:
    """Composes events into nodes. Aliases share a node."""

    def __init__(self, file: str) -> None:
        self.faults: list[Fault] = []
        self._file = file
        self._anchors: dict[str, _Node | None] = {}  # None: not complete yet
        self._count = 0

    def fault(self, place: Place, message: str, expected: str = "", name: str = "") -> None:
        if len(self.faults) < _FAULTS_MAX:
            self.faults.append(Fault(name, message, expected, file=self._file, line=place[0], column=place[1]))

    def document(self, events: Iterator[Any]) -> _Node | None:
        """The root of the first document; a second document is a fault."""
        root: _Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise _unreadable(self._file, _place(event), "a second document; a file has one document")
                root = self._node(next(events), events, 0)
        return root

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> _Node:
        place = _place(event)
        self._count += 1
        if self._count > _NODES_MAX:
            raise _unreadable(self._file, place, f"more than {_NODES_MAX:,} names and values")
        if depth > _DEPTH_MAX:
            raise _unreadable(self._file, place, f"nested more than {_DEPTH_MAX} deep")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, place)
        if event.anchor:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, place)
        else:
            mapping = isinstance(event, yaml.MappingStartEvent)
            self._check_tag(event.tag, "map" if mapping else "seq", place)
            children = self._children(events, depth)
            if mapping:
                node = _Node("mapping", place, list(zip(children[::2], children[1::2], strict=True)))
            else:
                node = _Node("list", place, children)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _children(self, events: Iterator[Any], depth: int) -> list[_Node]:
        children = []
        for event in events:
            if isinstance(event, yaml.CollectionEndEvent):
                break
            children.append(self._node(event, events, depth + 1))
        return children

    def _alias(self, event: Any, place: Place) -> _Node:
        name = event.anchor[:_NAME_SHOWN]
        if event.anchor not in self._anchors:
            raise _unreadable(self._file, place, f"the alias *{name} has no anchor &{name} before it")
        node = self._anchors[event.anchor]
        if node is None:
            raise _unreadable(self._file, place, f"the alias *{name} is inside its own anchor")
        return node

    def _check_tag(self, tag: str | None, kind: str, place: Place) -> None:
        if tag not in (None, "!", _TAG + kind):
            self.fault(place, f"the tag {_short(tag)} is not supported", "plain YAML without tags")

    def _scalar(self, event: Any, place: Place) -> _Node:
        text: str = event.value
        if event.tag is None and not event.implicit[0]:
            return _Node("scalar", place, text)
        if event.tag in ("!", _TAG + "str"):
            return _Node("scalar", place, text)
        try:
            value = scalar(text)
        except ValueError as error:
            self.fault(place, str(error))
            value = 0
        if event.tag is not None and not _is_tagged(event.tag, value):
            self.fault(place, f"{describe(text)} does not fit the tag {_short(event.tag)}", "plain YAML without tags")
        return _Node("scalar", place, value, text)


def _short(tag: str | None) -> str:
    return (tag or "").replace(_TAG, "!!")[:_NAME_SHOWN]


def _is_tagged(tag: str, value: object) -> bool:
    kinds: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
    kind = kinds.get(tag.removeprefix(_TAG))
    return kind is not None and isinstance(value, kind) and (tag == _TAG + "bool" or not isinstance(value, bool))


class _Values:
    """Converts nodes to plain values and records their positions."""

    def __init__(self, where: Positions, composer: _Composer) -> None:
        self._where = where
        self._composer = composer
        self._count = 0

    def build(self, node: _Node, path: Path) -> Any:
        self._count += 1
        if self._count > _NODES_MAX or len(path) > _DEPTH_MAX:
            raise _unreadable(self._where.file, node.place, "too large after its aliases are expanded")
        self._where.values[path] = node.place
        if node.kind == "list":
            return [self.build(child, (*path, index)) for index, child in enumerate(node.value)]
        if node.kind == "mapping":
            return self._mapping(node, path)
        if node.text is not None and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            self._where.texts[path] = node.text
        return node.value

    def _mapping(self, node: _Node, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, child in node.value:
            if key.kind != "scalar" or not isinstance(key.value, str):
                quoted = f"; write '{key.text}' in quotes" if key.text else ""
                what = "a collection" if key.kind != "scalar" else describe(key.value)
                self._composer.fault(key.place, f"a name must be text, not {what}{quoted}", "a name", dotted(path))
            elif key.value in values:
                line, column = self._where.keys[(*path, key.value)]
                message = f"twice in the same mapping; the first is at line {line}, column {column}"
                self._composer.fault(key.place, message, "each name once", dotted((*path, key.value)))
            else:
                self._where.keys[(*path, key.value)] = key.place
                values[key.value] = self.build(child, (*path, key.value))
        return values


def dotted(path: Path) -> str:
    """A path as text: `resources.gpus`, `artifacts[1]`."""
    text = ""
    for part in path:
        name = f"[{part}]" if isinstance(part, int) else _shown(part)
        text += name if isinstance(part, int) or not text else f".{name}"
    return text


def _shown(name: str) -> str:
    """A name in a message: cut off, and without characters that cannot be seen."""
    short = name if len(name) <= _NAME_SHOWN else name[:_NAME_SHOWN] + "…"
    return short if short.isprintable() else repr(short)[1:-1]
