"""The REST page, from the OpenAPI document that the server itself answers at /api/v1/openapi.json."""

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

`tm` speaks nothing else with the server: whatever a command does, a program can. The address is in `server.json` of the
server's home, `tm up --json` prints it; the same as a machine reads it: `GET /api/v1/openapi.json`.

The interface has a version, which is in its paths: below `/api/v1` fields and paths are added, and none is removed or gets
another meaning. `/healthz` and `/metrics` have none, since load balancers and Prometheus ask for them. A path of before there
was a version is answered with 410 and where it is now.

Every request carries `Authorization: Bearer TOKEN` (of this machine's own server: in the file `token` of its home); one
that makes something carries an `Idempotency-Key` of your choice, and the same key never makes it twice. An error is
`{"error": {"code", "message", "hint", "details"}}`; the codes are in [Errors](errors.md). Times are seconds since the
epoch.

A body is bounded by its route (413 beyond it), in bytes and in values: one comma, colon or bracket for every 4 bytes of the
bound, from 100,000 to 4 million. One of which nothing comes for 20 seconds is refused (408), and so is one slower than
64 KiB/s. Where many large bodies come at a time, the next waits for its turn, and after 20 seconds is told that the
server is `busy` (503).
The first line and the headers, 64 KiB at most, have to come within 10 seconds. Over TCP there are 2,048 connections at most;
beyond them, the one that has been idle for longest is closed.
"""


def document() -> dict[str, Any]:
    """The OpenAPI document, of a server on an empty home that never serves."""
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
    """A schema in a few words; a body's name leads to its table."""
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
