"""A code copy as data: a content-addressed tree of entries. `digest(tree)` is its id; objects are named by SHA-256."""

import hashlib
import json
import re
from typing import List, TypedDict

_PLAIN = re.compile(r"[A-Za-z0-9_./ -]*\Z").match  # JSON escapes nothing in such paths


class Entry(TypedDict, total=False):
    """A relative path with `/`. `type`: "file" (sha256, mode, bytes) | "symlink" (target) | "link" | "directory"."""

    path: str
    type: str  # "link": git ignores it or it exceeds the limit; linked to the source if the file system is shared
    # "directory": nothing of it is copied, but a program may expect it
    sha256: str
    mode: int  # 0o644 or 0o755
    bytes: int
    target: str


class Tree(TypedDict):
    """Entries sorted by path; directories with entries are implicit."""

    entries: List[Entry]


def canonical(tree: Tree) -> bytes:
    """The canonical JSON that is digested and stored: keys sorted, no spaces, UTF-8."""
    entries = tree["entries"]
    plain = _PLAIN("".join([entry["path"] for entry in entries])) is not None
    return ('{"entries":[' + ",".join([_text(entry, plain) for entry in entries]) + "]}").encode()


def _text(entry: Entry, plain: bool) -> str:
    """Equals `json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)`, but is faster for files.

    `plain`: JSON escapes nothing in its path.
    """
    if entry["type"] != "file" or len(entry) != 5 or not (plain or _PLAIN(entry["path"])) or type(entry["bytes"]) is not int:
        return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    path, size, mode, sha256 = entry["path"], entry["bytes"], entry["mode"], entry["sha256"]
    return f'{{"bytes":{size},"mode":{mode:d},"path":"{path}","sha256":"{sha256}","type":"file"}}'


def digest(tree: Tree) -> str:
    """SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(tree)).hexdigest()
