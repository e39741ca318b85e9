"""The page of the Python client: the public names of `trainmaster`."""

import ast

from page import HEADER, table
from page_python import PACKAGE, Definition, definitions, entry, public

CLIENT = PACKAGE / "client"
_EXAMPLE = """```python
import trainmaster

job = trainmaster.submit("python3 train.py", name="digits", tags={"owner": "ada"})
print(job.id, job.wait()["state"])
print(job.metrics("loss"))
```
"""


def client_page() -> str:
    """`submit` with its options and what it returns, `metrics_table`, and `Client`."""
    submission = named("submission")
    options, of_submit, handle = (submission[name] for name in ("Options", "Submission", "JobHandle"))
    client = named("api")["Client"]
    parts = [
        HEADER,
        f"# The Python client\n\n{_EXAMPLE}\n"
        "It submits jobs and reads what a server knows, from a script or a notebook. It needs Python 3.11 or newer and an\n"
        "installed Trainmaster. Without the argument `client`, its functions find the server as `tm` does, or start one on\n"
        "this machine. A `Row` is a dictionary, as the JSON in [REST](rest.md). A training program uses [the SDK](sdk.md)\n"
        "instead.\n",
        entry(submission["submit"], "##"),
        "Options of the job and of the submit, as the options of [`tm submit`](cli.md#tm-submit):\n",
        table(("option", "type", "meaning"), [*fields(options), *fields(of_submit)]),
        entry(handle, "##").replace("JobHandle()", "JobHandle"),
        *(entry(method, "###") for method in methods(handle)),
        entry(named("metric_table")["metrics_table"], "##"),
        entry(client, "##"),
        *(entry(method, "###") for method in methods(client)),
    ]
    return "\n".join(parts)


def named(module: str) -> dict[str, Definition]:
    """The public definitions of a module of the client, by name."""
    return {node.name: node for node in definitions(CLIENT / f"{module}.py")}


def methods(node: Definition) -> list[Definition]:
    """The public methods of a class, without its properties."""
    assert isinstance(node, ast.ClassDef)
    return [one for one in public(node) if not one.decorator_list]


def fields(node: Definition) -> list[tuple[str, ...]]:
    """The fields of a `TypedDict` of a submission, each with the comment on its line."""
    lines = (CLIENT / "submission.py").read_text().splitlines()
    found = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    names = [(f"`{ast.unparse(one.target)}`", f"`{ast.unparse(one.annotation)}`") for one in found]
    return [(*name, lines[one.lineno - 1].partition("  # ")[2]) for name, one in zip(names, found, strict=True)]
