"""Every regular expression of ours is linear in what it reads: a proof by adversarial text, for each that stands in `src/`."""

import ast
import importlib
import re
import re._constants as sre
import re._parser as parser
import time
from collections.abc import Iterator, Set
from itertools import product
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "src"
METHODS = ("match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer")
SIZES = (18, 250, 1000, 4000)  # an exponential one shows at the first, a cubic one at the second
TRIES = 12  # one that is not linear is so each time; what else the machine does is not
STEP_MAX_S, GROWTH_MAX = 0.002, 8.0  # what is quicker is not looked at; from 1,000 to 4,000 a quadratic one grows by 16
PUMPS = (" ", "\t", "\n", "0", "a", "A", "_", ".", "-", "/", "'", '"', "[", "]", "(", ",", ":", "=", "@", "e", "a.", "0.", "a ", " #", "é", "a-", "a=")

MADE_OF: dict[str, dict[str, Any]] = {  # examples of what expressions are made of as they are used
    "installed_packages.py": {"name": "version"},
    "configuration.py": {"key": ("projects", "vision", "limit"), "part": "x"},
    "scalars.py": {"pattern": r"0x[0-9a-fA-F]+\Z"},  # module constants, one after the other
    "output.py": {"state": "running"},
    "glob_names.py": {"piece": ["a", "[^/]", "[a-c]"]},
}


class Expression:
    """One that stands in the source: where, what, and how it is used."""

    def __init__(self, place: str, pattern: re.Pattern[Any], methods: frozenset[str]) -> None:
        self.place, self.pattern, self.methods = place, pattern, methods


def expressions() -> Iterator[Expression]:
    """Those of every module, compiled as it is loaded or where they are used. Raises: AssertionError for one that is neither."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if "\nimport re\n" not in text:
            continue
        tree = ast.parse(text)
        module = namespace(path, tree)
        used: dict[str, set[str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                used.setdefault(node.value.id if isinstance(node.value, ast.Name) else str(id(node.value)), set()).add(node.attr)
        own = {name for name, value in module.items() if isinstance(value, re.Pattern)}
        others = frozenset(method for name, methods in used.items() if name not in {*own, "re"} for method in methods)
        for name, value in module.items():
            for each in value if isinstance(value, tuple | list | dict | frozenset) else (value,):
                for one in each if isinstance(each, tuple) else (each,):
                    if isinstance(one, re.Pattern):
                        yield Expression(f"{path.name}:{name}", one, frozenset(used.get(name) or others or ("match", "search")))
        named = {id(node.value): node.targets[0].id for node in ast.walk(tree)
                 if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}  # fmt: skip
        for node in ast.walk(tree):
            if is_call(node) and not isinstance(module.get(named.get(id(node), "")), re.Pattern):
                yield from inline(path, module, node, used.get(named.get(id(node), str(id(node)))) or others)


def namespace(path: Path, tree: ast.Module) -> dict[str, Any]:
    """A module's names; of one that needs a package which is not installed here, its expressions alone."""
    try:
        return vars(importlib.import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts)))
    except ModuleNotFoundError:
        own: dict[str, Any] = {"re": re}
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_call(node.value):
                own[node.targets[0].id] = eval(ast.unparse(node.value), own)
        return own


def is_call(node: ast.AST) -> bool:
    return (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re" and node.func.attr in (*METHODS, "compile"))  # fmt: skip


def inline(path: Path, module: dict[str, Any], node: Any, used: Set[str]) -> Iterator[Expression]:
    place = f"{path.name}:{node.lineno}"
    try:
        text = eval(ast.unparse(node.args[0]), {**module, **MADE_OF.get(path.name, {})})
    except NameError as error:
        raise AssertionError(f"{place}: made of what is only known later: say an example in MADE_OF") from error
    if isinstance(text, str | bytes):
        yield Expression(place, re.compile(text), frozenset({node.func.attr} - {"compile"} or used or {"match", "search"}))


def example(items: Any) -> str:
    """A short text that a parsed expression matches, as far as that matters here."""
    return "".join(map(one_example, items))


def one_example(item: tuple[Any, Any]) -> str:
    kind, value = item
    if kind is sre.LITERAL:
        return chr(value)
    if kind is sre.IN:
        return next((chr(one[1] if one[0] is sre.LITERAL else one[1][0]) for one in value if one[0] in (sre.LITERAL, sre.RANGE)),
                    "0" if any(one == (sre.CATEGORY, sre.CATEGORY_DIGIT) for one in value) else "a")  # fmt: skip
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        return example(value[2]) * max(1, min(value[0], 64))
    if kind is sre.SUBPATTERN:
        return example(value[3])
    if kind is sre.BRANCH:
        return example(value[1][0])
    return {sre.ANY: "a", sre.NOT_LITERAL: "a"}.get(kind, "")


def heads(pattern: re.Pattern[Any]) -> list[str]:
    """What an adversary puts before the text that repeats: the beginning of a match, up to each of its elements."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    items = list(flat(parser.parse(source, pattern.flags & ~re.UNICODE)))
    return list(dict.fromkeys(example(items[:count]) for count in range(len(items) + 1)))[:24]


def flat(items: Any) -> Iterator[tuple[Any, Any]]:
    for item in items:
        if item[0] is sre.SUBPATTERN:
            yield from flat(item[1][3])
        else:
            yield item


def took_s(expression: Expression, method: str, text: Any) -> float:
    call = getattr(expression.pattern, method)
    began = time.thread_time()
    if method in ("sub", "subn"):
        call(b"" if isinstance(text, bytes) else "", text)
    elif method == "finditer":
        list(call(text))
    else:
        call(text)
    return time.thread_time() - began


def is_linear(expression: Expression, method: str, head: str, pump: str, tail: str) -> bool:
    took = []
    for size in SIZES:
        text: Any = head + (pump * size)[:size] + tail
        if isinstance(expression.pattern.pattern, bytes):
            text = text.encode("latin-1", "replace")
        took.append(min(took_s(expression, method, text) for _ in range(1 if not took or took[-1] < STEP_MAX_S / 8 else 3)))
        if took[-1] > (STEP_MAX_S if size < 100 else 0.05):
            return False
    return took[-1] < STEP_MAX_S or took[-1] < GROWTH_MAX * max(took[-2], 5e-5)


def test_every_expression_is_linear() -> None:
    """S1: one of ours took minutes for a line of blanks."""
    slow = [found for expression in expressions() if (found := adversary(expression)) is not None]
    assert sorted(slow) == []


def adversary(expression: Expression) -> str | None:
    """The text that it is not linear in, where one is found."""
    for method, head, pump, tail in product(sorted(expression.methods), heads(expression.pattern), PUMPS, ("", "\0")):
        if not any(is_linear(expression, method, head, pump, tail) for _ in range(TRIES)):
            return f"{expression.place}: {method} of {expression.pattern.pattern!r}: {head!r}, then {pump!r} again and again, then {tail!r}"
    return None


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"\s*:?\s*\[?\s*x", r"\d+x", r"(a|a)*b"])
def test_one_that_is_not_is_found(pattern: str) -> None:
    """What this test is worth."""
    expression = Expression("x", re.compile(pattern), frozenset(("search",)))
    assert not all(is_linear(expression, "search", head, pump, "\0") for head in heads(expression.pattern) for pump in PUMPS)
