"""Trainmaster: takes a training program a person already has, and gets it trained.

Public names are loaded on first use (PEP 562), so that importing the package costs nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {"submit": "trainmaster.client.submission", "Client": "trainmaster.client.api"}
__all__ = ["Client", "__version__", "submit"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'trainmaster' has no attribute {name!r}")
