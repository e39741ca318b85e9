"""The SDK page, from docstrings that are read without an import, so the frameworks need not be installed."""

import ast
from collections.abc import Iterator
from pathlib import Path

from page import HEADER, flowing

SDK = Path(__file__).parents[1] / "src" / "trainmaster" / "sdk"
CORE = ("channel", "checkpoints", "context")
ADAPTERS = ("torch", "dcp", "lightning", "transformers", "accelerate", "xgboost", "lightgbm", "sklearn")
INSIDE = {"torch": {"agreed", "random_states", "set_random_states", "save_random", "load_random"}}  # for other adapters
Definition = ast.FunctionDef | ast.ClassDef


def sdk_page() -> str:
    """The functions of `sdk`, then each framework's adapter."""
    package = ast.parse((SDK / "__init__.py").read_text())
    public = {alias.name for node in package.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    parts = [
        HEADER,
        f"# The SDK\n\n```python\nfrom trainmaster import sdk\n```\n\n{_text(package)}\n",
    ]
    for name in CORE:
        parts += [_entry(node, "###") for node in _definitions(name) if node.name in public]
    parts.append("## Frameworks\n\nEach module imports only its framework: [Use a framework](../howto/frameworks.md).\n")
    for name in ADAPTERS:
        tree = ast.parse((SDK / f"{name}.py").read_text())
        parts.append(f"### `trainmaster.sdk.{name}`\n\n{_text(tree)}\n")
        hidden = INSIDE.get(name, set())
        parts += [_entry(node, "####") for node in _definitions(name) if node.name not in hidden]
    base = next(node for node in _definitions("saver") if node.name == "BaseSaver")
    parts.append("### Methods of every `Saver`\n")
    methods = [node for node in base.body if isinstance(node, ast.FunctionDef) and node.name in ("restore", "after_step")]
    parts += [_entry(node, "####") for node in methods]
    return "\n".join(parts)


def _definitions(module: str) -> Iterator[Definition]:
    for node in ast.parse((SDK / f"{module}.py").read_text()).body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node


def _entry(node: Definition, level: str) -> str:
    return f"{level} `{_signature(node)}`\n\n{_text(node)}\n"


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


def _text(node: ast.Module | Definition) -> str:
    return flowing(ast.get_docstring(node) or "")
