"""The api process: runs uvicorn on a TCP port and a Unix socket of this machine, and on an address for other machines.

Control does not import this.
"""

import asyncio
import gc
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import cast

import uvicorn

from trainmaster import __version__, compose, configuration, live_processes
from trainmaster.home import Home
from trainmaster.server.process.app import create_app
from trainmaster.server.process.background import supervised
from trainmaster.server.process.connections import config_of
from trainmaster.server.process.public_listener import PublicListener, listen
from trainmaster.server.process.sockets import bind_tcp, bind_unix, url_of
from trainmaster.server.process.startup import refuse_if_stopping, resume_collector
from trainmaster.server.process.watchdog import watch
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.runtime.services import Place, Services

_SWITCH_S = 0.001  # thread switch interval of the interpreter
_COLLECT_AT = (10_000, 10, 1_000)  # for `gc.set_threshold`: a collection takes a few milliseconds


def api_main(home: Home, detached: bool) -> int:
    """Serve until told to stop. Raises: ConflictError, OperationError, DiskFullError."""
    lock = compose.hold_alone(home, "api")
    refuse_if_stopping(home, detached)
    settings = home.read_json(home.settings_json) or {}
    tcp = bind_tcp(home, settings.get("port"))
    public = listen(home, settings)
    unix = bind_unix(home.socket("api"))
    stores = compose.open_api(home)
    compose.guard_home(home, "api", lock, (home.events_db, home.inbox_db))
    secret = compose.server_secret(home)
    services = Services(
        home, stores.inbox, stores.events, stores.metrics, stores.blobs, secret, stores.tokens, configuration.load(home),
        lambda job: compose.runs_of(home, job), None if public is None else Place(public.url, public.authority),
    )  # fmt: skip
    app = create_app(services, lambda: _control_ready(home))
    _raise_descriptor_limit()
    server = ApiServer(config_of(app), home, app.state.runtime, detached, public)
    server.run(sockets=[tcp, unix])
    lock.close()
    return 0 if server.started else 1


def _control_ready(home: Home) -> bool:
    """Whether control is ready; False if `server.json` cannot be read."""
    try:
        return live_processes.ready(home, "control")
    except OSError:
        return False


class ApiServer(uvicorn.Server):
    """A uvicorn server that registers itself in `server.json` once it listens, and wakes waiting requests when it stops."""

    def __init__(
        self, config: uvicorn.Config, home: Home, runtime: Runtime, detached: bool, public: PublicListener | None
    ) -> None:
        super().__init__(config)
        self._home = home
        self._runtime = runtime
        self._detached = detached
        self._public = public
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then announce it."""
        assert sockets is not None
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        await self._serve_public()
        resume_collector()
        share_the_interpreter()
        urls = {"url": url_of(sockets[0]), "listens": None if self._public is None else self._public.url}
        await asyncio.to_thread(live_processes.announce, self._home, "api", __version__, urls)
        if self._detached:
            watch(self._home, "control")
            watch(self._home, "mirror")

    async def _serve_public(self) -> None:
        """Listen for other machines, if that is asked for. uvicorn itself would use TLS for all of its sockets or for none."""
        if self._public is None:
            return
        kind = cast(Callable[..., asyncio.Protocol], self.config.http_protocol_class)
        made = partial(kind, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        self.servers.append(cast(asyncio.Server, await self._public.serve(made)))
        self._renewing = asyncio.create_task(supervised("renewing the certificate", self._public.renew))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGTERM and SIGINT."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._runtime.notifier.close)


def share_the_interpreter() -> None:
    """Keep computing threads and the garbage collector from blocking the event loop.

    Only reference cycles need the collector. `app` runs it for those at intervals.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.set_threshold(*_COLLECT_AT)


def _raise_descriptor_limit() -> None:
    """Raise the limit of open files: every agent and every log follower holds a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
