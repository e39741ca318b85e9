"""The generated reference is what the code says now, and every command is in it."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def generator() -> ModuleType:
    if str(ROOT / "docs") not in sys.path:
        sys.path.append(str(ROOT / "docs"))  # the generator's own modules lie beside it
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page",
    ["cli.md", "spec.md", "cluster.md", "errors.md", "events.md", "life-cycle.md", "rest.md", "sdk.md", "client.md", "mlflow.md"],
)
def test_the_reference_is_current(page: str) -> None:
    written = ROOT / "docs" / "reference" / page
    assert written.is_file(), "run `make docs`"
    assert written.read_text() == generator().PAGES[page](), "the code has moved on: run `make docs` and look at the difference"


def test_every_command_is_documented() -> None:
    commands = importlib.import_module("trainmaster.cli.app").COMMANDS
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert [name for name in commands if f"## `tm {name}`" not in page] == []


def test_every_field_of_the_cluster_file_is_in_the_glossary() -> None:
    page = (ROOT / "docs" / "reference" / "cluster.md").read_text().split("## Built-in classes")[0]
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    assert [field for field in re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) if f"`{field}`" not in glossary] == []


def test_every_error_code_is_documented() -> None:
    module = generator()
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    codes = {error.code for error in module.tree(module.errors.TrainmasterError)}
    assert [code for code in sorted(codes) if f"| `{code}` |" not in page] == []


def test_links_between_documents_lead_somewhere() -> None:
    found = []
    for document in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text()):
            if "://" not in target and not (document.parent / target).exists():
                found.append(f"{document.relative_to(ROOT)} -> {target}")
    assert found == [], "mend the link"


def test_a_page_says_what_is_trusted() -> None:
    """S7: that jobs of one Unix user can read the home and forge each other's end is said where a server is set up."""
    page = (ROOT / "docs" / "explanation" / "what-is-trusted.md").read_text()
    assert "It can read the home" in page
    assert "report a wrong end of another job" in page
    assert "../explanation/what-is-trusted.md" in (ROOT / "docs" / "howto" / "run-a-server.md").read_text()
