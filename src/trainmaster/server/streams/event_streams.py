"""Events and logs as server-sent events, for browsers and scripts that keep a connection open.

Every message has an `id`. A client that reconnects with it (`Last-Event-ID`, as a browser's EventSource does) continues
behind it. A browser cannot send an Authorization header here: it gets a ticket first and appends `?ticket=…`.
Source: WHATWG HTML, section 9.2 (server-sent events).
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import StreamingResponse

from trainmaster.errors import UsageError
from trainmaster.model.events import RunDataLogged
from trainmaster.ports.store import Recorded, Unread
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import CURSOR_MAX, NUMBER_MAX, Ref, Text
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.credentials import TICKET_S, Caller
from trainmaster.server.schemas import described, models
from trainmaster.server.streams import rank_logs
from trainmaster.server.streams.logs import LogQuery, next_page
from trainmaster.server.views.event_text import event_view
from trainmaster.server.views.lookup import find
from trainmaster.wire import rest

router = APIRouter(tags=["streams"])

_KEEP_ALIVE_S = 15.0  # interval of comments that keep proxies from closing the connection
_BEAT_S = 1.0  # how often an idle stream checks that the caller's token is still valid
_PAGE = 500
_STREAM: dict[str, Any] = {
    "response_class": StreamingResponse,
    "responses": {200: {"content": {"text/event-stream": {}}, "description": "server-sent events, until the client leaves"}},
}
_AFTER = "only what comes after this; default: only new events"
After = Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description=_AFTER)]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=CURSOR_MAX, description="the last message seen")]


@router.post("/tickets", status_code=201, response_model=None, responses=described.answers(models.Ticket, 201))
async def ticket(request: Request) -> bodies.Json:
    """A key for stream URLs, valid for one minute: `?ticket=…`."""
    found = runtime.of(request).tokens.ticket(runtime.caller(request), time.monotonic())
    return bodies.Json({"ticket": found, "expires_s": TICKET_S}, 201)


@router.get("/events/stream", summary="Stream events", **_STREAM)
async def events(
    request: Request, after: After = None, job: Text = None, last_event_id: LastEventId = None
) -> StreamingResponse:
    """The events of all jobs, or of one. Message `id`: the event's sequence number; `event`: its type.

    The stream ends with `event: closed` when the token is revoked or expires.
    """
    api = runtime.of(request)
    job_id = None if job is None else (await asyncio.to_thread(find, api, job)).job.id
    seq = _number(last_event_id) if last_event_id else after
    if seq is None:
        seq = 0 if job_id is not None else (await asyncio.to_thread(api.services.events.head)).last_seq
    return _response(_events(api, job_id, seq, runtime.caller(request)))


@router.get("/jobs/{ref}/logs/stream", summary="Stream the ranks' output", **_STREAM)
async def logs(
    request: Request, ref: Ref, query: Annotated[LogQuery, Depends()], last_event_id: LastEventId = None
) -> StreamingResponse:
    """Chunks as in `GET /jobs/{ref}/logs`, with the `cursor` as message `id`; `event: end` when the job has ended.

    The stream ends with `event: closed` when the token is revoked or expires.
    """
    api = runtime.of(request)
    job_id = (await asyncio.to_thread(find, api, ref)).job.id
    query.after, query.wait_s = last_event_id or query.after, _BEAT_S
    cursor = rank_logs.Cursor.decode(query.after)
    await asyncio.to_thread(query.skip, api, job_id, cursor)
    return _response(_logs(api, job_id, query, cursor, runtime.caller(request)))


async def _events(api: runtime.Runtime, job_id: str | None, seq: int, caller: Caller) -> AsyncIterator[bytes]:
    with api.notifier.subscribe(job_id) as signal:
        yield b": connected\n\n"
        while not api.notifier.closing:
            signal.clear()
            rows = await asyncio.to_thread(api.services.events.told, seq, _PAGE, job_id)
            if not api.tokens.holds(caller):
                yield _CLOSED
                return
            for view in await asyncio.to_thread(_views, api, rows):
                seq = view["seq"]
                yield _message(seq, view["type"], view)
            if not rows:
                await api.notifier.wait(signal, min(_KEEP_ALIVE_S, api.tokens.left_s(caller)))
                yield b": still here\n\n"


def _views(api: runtime.Runtime, rows: Sequence[Recorded | Unread]) -> list[dict[str, Any]]:
    """The events as JSON. The spec of a job tells which credentials may be in what its program logged."""
    found = []
    for row in rows:
        job = None
        if isinstance(row, Recorded) and isinstance(row.event, RunDataLogged) and row.job is not None:
            job = api.services.events.job(row.job)
        found.append({"job": row.job, **event_view(row, None if job is None else job.spec)})
    return found


async def _logs(
    api: runtime.Runtime, job_id: str, query: LogQuery, cursor: rank_logs.Cursor, caller: Caller
) -> AsyncIterator[bytes]:
    yield b": connected\n\n"
    said_s = time.monotonic()
    with api.activity.following():
        while not api.notifier.closing:
            page = await next_page(api, job_id, query, cursor)
            if not api.tokens.holds(caller):
                yield _CLOSED
                return
            for n, chunk in enumerate(page["chunks"], 1):
                yield _message(page["cursor"] if n == len(page["chunks"]) else None, "output", chunk)
            if page["ended"]:
                yield _message(page["cursor"], "end", {"state": page["state"]})
                return
            if page["chunks"]:
                said_s = time.monotonic()
            elif time.monotonic() - said_s >= _KEEP_ALIVE_S:
                said_s = time.monotonic()
                yield b": still here\n\n"


def _message(id: int | str | None, kind: str, data: Any) -> bytes:
    """Format one message; without an `id` the client's position stays the same."""
    head = "" if id is None else f"id: {id}\n"
    kind = kind if kind.isidentifier() else "unreadable"  # a damaged event may have any type
    return f"{head}event: {kind}\ndata: {json.dumps(rest.worded(data), ensure_ascii=True)}\n\n".encode()


_CLOSED = _message(None, "closed", {"reason": "the token was revoked or has expired"})


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise UsageError(f"Last-Event-ID is {text[:40]!r}, not the id of an event")
    return int(text)


def _response(messages: AsyncIterator[bytes]) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(messages, media_type="text/event-stream", headers=headers)
