"""Every text and number of a URL has a bound in its schema, and nothing in a URL is answered with a fault."""

import base64
import json
import time
import urllib.parse
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import Api, serving

from trainmaster.server.views.lookup import FoundJob, find_each

NUMBERS = ("10" * 12, "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e400", "nan", "")
TEXTS = ("\0", "é" * 300, "x" * 5000, "../..", "9" * 30, "=cmd()")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("bounds") / "home") as served:
        yield served


def lacking(schema: dict[str, Any]) -> list[str]:
    """The bounds that a parameter's schema has not got."""
    if "anyOf" in schema:
        return [name for one in schema["anyOf"] for name in lacking(one)]
    if "$ref" in schema or "enum" in schema or schema.get("type") in ("boolean", "null"):
        return []
    wanted = {"integer": ("minimum", "maximum"), "number": ("minimum", "maximum"), "string": ("maxLength",), "array": ("maxItems",)}
    missing = [name for name in wanted[schema["type"]] if name not in schema]
    return missing + (lacking(schema["items"]) if schema["type"] == "array" else [])


def without_bounds(schema: dict[str, Any], schemas: dict[str, Any], path: str = "") -> Iterator[str]:
    """Where a body's schema leaves a text, a number or a list without one; objects of any shape are read by their own rules."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from without_bounds(schemas[name], schemas, name)
    for one in schema.get("anyOf", ()):
        yield from without_bounds(one, schemas, path)
    wanted = {"integer": {"maximum"}, "number": {"maximum"}, "string": {"maxLength", "format"}, "array": {"maxItems"}}
    if schema.get("type") in wanted and not wanted[schema["type"]] & schema.keys():
        yield f"{path}: {schema['type']}"
    if "items" in schema:
        yield from without_bounds(schema["items"], schemas, f"{path}[]")
    for name, one in schema.get("properties", {}).items():
        yield from without_bounds(one, schemas, f"{path}.{name}")


def operations(api: Api) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in api.get("/openapi.json")["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_every_parameter_has_its_bounds(api: Api) -> None:
    """S9: `before` took a number of any length, and the store none beyond 64 bits."""
    found = [(method, path, one["name"], missing) for method, path, operation in operations(api)
             for one in operation.get("parameters", ()) if (missing := lacking(one["schema"]))]  # fmt: skip
    assert found == []


def test_every_field_of_a_body_has_its_bound(api: Api) -> None:
    """S9: likewise of what is sent."""
    schemas = api.get("/openapi.json")["components"]["schemas"]
    bodies = [body["schema"] for _, _, operation in operations(api) for body in operation.get("requestBody", {}).get("content", {}).values()]
    left = {place for body in bodies for place in without_bounds(body, schemas)}
    assert left == {"Exec.command[]: string"}  # words of a command, bounded by the route's 256 KiB


def test_a_text_beyond_its_bound_is_refused_in_words(api: Api) -> None:
    spec = {"command": "true"}
    for body in ({"spec": spec, "hold": "x" * 4097}, {"spec": spec, "origin": {"user": "x" * 4097}}, {"spec": spec, "data": [{"name": "x", "uri": "/" * 5000}]}):
        assert api.http.post("/jobs", json=body).status_code == 400, body
    assert api.http.post("/jobs/batch", json={"jobs": [{"spec": spec, "key": "x" * 5000}]}).status_code == 400


def cursor(value: Any) -> str:
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(value).encode())).decode()


FORGED = [cursor([0, {"1/0/0": 10**30}]), cursor([10**30, {}]), cursor([0, {"1/0/0": 2**62}]), cursor([float("inf"), {}]), cursor([0, {"1/0/0": float("nan")}]),
          cursor([0, {"\0": 2**61, "../x": 5}]), cursor([2**61, {}]), cursor([True, []]), cursor("[" * 5000), "A" * 5000]  # fmt: skip


def test_a_forged_cursor_of_logs_is_refused(api: Api) -> None:
    """S9: one with an offset beyond what a file can have was a fault of the server."""
    job = api.submit()
    directory = api.home.attempt(job, 1, 0)
    directory.mkdir(parents=True)
    (directory / "rank0.log").write_text("hello\n")
    for after in FORGED:
        for stream in ("", "/stream"):
            with api.http.stream("GET", f"/jobs/{job}/logs{stream}", params={"after": after}) as answer:
                assert answer.status_code in (200, 400), (after, stream)


def test_nothing_in_a_url_is_a_fault_of_the_server(api: Api) -> None:
    """S9: `/jobs?before=10**23` was answered with 500."""
    job, faults = api.submit(), []
    for method, path, operation in operations(api):
        if path.endswith("/stream"):
            continue  # they never end; the rows above
        tried = [(named(path, job), {one["name"]: value}) for one in operation.get("parameters", ()) if one["in"] == "query"
                 for value in (TEXTS if '"string"' in json.dumps(one["schema"]) else NUMBERS)]  # fmt: skip
        tried += [(named(path, urllib.parse.quote(odd[:1000], safe="")), {}) for odd in TEXTS if "{" in path]
        for url, params in tried:
            answer = api.http.request(method, url, params=params, json={} if method in ("post", "put") else None)
            if answer.status_code >= 500:
                faults.append((method, url[:80], params, answer.status_code))
    assert faults == []


def named(path: str, what: str) -> str:
    for name in ("ref", "name", "id", "path", "sha256"):
        path = path.replace(f"{{{name}}}", what)
    return path


def test_a_fault_of_the_schema_is_told(api: Api) -> None:
    answer = api.http.get("/jobs", params={"before": 10**23})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "usage")


def test_of_many_unknown_references_only_the_first_are_looked_at_closely(tmp_path: Path) -> None:
    """L2: cancelling 20,000 jobs that there are not took 37 s: for each the nearest ids were looked for."""
    with serving(tmp_path / "home") as api:
        ids = [api.submit() for _ in range(40)]
        began = time.thread_time()
        found = find_each(api.runtime, [*(f"trian-{n}" for n in range(500)), ids[0], ids[-1], "train", "train-", "@last"])
        assert time.thread_time() - began < 3.0  # 0.1 s where it was measured; formerly 2
        told = [getattr(one, "hint", "") for one in found]
        assert all("did you mean" in hint for hint in told[:20])
        assert set(told[20:500]) == {"`tm ps --all` lists all jobs"}
        assert [one.job.id for one in (*found[500:503], found[504]) if isinstance(one, FoundJob)] == [ids[0], *[ids[-1]] * 3]
        assert "could be" in str(found[503])
