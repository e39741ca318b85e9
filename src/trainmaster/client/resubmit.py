"""Makes jobs from other jobs: requeue, reproduce, and fork from a checkpoint."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.client.api import Client, Row, new_key
from trainmaster.client.data import versions
from trainmaster.client.settings import default_tags
from trainmaster.client.submission import Draft, Explain, Options, Prepared, Say, existing, pack, submit_prepared
from trainmaster.errors import UsageError
from trainmaster.home import account_name
from trainmaster.spec.shorthand import from_options

OWN_CODE = ("workdir", "function")  # options that, like a command, give a fork code of its own


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes for the new job. With `command` and some options it gets code of its own."""

    options: Options = field(default_factory=lambda: Options())
    command: str | list[str] | None = None
    new_params: tuple[str, ...] = ()  # NAME=VALUE
    hold: str | None = None
    urgent: str | None = None  # the reason
    key: str | None = None  # Idempotency-Key; None: a fresh one

    @property
    def own_code(self) -> bool:
        """Whether the new job has code of its own instead of its parent's."""
        return self.command is not None or any(name in self.options for name in OWN_CODE)


def requeue(client: Client, ref: str, changes: Changes) -> Row:
    """Run an ended job again; `{"id", "lineage"}`. Raises: ConflictError if it has not ended, UsageError, SpecError."""
    parent = client.job(ref)
    if changes.own_code:
        message = "a requeued job has the code of the original"
        raise UsageError(message, f"with code of its own: tm run --from {parent['id']} -- COMMAND")
    return client.requeue(parent["id"], _body(parent, changes), changes.key or new_key())


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
    body = {**_body(parent, changes), **start}

    def made() -> Prepared:
        if not changes.own_code:
            return Prepared(body)
        prepared = pack(_draft(parent, changes))
        return prepared._replace(body=body | {name: prepared.body.get(name) for name in ("origin", "code", "data")})

    return submit_prepared(client, made, lambda prepared: client.fork(parent["id"], prepared.body, key), say, explain)


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
    wanted = {"checkpoint": writes, "artifacts": mapping.get("artifacts") or list(spec["artifacts"]), "data": spec["data"]}
    directory = changes.options.get("workdir") or "."
    return Draft(wanted, existing(Path(directory).expanduser()), False, changes.hold)
