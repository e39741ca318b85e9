"""The two processes of a server, as they are started by `trainmaster.daemons`, by systemd or by hand."""

import asyncio
import fcntl
import gc
import json
import logging
import os
import resource
import socket
import sys
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import uvicorn

from trainmaster import __version__, compose, daemons
from trainmaster.errors import ConflictError, TrainmasterError
from trainmaster.home import Home
from trainmaster.server.app import create_app
from trainmaster.server.listening import bind_tcp, bind_unix, prepare_directory, url_of
from trainmaster.server.runtime import Runtime
from trainmaster.server.services import Services
from trainmaster.server.watch import watch
from trainmaster.wire.processes import own_identity

log = logging.getLogger("trainmaster.server")

_LOG_MAX_BYTES = 4 * 1024 * 1024
_KEEP_ALIVE_S = 75
_FAREWELL_S = 3  # how long a stop waits for answers still being given


def run(which: str, root: str, pipe: int | None) -> int:
    """One process, until it is told to end. `pipe`: it was started detached, and says there how it fares."""
    home = Home(Path(root).absolute())
    _tell(pipe, own_identity())
    try:
        home.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        _log_to(home.logs / f"{which}.log")
        return _api(home, pipe is not None) if which == "api" else _control(home, pipe is not None)
    except TrainmasterError as error:
        print(f"{which}: {error.message}", file=sys.stderr)  # noqa: T201
        _tell(pipe, {"code": error.code, "message": error.message, "hint": error.hint})
        return error.exit_code


def _control(home: Home, detached: bool) -> int:
    def started() -> None:
        daemons.announce(home, "control", __version__)
        if detached:
            watch(home, "api")

    prepare_directory(home.socket("control.wake"))
    return compose.control_main(home, started)


def _api(home: Home, detached: bool) -> int:
    """Raises: ConflictError, OperationError, DiskFullError."""
    lock = _hold(home)
    settings = home.read_json(home.settings_json) or {}
    tcp = bind_tcp(home, settings.get("host"), settings.get("port"))
    unix = bind_unix(home.socket("api"))
    stores = compose.open_api(home)
    secret = compose.server_secret(home)
    services = Services(home, stores.inbox, stores.events, stores.metrics, stores.blobs, secret)
    app = create_app(services, lambda: daemons.ready(home, "control"))
    config = uvicorn.Config(
        app,
        http="h11",
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_FAREWELL_S,
    )
    _raise_descriptor_limit()
    server = ApiServer(config, home, app.state.runtime, detached)
    server.run(sockets=[tcp, unix])
    lock.close()
    return 0 if server.started else 1


class ApiServer(uvicorn.Server):
    """Uvicorn that enters itself into `server.json` once it listens, and lets go of whoever waits when it ends."""

    def __init__(self, config: uvicorn.Config, home: Home, runtime: Runtime, detached: bool) -> None:
        super().__init__(config)
        self._home = home
        self._runtime = runtime
        self._detached = detached
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        assert sockets is not None
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        gc.collect()
        gc.freeze()
        await asyncio.to_thread(daemons.announce, self._home, "api", __version__, url_of(sockets[0]))
        if self._detached:
            watch(self._home, "control")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """TERM or INT."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._runtime.bells.close)


def _hold(home: Home) -> TextIO:
    """The lock of the api process. Raises: ConflictError."""
    lock = home.lock("api").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConflictError(f"another api process runs on {home.root}", "stop it with: tm down") from None
    return lock


def _log_to(path: Path) -> None:
    """All of the process's words, bounded."""
    handler = RotatingFileHandler(path, maxBytes=_LOG_MAX_BYTES, backupCount=1, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _tell(pipe: int | None, said: dict[str, Any]) -> None:
    """One line to whoever started us; nobody may be listening any more."""
    if pipe is not None:
        with suppress(OSError):
            os.write(pipe, json.dumps(said).encode() + b"\n")


def _raise_descriptor_limit() -> None:
    """Every agent and every follower holds a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
