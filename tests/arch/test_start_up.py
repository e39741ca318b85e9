"""What a bare import and the command line's first milliseconds may load: nothing heavy."""

import json
import subprocess
import sys

import pytest

import trainmaster

HEAVY = (
    "alembic", "fastapi", "fsspec", "httpx", "numpy", "pydantic", "rich", "sqlalchemy", "starlette", "torch", "uvicorn",
)  # fmt: skip
WHY = "import it inside the function that needs it (with a word why), or in a module that only that command loads"


def loaded_by(code: str, names: tuple[str, ...]) -> list[str]:
    """Which of `names` a fresh interpreter has loaded after `code`, whatever `code` prints."""
    program = (
        f"import sys, json\ntry:\n    exec({code!r})\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"print()\nprint(json.dumps([name for name in {names!r} if name in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    found: list[str] = json.loads(result.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("module", ["trainmaster", "trainmaster.sdk", "trainmaster.cli.main"])
def test_imports_load_nothing_heavy(module: str) -> None:
    assert loaded_by(f"import {module}", HEAVY) == [], WHY


def test_help_loads_nothing_heavy() -> None:
    assert loaded_by("sys.argv = ['tm', '--help']\nfrom trainmaster.cli.main import main\nmain()", HEAVY) == [], WHY


def test_version_loads_not_even_click() -> None:
    code = "sys.argv = ['tm', '--version']\nfrom trainmaster.cli.main import main\nmain()"
    assert loaded_by(code, (*HEAVY, "click")) == [], "answer --version before Click is imported"


def test_version_is_said() -> None:
    result = subprocess.run([sys.executable, "-m", "trainmaster", "--version"], capture_output=True, text=True)
    assert (result.returncode, trainmaster.__version__ in result.stdout) == (0, True), result
