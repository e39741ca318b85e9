"""The names that other people's programs rely on: a change here is a change of the public interface, to be made on purpose."""

import importlib
from pathlib import Path

import pytest

SNAPSHOT = Path(__file__).with_name("public_names.txt")
MODULES = (
    "trainmaster",
    "trainmaster.sdk",
    "trainmaster.testing.builders",
    "trainmaster.testing.engine_contract",
    "trainmaster.testing.store_contract",
)


def names(module_name: str) -> list[str]:
    """What a module offers: its `__all__` (each of them must be there), else the classes and functions it defines."""
    module = importlib.import_module(module_name)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module_name]
    offered = getattr(module, "__all__", None) or [name for name in own if not name.startswith("_")]
    for name in offered:
        getattr(module, name)
    return sorted(offered)


def expected() -> dict[str, list[str]]:
    lines = [line.split() for line in SNAPSHOT.read_text().splitlines() if line and not line.startswith("#")]
    return {words[0].rstrip(":"): words[1:] for words in lines}


@pytest.mark.parametrize("module_name", MODULES)
def test_public_names_are_as_announced(module_name: str) -> None:
    assert names(module_name) == expected()[module_name], (
        f"write the new list into {SNAPSHOT.name} and a line into CHANGELOG.md, or keep the old name working"
    )
