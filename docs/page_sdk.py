"""The SDK page. The adapters are not imported, so the frameworks need not be installed."""

import ast

from page import HEADER
from page_python import PACKAGE, definitions, entry, text

SDK = PACKAGE / "sdk"
CORE = ("channel", "checkpoints", "context")
ADAPTERS = ("torch", "dcp", "lightning", "transformers", "accelerate", "xgboost", "lightgbm", "sklearn")
INSIDE = {"torch": {"agreed", "random_states", "set_random_states", "save_random", "load_random"}}  # for other adapters


def sdk_page() -> str:
    """The functions of `sdk`, then each framework's adapter."""
    package = ast.parse((SDK / "__init__.py").read_text())
    public = {alias.name for node in package.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    parts = [
        HEADER,
        f"# The SDK\n\n```python\nfrom trainmaster import sdk\n```\n\n{text(package)}\n",
        "`examples/sdk` of the source tree is a whole program. To submit jobs and read their metrics from Python:\n"
        "[the Python client](client.md).\n",
    ]
    for name in CORE:
        parts += [entry(node, "###") for node in definitions(SDK / f"{name}.py") if node.name in public]
    parts.append("## Frameworks\n\nEach module imports only its framework: [Use a framework](../howto/frameworks.md).\n")
    for name in ADAPTERS:
        path, hidden = SDK / f"{name}.py", INSIDE.get(name, set())
        parts.append(f"### `trainmaster.sdk.{name}`\n\n{text(ast.parse(path.read_text()))}\n")
        parts += [entry(node, "####") for node in definitions(path) if node.name not in hidden]
    base = next(node for node in definitions(SDK / "saver.py") if node.name == "BaseSaver")
    parts.append("### Methods of every `Saver`\n")
    methods = [node for node in base.body if isinstance(node, ast.FunctionDef) and node.name in ("restore", "after_step")]
    parts += [entry(node, "####") for node in methods]
    return "\n".join(parts)
