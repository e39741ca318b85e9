"""Who may import whom: the contracts of `.importlinter`, and the rooms that keep to the standard library."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "trainmaster"
GUESTS = ("agent", "sdk", "wire")  # live in other people's environments
STANDARD_LIBRARY_AND = {  # room: what of ours it may import besides itself
    "errors.py": (),
    "home.py": (),
    "wire": (),
    "agent": ("trainmaster.wire",),
    "sdk": ("trainmaster.wire",),
    "configuration.py": ("trainmaster.home", "trainmaster.errors"),
    "locks.py": ("trainmaster.home", "trainmaster.errors"),
    "new_log.py": ("trainmaster.home",),
    "troubles.py": ("trainmaster.wire", "trainmaster.home"),
    "termination.py": ("trainmaster.wire", "trainmaster.home", "trainmaster.locks"),
    "live_processes.py": ("trainmaster.wire", "trainmaster.home", "trainmaster.locks"),
    "copied_files.py": ("trainmaster.home",),
    "copied_points.py": (),
    "backup.py": (
        "trainmaster.wire", "trainmaster.home", "trainmaster.errors", "trainmaster.live_processes", "trainmaster.configuration",
        "trainmaster.copied_files", "trainmaster.copied_points",
    ),
    "daemons.py": (
        "trainmaster.wire", "trainmaster.home", "trainmaster.errors", "trainmaster.locks", "trainmaster.termination",
        "trainmaster.configuration", "trainmaster.live_processes", "trainmaster.new_log",
    ),
}
LINEAR = ("agent/metrics/patterns.py", "re2")  # the one exception: only for a job with a pattern (docs/decisions/0012-hostile-text.md)
ADAPTERS = {  # sdk/NAME.py is imported only by who uses that framework: it may import it, and the frameworks below it
    "accelerate": ("accelerate",),
    "dcp": ("torch",),
    "lightgbm": ("lightgbm",),
    "lightning": ("lightning",),
    "sklearn": ("joblib",),
    "torch": ("torch",),
    "transformers": ("transformers", "torch"),
    "xgboost": ("xgboost",),
}


def files(room: str) -> list[Path]:
    """The Python files of a room; none while it is not built yet."""
    path = SOURCE / room
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, `from a import b` as `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{'.' * node.level}{node.module or ''}.{alias.name}") for alias in node.names)


def adapted(path: Path) -> tuple[str, ...]:
    """The frameworks that this file may import: none unless it is an adapter of the SDK."""
    return ADAPTERS.get(path.stem, ()) if path.parent.name == "sdk" else ()


def allowed(name: str, room: str) -> bool:
    own = "trainmaster." + room.removesuffix(".py")
    inside = any(name == ours or name.startswith(ours + ".") for ours in (own, *STANDARD_LIBRARY_AND[room]))
    return inside or name.split(".")[0] in sys.stdlib_module_names


def test_the_contracts_of_importlinter_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, f"{result.stdout}\nmove the code to the level where what it needs is below it"


@pytest.mark.parametrize("room", STANDARD_LIBRARY_AND)
def test_rooms_of_the_standard_library_alone(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in files(room)
        for line, name in imported(ast.parse(path.read_text()))
        if not allowed(name, room) and name.split(".")[0] not in adapted(path) and (str(path.relative_to(SOURCE)), name) != LINEAR
    ]
    assert found == [], f"{room} may import the standard library and {STANDARD_LIBRARY_AND[room] or 'nothing of ours'}"


def test_the_linear_engine_is_imported_only_when_a_pattern_is_compiled() -> None:
    """No module of ours imports RE2 as it is loaded, and no other than `agent/metrics/patterns.py` at all."""
    texts = {path: text for path in files("") if "re2" in (text := path.read_text())}
    found = {(str(path.relative_to(SOURCE)), name) for path, text in texts.items() for _, name in imported(ast.parse(text))
             if name.split(".")[0] == LINEAR[1]}  # fmt: skip
    assert found == {LINEAR}
    at_load = {name for statement in ast.parse((SOURCE / LINEAR[0]).read_text()).body if not isinstance(statement, ast.FunctionDef)
               for _, name in imported(ast.Module([statement], []))}  # fmt: skip
    assert LINEAR[1] not in at_load


def test_adapters_are_imported_by_nobody_of_ours_but_each_other() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in files("")
        if not adapted(path)
        for line, name in imported(ast.parse(path.read_text()))
        if name.startswith("trainmaster.sdk.") and name.split(".")[2] in ADAPTERS
    ]
    assert found == [], "whoever has not got the framework could not import this any more"


@pytest.mark.parametrize("room", GUESTS)
def test_guests_keep_to_python_3_9(room: str) -> None:
    found = []
    for path in files(room):
        try:
            ast.parse(path.read_text(), str(path), feature_version=(3, 9))
        except SyntaxError as error:
            found.append(f"{path.relative_to(ROOT)}:{error.lineno} {error.msg}")
    assert found == [], "training programs may run on Python 3.9: no match, no except*, no newer syntax here"


@pytest.mark.parametrize("room", GUESTS)
def test_guests_evaluate_no_newer_annotations(room: str) -> None:
    found = []
    for path in files(room):
        tree = ast.parse(path.read_text())
        postponed = "__future__.annotations" in (name for _, name in imported(tree))
        for node in ast.walk(tree):
            keywords = [keyword.arg for keyword in node.keywords] if isinstance(node, ast.Call) else []
            if "slots" in keywords or "kw_only" in keywords:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} dataclass(slots/kw_only)")
            annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
            if annotation is not None and not postponed and any(isinstance(part, ast.BitOr) for part in ast.walk(annotation)):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} X | Y in an annotation")
    assert found == [], "Python 3.9 cannot evaluate this: write plain dataclasses, and Optional or postponed annotations"
