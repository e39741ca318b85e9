"""Which server processes are alive, from `server.json`. Each process writes its entry there while it holds its own lock.

A process is identified by pid, start time and boot id, never by its pid alone. Standard library only, and small: every
command imports this first. So the values are named tuples, which are ten times as fast to define as dataclasses.
"""

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from trainmaster.home import Home, write_atomic
from trainmaster.locks import hold, inode
from trainmaster.wire.processes import own_identity, same_process

PROCESSES = ("api", "control")
BESIDE = ("mirror", "mlflow")  # optional for jobs: if one cannot be started, that is reported and ignored


class ServerInfo(NamedTuple):
    """A running server. `started`: its processes that this call has started."""

    url: str
    pids: dict[str, int]
    version: str
    started: tuple[str, ...] = ()
    mlflow: str | None = None  # URL of the MLflow server that runs beside it or is starting
    listens: str | None = None  # URL for other machines
    trouble: str = ""  # why the mirror could not be started; jobs run without it


def running(home: Home) -> ServerInfo | None:
    """The server of this home, if its api is alive; control may be restarting."""
    record = recorded(home)
    if not record.get("url") or not lives(record, "api"):
        return None
    mlflow = record.get("mlflow_url") if lives(record, "mlflow") else None
    listens = record.get("listens")
    return ServerInfo(record["url"], dict(record["pids"]), str(record.get("version", "")), mlflow=mlflow, listens=listens)


def alive(home: Home, which: str) -> bool:
    """Whether this server process runs."""
    return lives(recorded(home), which)


def ready(home: Home, which: str) -> bool:
    """Whether it runs and has reported that it can serve (api: listens; control: has its inventory)."""
    record = recorded(home)
    return lives(record, which) and bool(record.get("ready", {}).get(which))


def announce(home: Home, which: str, version: str, urls: Mapping[str, str | None] = MappingProxyType({})) -> None:
    """Add this process to `server.json`. A server process calls it when it holds its lock and can serve.

    `urls`: where it listens, `url` for this machine and `listens` for others.
    """
    enter(home, which, own_identity(), {"version": version, **urls})


def enter(home: Home, which: str, identity: dict[str, Any], more: dict[str, Any]) -> None:
    """Write a process (identified as by `own_identity`) and further fields into `server.json`."""
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
    """The content of `server.json`; empty if it is invalid, or was copied together with a home.

    Raises: OSError if it cannot be read: then the state is unknown.
    """
    record = _read(home)
    return {} if _is_copied(home, record) else record


def copied_from(home: Home) -> str | None:
    """The home of which this one is a copy, if the server that ran during the copy still runs. Raises: OSError."""
    record = _read(home)
    lives_on = _is_copied(home, record) and any(lives(record, which) for which in PROCESSES)
    return str(record.get("root")) if lives_on else None


def _read(home: Home) -> dict[str, Any]:
    record = home.read_json(home.server_json) or {}
    maps = all(isinstance(record.get(name), dict) for name in ("pids", "ticks", "ready"))
    return record if maps and isinstance(record.get("url"), str | None) else {}


def _is_copied(home: Home, record: dict[str, Any]) -> bool:
    """Whether the server of another directory wrote it. A moved directory is the same one; old versions wrote no inode."""
    return record.get("inode") not in (None, inode(home.root))


def lives(record: dict[str, Any], which: str) -> bool:
    """Whether a process in `record`, as read from `server.json`, is alive."""
    pid, ticks = record.get("pids", {}).get(which), record.get("ticks", {}).get(which)
    return pid is not None and ticks is not None and same_process(int(pid), int(ticks), str(record.get("boot_id")))
