"""What nobody in their right mind sends: requests drawn from an OpenAPI document, texts, archives. See `fuzzing`, which sends it."""

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from trainmaster.spec.schema import cluster_schema, schema
from trainmaster.wire import rest

_QUERY_MAX = 10_000  # characters of one parameter: httpx sends no longer URL than 64 KiB
TEXTS = ["", " ", "x", "@last", "digits-1", "node0", "default", "x" * 63, "x" * 64, "x" * 200, "x" * 201, "x" * 5000, "é" * 4000, "\ud800", "\0", "\x1b[2J", "=1+1", "..",
         "../../etc", "/", "a/b", "**/" * 14 + "x", "[" * 300, "1" * 400, "-1", "1e308", "nan", "10h", "9" * 30 + "d", "64GiB", "h100:8", "{step}", "{step}{step}",
         "(?P<a>(x+)+)$", "(?P<a>x)(?=y)", "s3://a/b", "https://u:p@h/", "2026-01-01T00:00:00", "UTC", "\u202e", "queued", "running", "a" * 64]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 7, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 10**23, 10**400, 0.5, -0.0, 1e300, 1e-300, float("inf"), float("nan")]


def pick(rng: Random, *choices: Callable[[], Any]) -> Any:
    """One of them."""
    return rng.choice(choices)()


def anything(rng: Random, depth: int = 0) -> Any:
    """What no schema asked for."""
    if depth < 3 and rng.random() < 0.3:
        many = range(rng.randrange(4))
        return [anything(rng, depth + 1) for _ in many] if rng.random() < 0.5 else {rng.choice(TEXTS): anything(rng, depth + 1) for _ in many}
    return pick(rng, lambda: rng.choice(TEXTS), lambda: rng.choice(NUMBERS), lambda: rng.choice((None, True, False)), lambda: noise(rng))


def noise(rng: Random) -> str:
    """Some characters, from anywhere."""
    return "".join(chr(rng.randrange(1, rng.choice((128, 0x300, 0xD800)))) for _ in range(rng.randrange(20)))


class Drawn:
    """Values as schemas have them. `spoil`: now and then something else in place of one."""

    def __init__(self, rng: Random, schemas: dict[str, Any], spoil: bool) -> None:
        self._rng, self._schemas, self._spoil = rng, schemas, spoil

    def value(self, shape: dict[str, Any], depth: int = 0) -> Any:
        """One that the schema allows, its bounds among them."""
        rng = self._rng
        if self._spoil and rng.random() < 0.1:
            return anything(rng)
        if "$ref" in shape:
            return self.value(self._schemas[shape["$ref"].rpartition("/")[2]], depth + 1)
        if shape.get("examples") and rng.random() < 0.3:
            return rng.choice(shape["examples"])
        if shape.get("anyOf"):
            return self.value(rng.choice(shape["anyOf"]), depth + 1)
        if "enum" in shape:
            return rng.choice(shape["enum"])
        kind = shape.get("type", "object")
        return self._of_type(kind if isinstance(kind, str) else rng.choice(kind), shape, depth)

    def _of_type(self, kind: str, shape: dict[str, Any], depth: int) -> Any:
        rng = self._rng
        if kind == "string":
            return rng.choice(_texts(shape.get("pattern"), shape.get("minLength", 0), min(shape.get("maxLength", 200), 200_000)))
        if kind in ("integer", "number"):
            low = shape.get("minimum", shape.get("exclusiveMinimum", 0))
            high = shape.get("maximum", shape.get("exclusiveMaximum", 2**53))
            within = [each for each in (*NUMBERS, low, high, low + 1) if low <= each <= high]
            return rng.choice([each for each in within if kind == "number" or isinstance(each, int)] or [low])
        if kind == "array":
            most = shape.get("maxItems", 3)
            many = most if most <= 1000 and rng.random() < 0.02 else rng.randrange(min(most, 3) + 1)
            return [self.value(shape.get("items", {}), depth + 1) for _ in range(many)] if depth < 9 else []
        if kind == "object":
            found = {name: self.value(one, depth + 1) for name, one in shape.get("properties", {}).items()
                     if name in shape.get("required", ()) or (depth < 9 and rng.random() < 0.3)}  # fmt: skip
            more = shape.get("additionalProperties")
            if isinstance(more, dict):
                found |= {rng.choice(TEXTS): self.value(more, depth + 1) for _ in range(rng.randrange(3))}
            return found
        return rng.random() < 0.5 if kind == "boolean" else None


