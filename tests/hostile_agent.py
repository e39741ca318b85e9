"""What an agent sends that its job's program has taken over: the agents' own routes, with the credential of one attempt."""

import json
import re
from random import Random
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from hostile import ARCHIVES, BROKEN, NUMBERS, TEXTS, Asked, anything

from trainmaster.server.http.authentication import KEY_HEADER
from trainmaster.server.runtime.credentials import credential
from trainmaster.wire import messages

_DONE = ("begin", "sign", "commit", "keep", "abort", "get", "code")
_SPOILED = 0.05


class AgentRequests:
    """Any call of the agent of `key`, legal or not. It never ends the attempt in due form: then nothing of it would be taken."""

    def __init__(self, secret: bytes, key: str) -> None:
        self._key = key
        self._headers = {KEY_HEADER: key, "authorization": f"Bearer {credential(secret, key)}"}
        job, attempt, node = re.split(r"\.|/n", key)
        self._names = [f"{job}/{attempt}", f"checkpoints/{job}/{attempt}-00001/n{node}/x", f"artifacts/{job}/x", f"{job}/../x", "x" * 5000]

    def draw(self, number: int) -> Asked:
        """The request of a number."""
        rng = Random(number)
        spoiled = _SPOILED if rng.random() < 0.7 else 0.0
        kind = rng.choice(("sync", "sync", "sync", "store", "output", "input", "put", "get"))
        if kind in ("put", "get"):
            asked = Asked(kind, "/agent/blob", {"name": rng.choice([*self._names, *TEXTS]).encode("utf-8", "replace").decode()})
            asked.body = rng.choice(ARCHIVES)() if kind == "put" and rng.random() < 0.1 else b""
        elif kind == "sync":
            asked = self._json("/agent/sync", rng, self._sync(rng, spoiled))
        elif kind == "store":
            asked = self._json("/agent/store", rng, self._store(rng, spoiled))
        else:
            asked = self._json(f"/agent/exec/{kind}", rng, self._exec(rng))
        asked.headers |= self._headers
        return asked

    def _json(self, path: str, rng: Random, body: dict[str, Any]) -> Asked:
        if rng.random() < 0.05:
            return Asked("post", path, body=rng.choice(BROKEN))
        told = {"key": self._key, **body}
        return Asked("post", path, body=json.dumps(told, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass"))

    def _sync(self, rng: Random, spoiled: float) -> dict[str, Any]:
        body = fields(rng, messages.SyncRequest, spoiled)
        body.pop("key", None)
        body |= {"wait_s": rng.choice((0, 0.05, -1, "1", None)), "reports": [self._report(rng, spoiled) for _ in range(rng.randrange(4))]}
        if rng.random() < 0.02:
            body["points"] = [drawn(rng, messages.Point, spoiled)] * rng.choice((1000, 6000))
        return body

    def _report(self, rng: Random, spoiled: float) -> Any:
        shape = rng.choice([one for one in get_args(messages.Report) if one is not messages.Ended])
        report = fields(rng, shape, spoiled)
        report["kind"] = _kind(shape) if rng.random() < 0.9 else rng.choice(TEXTS)
        return report | ({"n": rng.randrange(1, 10**6)} if rng.random() < 0.9 else {})

    def _store(self, rng: Random, spoiled: float) -> dict[str, Any]:
        def named() -> Any:
            return rng.choice(self._names) if rng.random() < 0.7 else anything(rng)

        body = {"do": rng.choice((*_DONE, "x")), "name": named(), "bytes": rng.choice(NUMBERS), "names": [named()], "numbers": [rng.choice(NUMBERS)],
                "files": [{"name": named(), "bytes": rng.choice(NUMBERS)}], "uploads": {str(named()): anything(rng)}, "upload": named(),
                "crc32": rng.choice((True, {"1": anything(rng)})), "part": named(), "manifest": rng.choice(("{}", "[]", "x" * 10_000))}  # fmt: skip
        return {name: anything(rng) if rng.random() < spoiled else value for name, value in body.items() if rng.random() < 0.9}

    def _exec(self, rng: Random) -> dict[str, Any]:
        chunks = [[rng.choice((1, 2, 3, "x")), rng.choice(TEXTS)] for _ in range(rng.randrange(3))]
        return {"id": rng.choice(TEXTS), "n": rng.choice(NUMBERS), "offset": rng.choice(NUMBERS), "chunks": chunks, "over": anything(rng)}


def drawn(rng: Random, hint: Any, spoiled: float) -> Any:
    """A value of a type as the protocol writes them; at each place something else with the chance `spoiled`."""
    if rng.random() < spoiled:
        return anything(rng)
    arguments, of = get_args(hint), get_origin(hint)
    if is_typeddict(hint):
        return fields(rng, hint, spoiled)
    if of is Union:
        return drawn(rng, rng.choice(arguments), spoiled)
    if of is list:
        return [drawn(rng, arguments[0], spoiled) for _ in range(rng.randrange(4))]
    if of is dict:
        return {rng.choice(TEXTS): drawn(rng, arguments[1], spoiled) for _ in range(rng.randrange(4))}
    if hint in (int, float):
        return rng.choice([number for number in NUMBERS if isinstance(number, hint)])
    return {str: lambda: rng.choice(TEXTS), bool: lambda: rng.random() < 0.5, type(None): lambda: None}.get(hint, lambda: anything(rng))()


def fields(rng: Random, shape: Any, spoiled: float) -> dict[str, Any]:
    """A message of a shape; now and then a field is missing."""
    return {name: drawn(rng, hint, spoiled) for name, hint in get_type_hints(shape).items() if rng.random() >= spoiled}


def _kind(shape: Any) -> str:
    """The kind of report of a shape: `NotKept` is `not_kept`."""
    kinds = {"EnvironmentFound": "environment", "RunLogged": "run"}
    return kinds.get(shape.__name__) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", shape.__name__).lower()
