"""The size budget and the house rules that no linter knows; docs/decisions/0001-the-house.md says why."""

import ast
import gc
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "trainmaster"
FILE_LINES = 400
FUNCTION_LINES = 70
PARAMETERS = 5
ATTRIBUTES = 10
MORE_ATTRIBUTES = {  # grown before there was a law, and not to grow on
    "agent/metrics/counting.py Steps": 12,
    "agent/metrics/parse.py Parser": 12,
    "agent/metrics/progress.py Progress": 11,
    "simulator/forecast_scores.py ForecastScorer": 13,
    "testing/histories/people.py People": 11,
    "testing/histories/scenario.py Scenario": 19,
}
DEPTH = 2
FOLDER_FILES = 16
VAGUE = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc"}
MAY_CATCH_ALL = {  # the loop and the entry points: the last place that can still say what happened
    "agent/__main__.py",
    "agent/supervise/storing.py",  # the loop of the thread that moves bytes
    "control/loop.py",
    "control/workers.py",  # kept in the future, and raised where its result is asked for
    "server/process/background.py",  # the loop around the background work of the api
    "server/process/processes.py",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def tracked(*endings: str) -> list[Path]:
    """Files that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    names = sorted(set(listed.stdout.decode().split("\0")) - {""})
    return [ROOT / name for name in names if name.endswith(endings) and (ROOT / name).is_file()]


def parsed(paths: list[Path]) -> Iterator[tuple[Path, ast.Module]]:
    for path in paths:
        yield path, ast.parse(path.read_text(), str(path))


def place(path: Path, node: ast.AST | None = None) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


@pytest.fixture(scope="module")
def trees() -> Iterator[list[tuple[Path, ast.Module]]]:
    """Without the garbage collector, which would look at millions of nodes again and again."""
    gc.disable()
    yield list(parsed(tracked(".py")))
    gc.enable()


@pytest.fixture(scope="module")
def source_trees(trees: list[tuple[Path, ast.Module]]) -> list[tuple[Path, ast.Module]]:
    return [(path, tree) for path, tree in trees if path.is_relative_to(SOURCE)]


def functions(trees: list[tuple[Path, ast.Module]]) -> Iterator[tuple[Path, Function]]:
    for path, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield path, node


def test_files_are_short() -> None:
    lengths = {place(path): len(path.read_text().splitlines()) for path in tracked(".py")}
    found = {where: length for where, length in lengths.items() if length > FILE_LINES}
    assert found == {}, f"over {FILE_LINES} lines: split by what changes together, one noun or one decision per file"


def test_functions_are_short(trees: list[tuple[Path, ast.Module]]) -> None:
    found = {
        f"{place(path, node)} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, node in functions(trees)
        if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES
    }
    assert found == {}, f"over {FUNCTION_LINES} lines: name the steps and make them functions"


def parameters(node: Function) -> int:
    """Parameters a caller may give, `self` and `cls` aside; keyword-only ones count too."""
    given = [*node.args.posonlyargs, *node.args.args]
    if given and given[0].arg in ("self", "cls"):
        given = given[1:]
    return len(given) + len(node.args.kwonlyargs)


def is_command(node: Function) -> bool:
    """A Click command: its parameters are the options of the command line, not what code calls it with."""
    return any("command" in ast.dump(decorator) or "option" in ast.dump(decorator) for decorator in node.decorator_list)


def test_functions_take_few_parameters(source_trees: list[tuple[Path, ast.Module]]) -> None:
    found = {
        f"{place(path, node)} {node.name}": parameters(node)
        for path, node in functions(source_trees)
        if parameters(node) > PARAMETERS and not is_command(node)
    }
    assert found == {}, f"over {PARAMETERS} parameters: what belongs together becomes a frozen dataclass"


def attributes(node: ast.ClassDef) -> int:
    """How many attributes the methods of a class set, and its fields. A record that no method changes is a format: 0."""
    stored = {
        one.attr for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and isinstance(one.value, ast.Name) and one.value.id == "self"
    }  # fmt: skip
    fields = {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    return len(stored | fields) if stored else 0


def test_classes_have_few_attributes(source_trees: list[tuple[Path, ast.Module]]) -> None:
    found = {
        f"{path.relative_to(SOURCE)} {node.name}": attributes(node)
        for path, tree in source_trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    grown = {name: count for name, count in found.items() if count > MORE_ATTRIBUTES.get(name, ATTRIBUTES)}
    assert grown == {}, f"over {ATTRIBUTES} attributes: what changes together becomes a class of its own"
    assert {name: count for name, count in MORE_ATTRIBUTES.items() if found.get(name, 0) < count} == {}, "lower the number"


def test_packages_are_shallow() -> None:
    found = [place(path) for path in SOURCE.rglob("__init__.py") if len(path.parent.relative_to(SOURCE).parts) > DEPTH]
    assert found == [], f"packages nest at most {DEPTH} deep below trainmaster: move it up"


def test_folders_are_small() -> None:
    counts = {path: len(list(path.glob("*.py"))) for path in SOURCE.rglob("*") if path.is_dir()}
    found = {path.relative_to(SOURCE).as_posix(): count for path, count in counts.items() if count > FOLDER_FILES}
    assert found == {}, f"over {FOLDER_FILES} files: make rooms of it, named after what the field calls them"


def handlers(tree: ast.Module) -> Iterator[ast.AST]:
    """The functions of a module that `signal.signal` gets, as far as they stand in it."""
    named = {node.name: node for node in ast.walk(tree) if isinstance(node, Function)}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "signal.signal":
            handler = call.args[1]
            name = handler.attr if isinstance(handler, ast.Attribute) else getattr(handler, "id", "")
            yield named.get(name, handler)


def test_signal_handlers_take_no_lock(source_trees: list[tuple[Path, ast.Module]]) -> None:
    """A handler runs between any two instructions of the main thread, of another handler too: a lock may be held by these."""
    locks = {"set", "clear", "acquire", "notify", "notify_all", "start", "join"}
    found = [
        place(path, node)
        for path, tree in source_trees
        for handler in handlers(tree)
        for node in ast.walk(handler)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in locks
    ]
    assert found == [], "fill a queue.SimpleQueue, append to a list or write to a pipe instead"


def test_names_say_something(source_trees: list[tuple[Path, ast.Module]]) -> None:
    named = [(path, part) for path in SOURCE.rglob("*.py") for part in (*path.parent.relative_to(SOURCE).parts, path.stem)]
    classes = [(path, node.name) for path, tree in source_trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    words = [(path, name, set(re.findall(r"[A-Z]?[a-z]+", name))) for path, name in named + classes]
    found = [f"{place(path)} {name}" for path, name, parts in words if VAGUE & {part.lower() for part in parts}]
    assert found == [], "such a name says nothing: name it after what it does or is"


def catches_all(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in kinds)


def raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_only_the_edges_catch_everything(source_trees: list[tuple[Path, ast.Module]]) -> None:
    found = [
        place(path, node)
        for path, tree in source_trees
        if path.relative_to(SOURCE).as_posix() not in MAY_CATCH_ALL
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and catches_all(node) and not raises_again(node)
    ]
    assert found == [], f"name the errors you can handle here; only {sorted(MAY_CATCH_ALL)} may catch everything"


def test_nothing_is_left_for_later() -> None:
    later = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked(".py", ".md", ".yaml", ".yml", ".toml", "Makefile")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if later.search(line)
    ]
    assert found == [], "do it now, or open an issue and leave no mark here"


def test_every_module_says_what_lives_there(source_trees: list[tuple[Path, ast.Module]]) -> None:
    found = [place(path) for path, tree in source_trees if ast.get_docstring(tree) is None]
    assert found == [], "open the module with a docstring: what lives here, its rules, what does not belong"
