"""Commands that run beside a job's ranks, as the api knows them while they run: what is ordered, typed and printed.

Nothing of this outlives the process: a command whose api is started again is ended by its agent, which finds it unknown.
That somebody ran it is an event (`CommandRun`). Bounded: output that nobody reads makes the command wait.
"""

import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainmaster.errors import ConflictError, NotFoundError
from trainmaster.model.ids import AgentKey
from trainmaster.server.runtime.event_followers import Bells
from trainmaster.wire.messages import Order

BUFFER_MAX_BYTES = 1024 * 1024
_OF_AN_AGENT_MAX = 32
_UNHEARD_S = 90.0  # since whoever asked for it last listened
_KEPT_S = 300.0  # of one that is over


class Chunk(NamedTuple):
    """A piece of output: its number, 1 standard output or 2 standard error, base64."""

    number: int
    stream: int
    data: str


@dataclass(slots=True)
class Session:
    """One command. `over` is how it ended (`exit_code signal error with_attempt`), told once its output was read."""

    id: str
    key: AgentKey
    user: str
    order: Order
    heard_s: float  # when whoever asked for it last listened, on the monotonic clock
    chunks: deque[Chunk] = field(default_factory=deque)
    printed: int = 0  # chunks so far
    taken: int = 0  # the agent's messages so far
    size: int = 0
    given: bytes = b""  # its input from `given_at` on
    given_at: int = 0
    given_all: bool = False
    over: dict[str, Any] | None = None
    lost_s: float | None = None  # since when its agent is known to be gone

    def print(self, chunks: list[tuple[int, str]]) -> None:
        """Take output."""
        for stream, data in chunks:
            self.printed += 1
            self.size += len(data)
            self.chunks.append(Chunk(self.printed, stream, data))

    def read(self, after: int) -> list[Chunk]:
        """Output after chunk `after`; what is before it need not be kept."""
        while self.chunks and self.chunks[0].number <= after:
            self.size -= len(self.chunks.popleft().data)
        return list(self.chunks)

    def type(self, data: bytes, everything: bool) -> None:
        """Take input."""
        self.given += data
        self.given_all = self.given_all or everything

    def typed(self, offset: int) -> bytes:
        """Input from `offset` on; what is before it need not be kept."""
        self.given = self.given[max(0, offset - self.given_at) :]
        self.given_at = max(self.given_at, offset)
        return self.given


class Sessions:
    """All commands of this api."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self.bells = Bells()  # by the session's id

    def begin(self, key: AgentKey, user: str, order: Order) -> Session:
        """A new one. Raises: ConflictError when too many run there."""
        self._forget()
        if sum(one.key == key and one.over is None for one in self._sessions.values()) >= _OF_AN_AGENT_MAX:
            raise ConflictError(f"{_OF_AN_AGENT_MAX} commands run beside {key} already", "wait until one of them has ended")
        id = secrets.token_hex(8)
        session = Session(id, key, user, Order(**{**order, "order": "exec", "id": id}), time.monotonic())
        self._sessions[id] = session
        return session

    def of_agent(self, id: str, key: AgentKey) -> Session:
        """For its agent. Raises: NotFoundError."""
        session = self._sessions.get(id)
        if session is None or session.key != key:
            raise NotFoundError("there is no such command")
        return session

    def of_user(self, id: str, job: str, user: str) -> Session:
        """For whoever asked for it. Raises: NotFoundError."""
        session = self._sessions.get(id)
        if session is None or session.key.job != job or session.user != user:
            raise NotFoundError(
                f"no such command runs beside {job}", "if the server was started again meanwhile, the command was ended"
            )
        session.heard_s = time.monotonic()
        return session

    def orders(self, key: AgentKey) -> list[Order]:
        """What the agent is to have started; one that nobody listens to any more is to end."""
        if not self._sessions:
            return []
        now_s = time.monotonic()
        wanted = []
        for one in self._sessions.values():
            if one.key == key and one.over is None:
                if now_s - one.heard_s > _UNHEARD_S:
                    one.order["stop"] = True
                wanted.append(one.order)
        return wanted

    def _forget(self) -> None:
        horizon_s = time.monotonic() - _KEPT_S
        for id in [one.id for one in self._sessions.values() if one.heard_s < horizon_s]:
            del self._sessions[id]
