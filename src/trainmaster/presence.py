"""Which processes of the server live: `server.json`, written by the processes themselves, each once it holds its own lock.

A process is known by pid, start time and boot id together, never by its number alone. Standard library only, and little of
it: every command reads this before it does anything, so the values are named tuples, which cost a tenth to define.
"""

import json
import os
from typing import Any, NamedTuple

from trainmaster.home import Home, write_atomic
from trainmaster.locks import hold, inode
from trainmaster.wire.processes import own_identity, same_process

PROCESSES = ("api", "control")
BESIDE = ("mirror", "mlflow")  # no job needs them: one that cannot be started is told and left


class ServerInfo(NamedTuple):
    """A server that runs. `started` are those of its processes that this call brought up."""

    url: str
    pids: dict[str, int]
    version: str
    started: tuple[str, ...] = ()
    mlflow: str | None = None  # the URL of the MLflow server that runs beside it, or is about to
    trouble: str = ""  # why the mirror could not be started; jobs run all the same


def running(home: Home) -> ServerInfo | None:
    """The server of this home, if its api lives; control may be on its way back."""
    record = recorded(home)
    if not record.get("url") or not lives(record, "api"):
        return None
    mlflow = record.get("mlflow_url") if lives(record, "mlflow") else None
    return ServerInfo(record["url"], dict(record["pids"]), str(record.get("version", "")), mlflow=mlflow)


def alive(home: Home, which: str) -> bool:
    """Whether this process of the server runs."""
    return lives(recorded(home), which)


def ready(home: Home, which: str) -> bool:
    """Whether it runs and has said that it can serve (api: listens; control: has its inventory)."""
    record = recorded(home)
    return lives(record, which) and bool(record.get("ready", {}).get(which))


def announce(home: Home, which: str, version: str, url: str | None = None) -> None:
    """Called by a server process that holds its lock and can serve: enter it into `server.json`."""
    enter(home, which, own_identity(), {"version": version, **({} if url is None else {"url": url})})


def enter(home: Home, which: str, identity: dict[str, Any], more: dict[str, Any]) -> None:
    """Write a process (as `own_identity` tells of itself), and what there is to know besides, into `server.json`."""
    with hold(home, "server"):
        record = recorded(home)
        if record.get("boot_id") != identity["boot_id"]:
            record = {"url": record.get("url"), "pids": {}, "ticks": {}, "ready": {}}
        record |= {"root": os.fspath(home.root), "inode": inode(home.root)}
        for name, value in (("pids", identity["pid"]), ("ticks", identity["start_ticks"]), ("ready", True)):
            record.setdefault(name, {})[which] = value
        record |= {"boot_id": identity["boot_id"], **more}
        write_atomic(home.server_json, json.dumps(record).encode())


def recorded(home: Home) -> dict[str, Any]:
    """What `server.json` says of this home's server; nothing where it is not as we write it, or came with a copy of a home.

    Raises: OSError, in which case nobody can say.
    """
    record = _read(home)
    return {} if _is_copied(home, record) else record


def copied_from(home: Home) -> str | None:
    """The home that this one is a copy of, while the server runs that ran when it was copied. Raises: OSError."""
    record = _read(home)
    lives_on = _is_copied(home, record) and any(lives(record, which) for which in PROCESSES)
    return str(record.get("root")) if lives_on else None


def _read(home: Home) -> dict[str, Any]:
    record = home.read_json(home.server_json) or {}
    maps = all(isinstance(record.get(name), dict) for name in ("pids", "ticks", "ready"))
    return record if maps and isinstance(record.get("url"), str | None) else {}


def _is_copied(home: Home, record: dict[str, Any]) -> bool:
    """Whether another directory's server wrote it. One that was moved is the same; earlier versions did not say."""
    return record.get("inode") not in (None, inode(home.root))


def lives(record: dict[str, Any], which: str) -> bool:
    """Whether a process lives that `record`, as read from `server.json`, tells of."""
    pid, ticks = record.get("pids", {}).get(which), record.get("ticks", {}).get(which)
    return pid is not None and ticks is not None and same_process(int(pid), int(ticks), str(record.get("boot_id")))
