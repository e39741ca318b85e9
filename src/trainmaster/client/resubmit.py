"""Makes jobs from other jobs: requeue, reproduce, and fork from a checkpoint."""

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.client.api import Client, Row, new_key
from trainmaster.client.data import versions
from trainmaster.client.servers.settings import default_tags
from trainmaster.client.submission import Draft, Explain, Options, Prepared, Say, existing, pack, submit_prepared
from trainmaster.errors import UsageError
from trainmaster.home import account_name
from trainmaster.spec.shorthand import from_options


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes for the new job. With `own_code` it gets the code of a directory of the caller instead of its parent's."""

    options: Options = field(default_factory=lambda: Options())
    command: str | list[str] | None = None
    new_params: tuple[str, ...] = ()  # NAME=VALUE
    hold: str | None = None
    urgent: str | None = None  # the reason
    key: str | None = None  # Idempotency-Key; None: a fresh one
    own_code: bool = False


def rerun(client: Client, source: str, changes: Changes, say: Say, onward: bool = False) -> Row:
    """Run a job again; `{"id", "lineage"}`. It starts where the original started, which must have ended.

    `onward`, or a source `JOB@STEP`: it goes on from a checkpoint, also of a job that still runs.
    Raises: ConflictError, NotFoundError, UsageError, SpecError.
    """
    ref, start = _start(source)
    if onward or start:
        return fork(client, source, changes, say)
    parent, key = client.job(ref), changes.key or new_key()
    made = _made(parent, changes)
    return submit_prepared(client, made, lambda prepared: client.requeue(parent["id"], prepared.body, key), say)


def reproduce(client: Client, ref: str, hold: str | None = None, key: str | None = None) -> Row:
    """Run a job again to compare; `{"id", "lineage", "equal", "unequal"}`."""
    parent = client.job(ref)
    body = {"origin": _who(), "data": _data_now(parent), "hold": hold}
    return client.reproduce(parent["id"], body, key or new_key())


def fork(client: Client, source: str, changes: Changes, say: Say, explain: Explain | None = None) -> Row:
    """Start a new job from `JOB`, `JOB@STEP` or `JOB@CHECKPOINT`; `{"id", "lineage"}`. `say`, `explain`: as in `send`.

    Raises: NotFoundError that lists the steps, UsageError (an unknown parameter), SpecError, ConflictError.
    """
    ref, start = _start(source)
    parent, key = client.job(ref), changes.key or new_key()

    def send(prepared: Prepared) -> Row:
        return client.fork(parent["id"], {**prepared.body, **start}, key)

    return submit_prepared(client, _made(parent, changes), send, say, explain)


def _made(parent: Row, changes: Changes) -> Callable[[], Prepared]:
    """Makes the request for a job made from another, with code of its own if it is to have any."""
    body = _body(parent, changes)

    def made() -> Prepared:
        if not changes.own_code:
            return Prepared(body)
        prepared = pack(_draft(parent, changes))
        return prepared._replace(body=body | {name: prepared.body.get(name) for name in ("origin", "code", "data")})

    return made


def _start(source: str) -> tuple[str, dict[str, Any]]:
    """Split a source into job and checkpoint; `@last` alone is a job."""
    ref, _, named = source.rpartition("@")
    if not ref:
        return source, {}
    if not named:
        raise UsageError(f"{source!r} has no step after the @", f"the newest checkpoint: {ref}   one by its step: {ref}@450")
    return ref, {"step": int(named)} if named.isdecimal() and len(named) < 20 else {"checkpoint": named}


def _body(parent: Row, changes: Changes) -> dict[str, Any]:
    mapping = from_options(changes.options, changes.command, os.environ)
    given, has = mapping.get("tags") or {}, parent["spec"]["tags"]
    tags = {name: value for name, value in default_tags(Path()).items() if name not in has and name not in given}
    if tags or given:
        mapping["tags"] = {**tags, **given}
    new = from_options({"params": changes.new_params}, None).get("params", {}) if changes.new_params else {}
    body = {
        "changes": mapping, "new_params": new, "hold": changes.hold, "urgent": changes.urgent, "origin": _who(),
        "data": _data_now(parent),
    }  # fmt: skip
    return {name: value for name, value in body.items() if value is not None}


def _who() -> dict[str, str]:
    """The part of the origin that changes; the rest describes where the original ran, and stays."""
    return {"user": account_name(), "host": socket.gethostname()}


def _data_now(parent: Row) -> list[dict[str, Any]] | None:
    """The present versions of the job's data, if it was submitted from this host."""
    directory = Path(parent["origin"]["directory"] or "/")
    if not parent["spec"]["data"] or parent["origin"]["host"] != socket.gethostname() or not directory.is_dir():
        return None
    return versions(parent["spec"], directory)


def _draft(parent: Row, changes: Changes) -> Draft:
    """A draft for the fork's own code. Files that the job writes, by its parent's spec, are not part of it."""
    mapping, spec = from_options(changes.options, changes.command, os.environ), parent["spec"]
    checkpoint = mapping.get("checkpoint")
    path = checkpoint.get("path") if isinstance(checkpoint, Mapping) else None
    writes = {"path": path or spec["checkpoint"]["path"]}
    wanted = {
        "checkpoint": writes, "artifacts": mapping.get("artifacts") or list(spec["artifacts"]), "data": spec["data"],
        "command": mapping.get("command") or spec["command"], "python": mapping.get("python") or spec["python"],
        "roles": spec["roles"], "params": {**spec["params"], **(mapping.get("params") or {})},
    }  # fmt: skip
    directory = changes.options.get("workdir") or "."
    return Draft(wanted, existing(Path(directory).expanduser()), False, changes.hold)
