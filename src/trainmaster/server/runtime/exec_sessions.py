"""Sessions of commands that run beside a job's ranks (`tm exec`): their orders, input and output, in memory.

Nothing survives a restart of the process: an agent ends a command that the api no longer knows. The event `CommandRun`
records that a user ran it. Memory is bounded: if its output is not read, the command blocks.
"""

import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainmaster.errors import ConflictError, NotFoundError
from trainmaster.model.ids import AgentKey
from trainmaster.server.runtime.event_followers import Notifier
from trainmaster.wire.messages import Order

BUFFER_MAX_BYTES = 1024 * 1024
_OF_AN_AGENT_MAX = 32
_UNREAD_S = 90.0  # a command is ended when its user has not read for so long
_KEPT_S = 300.0  # a session is deleted when its user has not read for so long


class Chunk(NamedTuple):
    """A piece of output: number, stream (1 stdout, 2 stderr), data as base64."""

    number: int
    stream: int
    data: str


@dataclass(slots=True)
class Output:
    """What the command printed and its user has not read yet. The agent sends it in numbered messages."""

    messages: int = 0  # received from the agent
    _chunks: deque[Chunk] = field(default_factory=deque)
    _count: int = 0  # of all chunks so far
    _size: int = 0  # of those that are kept

    @property
    def is_full(self) -> bool:
        """Whether the agent has to wait."""
        return self._size > BUFFER_MAX_BYTES

    def add(self, message: int, chunks: list[tuple[int, str]]) -> None:
        """Append the output of the agent's message of this number."""
        self.messages = message
        for stream, data in chunks:
            self._count += 1
            self._size += len(data)
            self._chunks.append(Chunk(self._count, stream, data))

    def after(self, number: int) -> list[Chunk]:
        """The output after the chunk of this number. Earlier chunks are dropped."""
        while self._chunks and self._chunks[0].number <= number:
            self._size -= len(self._chunks.popleft().data)
        return list(self._chunks)


@dataclass(slots=True)
class Input:
    """What the user typed and the agent has not read yet."""

    is_closed: bool = False  # nothing is added any more
    _data: bytes = b""  # from `_offset` on
    _offset: int = 0

    @property
    def is_full(self) -> bool:
        """Whether the user has to wait."""
        return len(self._data) > BUFFER_MAX_BYTES

    def add(self, data: bytes, everything: bool) -> None:
        """Append input; `everything` marks its end."""
        self._data += data
        self.is_closed = self.is_closed or everything

    def after(self, offset: int) -> bytes:
        """The input from `offset` on. Earlier input is dropped."""
        self._data = self._data[max(0, offset - self._offset) :]
        self._offset = max(self._offset, offset)
        return self._data

    def ends_at(self, offset: int) -> bool:
        """Whether nothing comes from `offset` on."""
        return self.is_closed and offset >= self._offset + len(self._data)


@dataclass(slots=True)
class Session:
    """One command. `result`: its end (`exit_code signal error with_attempt`), reported after its output was read."""

    id: str
    key: AgentKey
    user: str
    order: Order
    last_read_s: float  # last read by its user, on the monotonic clock
    output: Output = field(default_factory=Output)
    input: Input = field(default_factory=Input)
    result: dict[str, Any] | None = None
    lost_s: float | None = None  # since when the agent is known to be gone


class Sessions:
    """All exec sessions of this api process."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self.notifier = Notifier()  # by session id

    def begin(self, key: AgentKey, user: str, order: Order) -> Session:
        """Create a session. Raises: ConflictError when too many run on that node."""
        self._forget()
        if sum(one.key == key and one.result is None for one in self._sessions.values()) >= _OF_AN_AGENT_MAX:
            raise ConflictError(f"{_OF_AN_AGENT_MAX} commands run beside {key} already", "wait until one of them has ended")
        id = secrets.token_hex(8)
        session = Session(id, key, user, Order(**{**order, "order": "exec", "id": id}), time.monotonic())
        self._sessions[id] = session
        return session

    def of_agent(self, id: str, key: AgentKey) -> Session:
        """A session, for its agent. Raises: NotFoundError."""
        session = self._sessions.get(id)
        if session is None or session.key != key:
            raise NotFoundError("there is no such command")
        return session

    def of_user(self, id: str, job: str, user: str) -> Session:
        """A session, for the user that started it. Raises: NotFoundError."""
        session = self._sessions.get(id)
        if session is None or session.key.job != job or session.user != user:
            raise NotFoundError(
                f"no such command runs beside {job}", "if the server was started again meanwhile, the command was ended"
            )
        session.last_read_s = time.monotonic()
        return session

    def orders(self, key: AgentKey) -> list[Order]:
        """The commands that the agent should run. One whose user has stopped reading gets the order to stop."""
        if not self._sessions:
            return []
        now_s = time.monotonic()
        wanted = []
        for one in self._sessions.values():
            if one.key == key and one.result is None:
                if now_s - one.last_read_s > _UNREAD_S:
                    one.order["stop"] = True
                wanted.append(one.order)
        return wanted

    def _forget(self) -> None:
        horizon_s = time.monotonic() - _KEPT_S
        for id in [one.id for one in self._sessions.values() if one.last_read_s < horizon_s]:
            del self._sessions[id]
