"""Entries of a Python reference, from source that is read without an import."""

import ast
from collections.abc import Iterator
from pathlib import Path

from page import flowing

PACKAGE = Path(__file__).parents[1] / "src" / "trainmaster"
Definition = ast.FunctionDef | ast.ClassDef


def definitions(path: Path) -> Iterator[Definition]:
    """The public functions and classes of a module."""
    return public(ast.parse(path.read_text()))


def public(node: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    """The functions and classes in it without `_` in front."""
    return (one for one in node.body if isinstance(one, Definition) and not one.name.startswith("_"))


def entry(node: Definition, level: str) -> str:
    """Its signature as a heading, and its docstring."""
    return f"{level} `{_signature(node)}`\n\n{text(node)}\n"


def text(node: ast.Module | Definition) -> str:
    """Its docstring as Markdown."""
    return flowing(ast.get_docstring(node) or "")


def _signature(node: Definition) -> str:
    if isinstance(node, ast.ClassDef):
        made = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        return f"{node.name}({_arguments(made[0]) if made else ''})"
    returns = f" -> {_plain(node.returns)}" if node.returns is not None else ""
    return f"{node.name}({_arguments(node)}){returns}"


def _arguments(node: ast.FunctionDef) -> str:
    arguments = node.args
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg) and isinstance(argument.annotation, ast.Constant):
            argument.annotation = ast.parse(str(argument.annotation.value), mode="eval").body
    arguments.args = [one for one in arguments.args if one.arg != "self"]
    return ast.unparse(arguments)


def _plain(annotation: ast.expr) -> str:
    return str(annotation.value) if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
