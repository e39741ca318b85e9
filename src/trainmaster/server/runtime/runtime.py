"""State of the running api process: writers, notifications, caches. Routes get it with `of(request)`."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

from starlette.requests import Request

from trainmaster.errors import AuthenticationError
from trainmaster.model.ids import AgentKey
from trainmaster.server.runtime.agent_reports import FaultWarnings
from trainmaster.server.runtime.commands import Commands
from trainmaster.server.runtime.credentials import Caller, Tokens, authenticate_agent, bearer
from trainmaster.server.runtime.event_followers import Notifier
from trainmaster.server.runtime.exec_sessions import Sessions
from trainmaster.server.runtime.known_blobs import KnownBlobs
from trainmaster.server.runtime.metric_writer import MetricWriter
from trainmaster.server.runtime.record_cache import RecordCache
from trainmaster.server.runtime.services import Services


class Activity:
    """Since when this process runs, and who uses it."""

    def __init__(self) -> None:
        self.started_s = time.monotonic()
        self.last_request_s = self.started_s  # time of the last authenticated request
        self.log_followers = 0

    def note_request(self) -> None:
        """Record that an authenticated request came in."""
        self.last_request_s = time.monotonic()

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Count a log follower in `log_followers` for the duration of the block."""
        self.log_followers += 1
        try:
            yield
        finally:
            self.log_followers -= 1


class Runtime:
    """The parts of one api process."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.tokens = Tokens(services.home, services.tokens)
        self.tokens.ensure_admin()
        self.notifier = Notifier()
        self.execs = Sessions()
        self.commands = Commands(services, self.notifier)
        self.recorded = RecordCache(services, self.notifier)
        self.metric_writer = MetricWriter(services.home, services.metrics)
        self.known_blobs = KnownBlobs()
        self.activity = Activity()
        self.fault_warnings = FaultWarnings()  # warnings about agent data that this version ignored

    async def start(self) -> None:
        """Start listening for notifications from control."""
        await asyncio.to_thread(self.commands.keep_ahead)
        await self.recorded.start()

    def close(self) -> None:
        """Finish pending writes and release everything."""
        self.notifier.close()
        self.execs.notifier.close()
        self.recorded.close()
        self.commands.close()
        self.metric_writer.close()


def of(request: Request) -> Runtime:
    """The runtime of the app that serves this request."""
    runtime = request.app.state.runtime
    assert isinstance(runtime, Runtime)
    return runtime


def caller(request: Request) -> Caller:
    """The authenticated caller of a user request."""
    found = request.scope["trainmaster.caller"]
    assert isinstance(found, Caller)
    return found


def agent(request: Request, claimed: object = None) -> AgentKey:
    """The authenticated agent. `told`: the key in the body, which must match. Raises: UsageError, AuthenticationError."""
    known = request.scope["trainmaster.agent"]
    if known is None:  # an agent of an earlier version
        return authenticate_agent(of(request).services.secret, str(claimed), bearer(request.headers.get("authorization")))
    assert isinstance(known, AgentKey)
    if claimed is not None and claimed != str(known):
        raise AuthenticationError("this is not the credential of that agent")
    return known


def user(request: Request) -> str:
    """The name of the member that sent the request."""
    return caller(request).name
