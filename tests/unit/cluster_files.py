"""Cluster files for tests: those of the documents, random ones, and ways to break them."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from test_spec_mutations import MUTATIONS, NASTY

from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.spec.cluster.document import is_cluster

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Rng = random.Random


def documented() -> list[bytes]:
    """Every cluster file that the documents show."""
    texts = [block for page in sorted((ROOT / "docs").rglob("*.md")) for block in _BLOCK.findall(page.read_text())]
    return [text.encode() for text in texts if is_cluster(text.encode(), "a.yaml")]


# A grammar of files that are mostly right.

_NAMES = ("vision", "speech", "lab", "deep", "default", "a.b-c_1", "0", "x" * 63)
_PEOPLE = ("ann", "bob", "müller", "*", "a b", "ann@example.org", "李")
_KINDS = ("gpus", "cpus", "a100", "h100")
_SPANS = ("30s", "20m", "4h", "1d12h", "7d", "0.5s", "1w", 90, 0.25, "1h30m")
_WHEN = ("Sun 22:00/4h", "daily 03:00+01:00/30m", "2026-12-01T22:00/4h", "mon 0:00/1d", "2031-12-01 22:00:05Z/90s", "2020-01-01T10:00/2h")
_WORDS = ("n0", "n*", "n[0-1]", "*", "[", "z-*", "node é", "!")


def _some(rng: Rng, given: Any, most: int = 3) -> list[Any]:
    return rng.sample(list(given), rng.randint(0, min(most, len(given))))


def _fields(rng: Rng, makers: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    return {name: make() for name, make in makers.items() if rng.random() < 0.4}


def _number(rng: Rng) -> Any:
    return rng.choice([0, 1, 2, 3, 4, 6, 8, 16, 0.5, 1e-6, 1e9, 999999999.5, 2])


def _quota(rng: Rng) -> Any:
    if rng.random() < 0.3:
        return _number(rng)
    guarantee, nominal, limit = sorted(rng.choice([float(_number(rng)), rng.randint(0, 6)]) for _ in range(3))
    return {name: value for name, value in (("guarantee", guarantee), ("nominal", nominal), ("limit", limit)) if rng.random() < 0.6}


def _pool(rng: Rng) -> Any:
    def labels() -> dict[str, str]:
        return {name: rng.choice(["eu", "r1", "ü"]) for name in _some(rng, ["zone", "rack", "host"])}

    def window() -> Any:
        more = _fields(rng, {"nodes": lambda: _some(rng, _WORDS), "reason": lambda: rng.choice(["switches", "über", ""])})
        return rng.choice([rng.choice(_WHEN), {"when": rng.choice(_WHEN), **more}])

    return _fields(
        rng,
        {
            "nodes": lambda: rng.choice([rng.choice(_WORDS), _some(rng, _WORDS)]),
            "labels": labels,
            "node_labels": lambda: {name: labels() for name in _some(rng, _WORDS)},
            "price": lambda: _number(rng),
            "speed": lambda: rng.choice([0.5, 1, 2.1]),
            "policy": lambda: rng.choice([name for name, policy in POLICIES.items() if not policy.exact]),
            "maintenance": lambda: rng.choice([window(), [window() for _ in range(rng.randint(0, 3))]]),
        },
    )


def _project(rng: Rng, above: list[str]) -> Any:
    made = _fields(
        rng,
        {
            "weight": lambda: rng.choice([1, 2, 0.5, 1e-6, 1e9]),
            "members": lambda: rng.choice([_some(rng, _PEOPLE), {name: rng.choice([1, 2.5]) for name in _some(rng, _PEOPLE)}]),
            "running": lambda: rng.choice([0, 1, 20]),
            "running_per_member": lambda: rng.choice([0, 1, 20]),
            "urgent": lambda: rng.choice([_some(rng, _PEOPLE), "*", []]),
        },
    )
    if rng.random() < 0.7:
        made["quota"] = {name: _quota(rng) for name in _some(rng, _KINDS)}
    return {**made, "parent": rng.choice(above)} if above and rng.random() < 0.7 else made


def _class(rng: Rng, projects: list[str]) -> Any:
    return _fields(
        rng,
        {
            "priority": lambda: rng.choice([-100_000, -1, 0, 2000, 100_000]),
            "preemptible": lambda: rng.choice([True, True, False]),
            "wait_target": lambda: rng.choice(_SPANS),
            "completion_target": lambda: rng.choice(_SPANS),
            "recovery_target": lambda: rng.choice(_SPANS),
            "time_slice": lambda: rng.choice(_SPANS),
            "express": lambda: {"gpus": rng.choice([1, 2]), "limit": rng.choice(_SPANS)},
            "projects": lambda: rng.choice([_some(rng, projects), ["*"], []]),
            "members": lambda: rng.choice([_some(rng, _PEOPLE), "ann", []]),
        },
    )


def tree(rng: Rng) -> dict[str, Any]:
    """A few projects inside each other, with small quotas that often contradict each other."""
    names = ["a", "b", "c", "d"][: rng.randint(1, 4)]

    def small() -> dict[str, Any]:
        guarantee = rng.choice([0, 1, 2, 3])
        quota = {"guarantee": guarantee, "nominal": guarantee + rng.choice([0, 1]), "limit": guarantee + rng.choice([1, 2, 3])}
        return {name: value for name, value in quota.items() if rng.random() < 0.7}

    projects: dict[str, Any] = {name: {"quota": {kind: small() for kind in _some(rng, _KINDS, 3)}} for name in names}
    for at, name in enumerate(names):
        if at and rng.random() < 0.8:
            projects[name]["parent"] = rng.choice(names[:at])
        if rng.random() < 0.1:
            projects[name]["running"] = rng.choice([0, 1])
    return {"projects": projects}


def mapping(rng: Rng) -> dict[str, Any]:
    """A random configuration, mostly a right one."""
    projects = _some(rng, _NAMES, 6)
    classes = _some(rng, ("production", "interactive", "training", "nightly", "x.y"))
    return _fields(
        rng,
        {
            "pools": lambda: {name: _pool(rng) for name in _some(rng, ("fast", "slow", "default", "p-1"))},
            "projects": lambda: {name: _project(rng, projects[:at]) for at, name in enumerate(projects)},
            "classes": lambda: {name: _class(rng, projects) for name in classes},
            "fair_share": lambda: {"half_life": rng.choice(_SPANS)},
            "multifactor": lambda: {name: rng.choice([0, -0.5, 1000, 1e9]) for name in _some(rng, ("class", "age", "size", "priority"))},
            "preemption": lambda: {"min_run": rng.choice([0, *_SPANS])},
            "currency": lambda: rng.choice(["EUR", "USD"]),
        },
    )


def written(rng: Rng, value: Any) -> bytes:
    """A mapping as a file: blocks, braces or JSON."""
    if rng.random() < 0.2:
        return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode()
    return str(yaml.safe_dump(value, default_flow_style=rng.choice([True, False, None]), allow_unicode=True, sort_keys=False)).encode()


# Ways to break a mapping.

_UNITS = ("3 days", "4 h", "5 fortnights", "1e400d", "-1h", "١٢h", "²h", "h", "1h1h", "1d-2h", "∞", "0s", "0.00001s", "1.0000001s", "1m30.123456789s", "1e300s", "9999999999d", "nan", "4H", "1µs")
_ODD_NAMES = ("", " ", "*", "~", "ä" * 70, "a/b", "..", "__proto__", "\u202egpu", "a\nb", "x" * 300, "\U0001f680", "e\u0301", "null", "1e3", "\u200b")
_ODD_TIMES = ("Sun 22:00/0.3s", "0001-01-01T00:00/4h", "9999-12-31T23:59/9999d", "2026-02-30T22:00/4h", "Sun 25:00/4h", "daily 03:00+99:99/1h", "daily 00:00/24h",
              "٢٠٢٦-12-01T22:00/4h", "2026-12-01T22:00/4h/4h", "/", "Sun/4h", "0999-01-01T00:00/1h", "1969-12-31T23:00/2h", "daily 23:59:59-23:59/1s")  # fmt: skip
_ODD_NUMBERS = (-1, -0.0, 1e308, 1e309, float("nan"), float("inf"), 2**63, 10**400, 1e-300, 0, True, 1e9 + 1, 123456789.123456789)
_ODD = (None, [], {}, "", [[]], [None], {"": ""}, {"a": {"b": {"c": 1}}}, "true", 0, [1, "a", {}], {"*": "*"})


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key or index in a mapping."""
    found: list[tuple[Any, Any]] = []
    left = [value]
    while left:
        one = left.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        for key in keys:
            found.append((one, key))
            left.append(one[key])
    return found


