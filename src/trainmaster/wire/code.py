"""A code copy as data: a tree of entries, content-addressed. `digest(tree)` names it; objects are named by SHA-256."""

import hashlib
import json
from typing import List, TypedDict


class Entry(TypedDict, total=False):
    """One path of a tree, relative, with `/`. `type`: "file" (sha256, mode, bytes) | "symlink" (target) | "link"."""

    path: str
    type: str  # "link": git ignores it or it is over the limit; linked to the source where the file system is shared
    sha256: str
    mode: int  # 0o644 or 0o755
    bytes: int
    target: str


class Tree(TypedDict):
    """Entries sorted by path; directories are implied."""

    entries: List[Entry]


def canonical(tree: Tree) -> bytes:
    """The one JSON form that is digested and stored."""
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(tree: Tree) -> str:
    """SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(tree)).hexdigest()
