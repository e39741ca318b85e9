"""The REST page, from the OpenAPI document that the server returns at /api/v1/openapi.json."""

import logging
import tempfile
from pathlib import Path
from typing import Any

from page import HEADER, flowing, table

from trainmaster import compose
from trainmaster.home import Home
from trainmaster.server.process.app import create_app
from trainmaster.server.runtime.limits import in_words
from trainmaster.server.runtime.services import Services

_INTRODUCTION = """# REST

`tm` uses only this API, so a program can do everything that a command does. The address is in `server.json` of the server's
home; `tm up --json` prints it. `GET /api/v1/openapi.json` returns this page for machines.

The version of the API is in its paths. Under `/api/v1`, fields and paths are only added. None is removed or changes its
meaning. `/healthz` and `/metrics` have no version, because load balancers and Prometheus request them. A path from before the
version returns 410 with the new path.

Every request needs `Authorization: Bearer TOKEN`. The token of a server on this machine is in the file `token` of its home. A
request that creates something has an `Idempotency-Key` that the client chooses. The same key never creates a second object.
An error is `{"error": {"code", "message", "hint", "details"}}`; [Errors](errors.md) lists the codes. Times are seconds since
the epoch. Numbers that are not finite are the words `NaN`, `Infinity` and `-Infinity`; null is a value that is missing.

Each route limits its body (413 above the limit), in bytes and in values: one comma, colon or bracket for every 4 bytes of the
limit, from 100,000 to 4 million. A body from which nothing arrives for 20 seconds is rejected (408), and so is a body slower
than 64 KiB/s. If many large bodies arrive at the same time, the next one waits. After 20 seconds it is rejected as `busy`
(503).

The first line and the headers have at most 64 KiB and must arrive within 10 seconds. Over TCP there are at most 2,048
connections. Above that, the server closes the connection that has been idle for the longest time.
"""


def document() -> dict[str, Any]:
    """The OpenAPI document, from a server object with an empty home; it is never started."""
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory))
        stores = compose.open_api(home)
        services = Services(home, stores.inbox, stores.events, stores.metrics, stores.blobs, b"", stores.tokens)
        openapi: dict[str, Any] = create_app(services, lambda: True).openapi()
        for store in (stores.events, stores.inbox, stores.metrics, stores.tokens):
            store.close()
    logging.disable(logging.NOTSET)
    return openapi


def rest_page() -> str:
    """Every path and method, then every body."""
    openapi = document()
    parts = [HEADER, _INTRODUCTION, "## Paths\n"]
    for path, operations in sorted(openapi["paths"].items()):
        for method, operation in operations.items():
            parts.append(_operation(f"{method.upper()} {path}", operation))
    parts.append("## Bodies\n")
    for name, schema in sorted(openapi["components"]["schemas"].items()):
        if "properties" in schema:
            parts.append(_body(name, schema))
    return "\n".join(parts)


def _operation(name: str, operation: dict[str, Any]) -> str:
    words = f"{operation.get('summary', '')}. {flowing(operation.get('description', ''))}".strip(". ")
    text = [f"### `{name}`\n", f"{words}.\n"]
    parameters = operation.get("parameters", [])
    if parameters:
        rows = [
            (f"`{one['name']}`", one["in"], _type(one["schema"]), flowing(one.get("description", ""))) for one in parameters
        ]
        text.append(table(("parameter", "in", "type", "means"), rows))
    said = [("takes", operation.get("requestBody", {}))]
    said += [(f"answers {status}", answer) for status, answer in operation["responses"].items() if status != "default"]
    needs, most = operation["x-trainmaster-needs"], operation.get("x-body-max-bytes", 0)
    lines = [f"- needs {needs}"] if needs != "a token" else []
    lines += [f"- {what}: {content}{_bound(what, most)}" for what, body in said if (content := _content(body))]
    text.append("\n".join(lines) + "\n")
    return "\n".join(text)


def _bound(what: str, most_bytes: int) -> str:
    return f", {in_words(most_bytes)} at most" if what == "takes" else ""


def _content(body: dict[str, Any]) -> str:
    return ", ".join(
        f"{kind} {_type(form.get('schema', {}))}".strip() for kind, form in sorted(body.get("content", {}).items())
    )


def _body(name: str, schema: dict[str, Any]) -> str:
    rows = [
        (f"`{field}`", _type(value), flowing(value.get("description", ""))) for field, value in schema["properties"].items()
    ]
    text = flowing(schema.get("description", ""))
    return f"### {name}\n\n" + (f"{text}\n\n" if text else "") + table(("field", "type", "means"), rows)


def _type(schema: dict[str, Any]) -> str:
    """A short form of a schema; the name of a body links to its table."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(choice) for choice in schema[key]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = str(schema.get("type", ""))
    if kind == "array":
        return f"list of {_type(schema.get('items', {})) or 'anything'}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties']) or 'anything'}"
    return kind