def broken_mapping(rng: Rng, value: dict[str, Any]) -> dict[str, Any]:
    """A copy with one value or name of it replaced, moved, removed or wrapped."""
    value = json.loads(json.dumps(value))
    places = _places(value)
    if not places:
        return {rng.choice(["pools", "projects", "classes", "what"]): rng.choice(_ODD)}
    holder, key = rng.choice(places)
    how = rng.randrange(7)
    if how == 0:
        holder[key] = rng.choice([*_ODD, *_ODD_NUMBERS])
    elif how == 1:
        holder[key] = rng.choice([*_UNITS, *_ODD_TIMES, *_ODD_NAMES])
    elif how == 2 and isinstance(holder, dict):
        holder[rng.choice([*_ODD_NAMES, key[:-1], key + "s", key.upper()])] = holder.pop(key)
    elif how == 3:
        other, place = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[place])) if place in other or isinstance(other, list) else None
    elif how == 4 and isinstance(holder, dict):
        del holder[key]
    elif how == 5:
        holder[key] = [holder[key]] if rng.random() < 0.5 else {rng.choice(_ODD_NAMES): holder[key]}
    else:
        for _ in range(rng.choice([1, 3, 28, 40])):
            holder[key] = {"deep": holder[key]} if rng.random() < 0.5 else [holder[key]]
    return dict(value)