@cache
def _texts(pattern: str | None, least: int, most: int) -> list[str]:
    """Of all texts those that fit, and the longest one."""
    fit = [one for one in TEXTS if least <= len(one) <= most and (pattern is None or re.search(pattern, one))]
    return fit + (["x" * most] if pattern is None else []) or ["x"]


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{self.method.upper()} {self.path[:300]} {str(self.params)[:300]} {str(self.headers)[:100]} {len(self.body)} bytes: {self.body[:400]!r}"


class Requests:
    """Any operation of a document with any parameters and body; `refs` are jobs that there are."""

    def __init__(self, document: dict[str, Any], refs: Sequence[str]) -> None:
        self._schemas = {**document["components"]["schemas"], **schema().get("$defs", {}), **cluster_schema().get("$defs", {})}
        self._operations = [(path, method, found) for path, methods in document["paths"].items() for method, found in methods.items()]
        self._refs = refs

    def draw(self, number: int) -> Asked:
        """The request of a number."""
        rng = Random(number)
        path, method, operation = rng.choice(self._operations)
        asked, drawn = Asked(method, path), Drawn(rng, self._schemas, rng.random() < 0.5)
        for one in operation.get("parameters", ()):
            name, place = one["name"], one["in"]
            known = name in ("ref", "job") and rng.random() < 0.7
            value = rng.choice(self._refs) if known else rng.choice(TEXTS) if place == "path" else drawn.value(one["schema"])
            if name == "wait_s" and isinstance(value, int | float) and value > 0:
                value = 0.05
            if place == "path":
                odd = "nowhere" if path.endswith(("/resume", "/lost")) else str(value)  # the node stays drained: nothing is to run
                asked.path = asked.path.replace("{" + name + "}", quote(odd.encode("utf-8", "replace")[:1000], safe="") or "x")
            elif place == "header":
                asked.headers[name] = "".join(c for c in str(value)[:300] if c.isprintable() and c.isascii()).strip()
            elif rng.random() < 0.5 or one.get("required"):
                asked.params[name] = _shortened([_sent(each) for each in value] if isinstance(value, list) else _sent(value))
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            asked.headers["content-type"] = kind
            asked.body = self._body(rng, kind, content["schema"], drawn)
        return asked

    def _body(self, rng: Random, kind: str, shape: dict[str, Any], drawn: Drawn) -> bytes:
        if kind != "application/json":
            return bytes(rng.choice(ARCHIVES)() if rng.random() < 0.1 else noise(rng).encode())
        if rng.random() < 0.1:
            return rng.choice(BROKEN)
        body = drawn.value(shape)
        jobs = body.get("jobs") if isinstance(body, dict) else None
        for one in [body, *(jobs if isinstance(jobs, list) else [])][:5]:
            if isinstance(one, dict) and "spec" in one:
                one["spec"] = drawn.value(schema())
            if isinstance(one, dict) and "cluster" in one:
                one["cluster"] = drawn.value(cluster_schema())
        return json.dumps(_harmless(body), ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


BROKEN = [b"", b"{}", b"[]", b"null", b"[" * 50_000, b'{"a":' * 50_000, b"\xff\xfe", b'{"jobs":' + b"1" * 5000 + b"}", b'{"jobs":[' + b"{}," * 50_000 + b"{}]}",
          b'{"spec":' + b'{"a":' * 400 + b"1" + b"}" * 401, b'{"spec":{"command":"true"},"hold":"x"', b'{"spec": NaN}', b'{"a":1,"a":2}']  # fmt: skip


def _sent(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode()[:_QUERY_MAX]


def _shortened(value: Any) -> Any:
    """A parameter that httpx sends: no URL is longer than 64 KiB."""
    while len(urlencode({"x": value}, doseq=True)) > _QUERY_MAX:
        value = [one[: len(one) // 2] for one in value[: len(value) // 2 + 1]] if isinstance(value, list) else value[: len(value) // 2]
    return value


def _harmless(value: Any) -> Any:
    """No command but `true`, should something run after all."""
    if isinstance(value, dict):
        return {key: "true" if key == "command" else None if key == "python" else _harmless(item) for key, item in value.items()}
    return [_harmless(item) for item in value] if isinstance(value, list) else value


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _of_zeros(size: int, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = b"\0" * size
    return zipped({sha256(data).hexdigest(): data}, compression)


def _many_members() -> bytes:
    one = zipped({"a" * 64: b"x"})
    start, end = one.index(b"PK\x01\x02"), one.index(b"PK\x05\x06")
    members = one[start:end] * 20_000
    return one[:start] + members + one[end : end + 12] + len(members).to_bytes(4, "little") + one[end + 16 :]


ARCHIVES: list[Callable[[], bytes]] = [
    lambda: _of_zeros(10_000_000), lambda: _of_zeros(3_000_000, zipfile.ZIP_BZIP2), _many_members, lambda: _of_zeros(10)[:-3], lambda: zipped({"../x": b"x"}),
    lambda: b"PK\x03\x04" + b"\0" * 1000, lambda: 2_400_000 .to_bytes(8, "little") + b"{" + b'"a":{},' * 300_000, lambda: b"[" * 1_000_000,
    lambda: b"[" + b'"a",' * 1_000_000 + b"1]", lambda: b"\x80\x02" + b"(" * 1_000_000, lambda: b"\x80\x05X\xff\xff\xff\xff" + b"a" * 1000, lambda: b"\x80\x02I" + b"1" * 3_000_000,
]  # fmt: skip


def largest() -> Iterator[Asked]:
    """The largest legal bodies, and the same a little beyond."""
    submit = {"spec": {"command": "true", "name": "many", "params": {f"p{n}": "x" * 50 for n in range(100)}}, "hold": "fuzzed"}
    for count in (10_000, 10_001):
        yield json_request("/jobs/batch", {"jobs": [{**submit, "spec": {"command": "true"}}] * count})
    patterns = [f"(?P<x{n}>" + "((x*)*)*" * 6 + "(?:x?){400}y)" for n in range(100)]
    yield json_request("/jobs/batch", {"jobs": [{"spec": {"command": "true", "metrics": {"pattern": pattern}}, "hold": "x"} for pattern in patterns]})
    for pattern in ("(?P<x>" + "a{0,1000}" * 108 + ")", r"(?P<x>" + r"\pL" * 320 + ")", "(?P<x>" + "(?:" * 400 + ")*" * 170):
        yield json_request("/jobs", {"spec": {"command": "true", "metrics": {"pattern": pattern}}})
    yield json_request("/jobs", {**submit, "origin": {"variables": {f"V{n}": "x" * 1000 for n in range(900)}}})
    yield json_request("/jobs", {"spec": {"command": "true", "artifacts": ["**/" * 300 + f"x{n}" for n in range(1000)]}, "hold": "x"})
    yield json_request("/jobs", {"spec": {f"unknown{n}": n for n in range(60_000)}})
    yield json_request("/code/missing", {"tree": {"entries": [{"path": f"a{n:06}", "type": "link"} for n in range(100_000)]}})
    yield json_request("/jobs/cancel", {"jobs": [f"nothing-{n}" for n in range(10_000)]})
    yield json_request("/notes", {"text": "digits-1 " * 7000, "project": "default"})
    yield json_request("/cluster/plan", {"cluster": {"pools": {f"p{n}": {"nodes": ["a-*[0-9]*?" * 10] * 20} for n in range(200)}}})
    for make in ARCHIVES:
        yield Asked("post", rest.address("/code"), body=make(), headers={"content-type": "application/zip"})


def json_request(path: str, value: Any) -> Asked:
    return Asked("put" if path == "/cluster" else "post", rest.address(path), body=json.dumps(value).encode(), headers={"content-type": "application/json"})


def texts(number: int) -> tuple[str, str, str, str, str]:
    """A line, a pattern, a glob, a path and a cursor."""
    rng = Random(number)

    def of(parts: Sequence[str], most: int) -> str:
        return "".join(rng.choice(parts) for _ in range(rng.randrange(most)))

    head = rng.choice(("", "step", "step 1 ", "epoch [", '{"step": 1, "a": ', "loss="))
    pump = rng.choice((" ", "1", "a ", "a=", "[", "{", '"', "1.", "train ", "\t:", "é", noise(rng)))
    line = (head + pump * rng.randrange(5000))[:5000] + rng.choice(TEXTS)
    pattern = of([*"ab(|)*+?{}[]^$.\\d<P=>!#:-1,9", "(?P<x>", "{1,99}", "(?:", "\\pL", "(.*)", "(x+x+)+"], 40)
    glob = of(["*", "**", "/", "**/", "?", "[", "]", "[a-z]", "{step}", "a", "1", ".", "!"], 60)
    return line, pattern, glob, of(["a", "1", "/", ".", "11", "b.pt", "aa"], 60) or "a", of("ABCDabcd0129_-=", 400)
