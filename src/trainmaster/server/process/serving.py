"""The api process: uvicorn on a TCP port for people and on a Unix socket for agents. Control loads nothing of this."""

import asyncio
import gc
import resource
import socket
import sys
from contextlib import suppress
from types import FrameType

import uvicorn

from trainmaster import __version__, compose, configuration, presence
from trainmaster.home import Home
from trainmaster.server.process.app import create_app
from trainmaster.server.process.connections import config_of
from trainmaster.server.process.sockets import bind_tcp, bind_unix, url_of
from trainmaster.server.process.startup import refuse_stopped, settle
from trainmaster.server.process.watchdog import watch
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.runtime.services import Services

_SWITCH_S = 0.001  # after which a thread that computes lets another go on
_COLLECT_AT = (10_000, 10, 1_000)  # as `gc.set_threshold` has it: a few milliseconds at a time


def api_main(home: Home, detached: bool) -> int:
    """Serve until told to end. Raises: ConflictError, OperationError, DiskFullError."""
    lock = compose.hold_alone(home, "api")
    refuse_stopped(home, detached)
    settings = home.read_json(home.settings_json) or {}
    tcp = bind_tcp(home, settings.get("host"), settings.get("port"))
    unix = bind_unix(home.socket("api"))
    stores = compose.open_api(home)
    compose.guard_home(home, "api", lock, (home.events_db, home.inbox_db))
    secret = compose.server_secret(home)
    services = Services(
        home, stores.inbox, stores.events, stores.metrics, stores.blobs, secret, stores.tokens, configuration.load(home),
        lambda job: compose.runs_of(home, job),
    )  # fmt: skip
    app = create_app(services, lambda: _control_ready(home))
    _raise_descriptor_limit()
    server = ApiServer(config_of(app), home, app.state.runtime, detached)
    server.run(sockets=[tcp, unix])
    lock.close()
    return 0 if server.started else 1


def _control_ready(home: Home) -> bool:
    """Whether control is there; not said of it where `server.json` cannot be read."""
    try:
        return presence.ready(home, "control")
    except OSError:
        return False


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
        settle()
        share_the_interpreter()
        await asyncio.to_thread(presence.announce, self._home, "api", __version__, url_of(sockets[0]))
        if self._detached:
            watch(self._home, "control")
            watch(self._home, "mirror")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """TERM or INT."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._runtime.bells.close)


def share_the_interpreter() -> None:
    """Keep the event loop from waiting for threads that compute, and for the collector among what a large request made.

    Nothing but cycles needs the collector, and `app` looks for those now and then.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.set_threshold(*_COLLECT_AT)


def _raise_descriptor_limit() -> None:
    """Every agent and every follower holds a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