# Ways to break a text and bytes.


def _bombs(rng: Rng) -> str:
    width, levels = rng.choice([2, 9, 40]), rng.choice([2, 5, 9])
    fan = [f"x0: &x0 {{nodes: {rng.choice(['n', '[n]'])}}}"]
    fan += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * width)}]" for n in range(1, levels)]
    shared = "pools: {a: &p {nodes: n*, price: 2}, b: *p, c: {<<: *p}}\nprojects: {v: &v {weight: 2}, w: *v}"
    return rng.choice(["\n".join(fan), shared, "pools: &a {a: *a}", "pools: {a: *nobody}", "&k projects: {*k : {}}", "? {a: b}\n: c"])


def broken_bytes(rng: Rng, data: bytes) -> bytes:
    """A file with a part cut off, turned or put in, a line changed, or a bomb at its end."""
    how = rng.randrange(8)
    at = rng.randrange(len(data) + 1)
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + rng.choice([b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\x85", b"\x1b[31m", b"\t"]) + data[at:]
    if how == 2:
        return bytes(byte if n != at else byte ^ (1 << rng.randrange(8)) for n, byte in enumerate(data))
    if how == 3:
        encoding = rng.choice(["utf-16", "latin-1", "utf-8-sig", "utf-32"])
        return data.decode("utf-8", "replace").encode(encoding, "replace")
    if how == 4:
        return rng.choice([data + b"\n" + _bombs(rng).encode(), _bombs(rng).encode()])
    if how == 5:
        return data.replace(b"\n", rng.choice([b"\r\n", b"\n\n", b"\n# a comment\n", b"\r"]))
    lines = data.decode("utf-8", "replace").split("\n")
    if how == 6:
        return rng.choice(MUTATIONS)(rng, lines).encode("utf-8", "replace")
    line = rng.randrange(len(lines))
    head = lines[line].partition(":")[0]
    return "\n".join([*lines[:line], f"{head}: {rng.choice([*NASTY, *_UNITS, *_ODD_TIMES])}", *lines[line + 1 :]]).encode("utf-8", "replace")


def file(rng: Rng, corpus: list[bytes]) -> bytes:
    """One file of the law: of the documents or random, broken up to three times."""
    if rng.random() < 0.35:
        data = rng.choice(corpus)
    else:
        value = mapping(rng)
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
            value = broken_mapping(rng, value)
        data = written(rng, value)
    for _ in range(rng.choice([0, 0, 0, 0, 1, 1, 2])):
        data = broken_bytes(rng, data)
    return data
