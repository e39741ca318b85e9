"""The walk in ARCHITECTURE.md is true: every file it names is there, and every room of the code is in its levels."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "trainmaster"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()


def test_every_file_named_exists() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", TEXT))
    assert len(named) > 30
    assert sorted(name for name in named if not (SOURCE / name).is_file()) == []


def test_every_page_linked_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_every_room_is_in_the_table_of_levels() -> None:
    levels = TEXT.split("## The levels")[1]
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    rooms |= {path.stem for path in SOURCE.glob("*.py") if not path.name.startswith("__")}
    assert sorted(room for room in rooms if f"`{room}`" not in levels) == []
