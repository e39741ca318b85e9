"""OpenAPI models of code copies. Documentation only, as in `models`."""

from typing import Any

from trainmaster.server.schemas.described import Described


class CodeTree(Described):
    """The tree of a code copy: `{"entries": [...]}` sorted by path."""

    tree: dict[str, Any]


class CodeMissing(Described):
    """Objects to upload; an empty list means that the tree is stored."""

    digest: str
    missing: list[str]


class CodeStored(Described):
    """How many objects were new."""

    stored: int
