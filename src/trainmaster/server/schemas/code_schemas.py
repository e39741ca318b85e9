"""OpenAPI models of code copies. Documentation only, as in `models`."""

from typing import Any

from pydantic import BaseModel


class CodeTree(BaseModel):
    """The tree of a code copy: `{"entries": [...]}` sorted by path."""

    tree: dict[str, Any]


class CodeMissing(BaseModel):
    """Objects to upload; an empty list means that the tree is stored."""

    digest: str
    missing: list[str]


class CodeStored(BaseModel):
    """How many objects were new."""

    stored: int
