"""Trainmaster: takes a training program a person already has, and gets it trained.

Public names are loaded on first use (PEP 562), so that importing the package costs nothing.
"""

__version__ = "0.1.0"

_PUBLIC = {"submit": "trainmaster.client.submission", "Client": "trainmaster.client.api"}
__all__ = ["Client", "__version__", "submit"]


def __getattr__(name: str) -> object:
    if name in _PUBLIC:
        from importlib import import_module  # noqa: PLC0415  agents and training programs import this package too

        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'trainmaster' has no attribute {name!r}")
