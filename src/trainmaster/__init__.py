"""Trainmaster: runs a person's existing training program as a job, restarts it after failures, and keeps its results.

Public names are loaded on first use (PEP 562), so that importing the package is cheap.
"""

__version__ = "0.1.0"

_PUBLIC = {
    "submit": "trainmaster.client.submission",
    "Client": "trainmaster.client.api",
    "metrics_table": "trainmaster.client.metric_table",
}
__all__ = ["Client", "__version__", "metrics_table", "submit"]


def __getattr__(name: str) -> object:
    if name in _PUBLIC:
        from importlib import import_module  # noqa: PLC0415  agents and training programs import this package too

        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'trainmaster' has no attribute {name!r}")
