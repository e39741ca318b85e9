"""`tm exec`: runs a command beside a live job's ranks. The api sends the agent an order and relays input and output."""

import base64
import binascii
import re
import shutil
import time
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.errors import ConflictError, UsageError
from trainmaster.model import redaction
from trainmaster.model.commands import RecordCommand
from trainmaster.model.job import Attempt, Job, NodePhase, State
from trainmaster.ports.store import NewRow
from trainmaster.server.agents.orders import over
from trainmaster.server.http import bodies
from trainmaster.server.http.idempotency import idempotency_key
from trainmaster.server.http.parameters import COMMAND_MAX, INPUT_MAX, NUMBER_MAX, SIDE_MAX, Number, Ref, Wait
from trainmaster.server.http.permissions import check_own
from trainmaster.server.runtime import limits, runtime
from trainmaster.server.runtime.exec_sessions import Session
from trainmaster.server.schemas import actions, described
from trainmaster.server.views.lookup import find
from trainmaster.wire.messages import Order, Terminal

router = APIRouter(tags=["jobs"])

Id = Annotated[str, Path(description="of the command, as returned when it was started", max_length=100)]
_ASKED = frozenset(("command", "rank", "role", "node", "stacks", "stdin", "terminal"))
_RECORDED_MAX = 500  # characters of a command in its event
_INPUT_MAX_BYTES = limits.MIB  # per response
_HOLD_MAX_S = 20.0
_LOST_S = 3.0  # time for the last messages of an agent whose attempt has ended
_BEAT_S = 1.0
_TERM = re.compile(r"[\w.+-]{1,64}\Z", re.ASCII)


@router.post(
    "/jobs/{ref}/exec", status_code=201, summary="Run a command beside a job's ranks", response_model=None,
    responses=described.answers(actions.ExecBegun, 201), openapi_extra=described.body(actions.Exec),
)  # fmt: skip
async def begin(request: Request, ref: Ref) -> bodies.Json:
    """It runs in the environment and work directory of a rank, and ends with the attempt at the latest."""
    body = await bodies.read_json(request, "the request", _ASKED)
    api, user = runtime.of(request), runtime.user(request)
    job = (await run_in_threadpool(find, api, ref)).job
    check_own(request, job)
    attempt = _running(job)
    node, order = _order(job, attempt, body)
    what = "(stacks)" if order.get("stacks") else " ".join(redaction.command(order["command"]))[:_RECORDED_MAX]
    record = RecordCommand(job.id, attempt.number, user, what, node, order.get("rank"), order.get("role"))
    await api.commands.accept([NewRow(f"RecordCommand:{job.id}:{user}:{idempotency_key(request)}", record, time.time())])
    session = api.execs.begin(attempt.key(job.id, node), user, order)
    api.notifier.notify(job.id)
    host = attempt.allocation.shares[node].node
    return bodies.Json({"id": session.id, "job": job.id, "attempt": attempt.number, "node": node, "host": host}, 201)


@router.get(
    "/jobs/{ref}/exec/{id}", summary="Read the output of a command beside a job", response_model=None,
    responses=described.answers(actions.ExecOutput),
)  # fmt: skip
async def output(request: Request, ref: Ref, id: Id, after: Number = 0, wait_s: Wait = 0) -> bodies.Json:
    """Repeat with `cursor` as `after` until `over` is set. If nobody reads the output, the command blocks."""
    api = runtime.of(request)
    job = (await run_in_threadpool(find, api, ref)).job
    check_own(request, job)
    session = api.execs.of_user(id, job.id, runtime.user(request))
    deadline_s = time.monotonic() + wait_s
    with api.execs.notifier.subscribe(id) as signal:
        while True:
            signal.clear()
            chunks, result = session.output.after(after), session.result
            api.execs.notifier.notify(id)  # the buffer has room again
            signal.clear()
            if not chunks and result is None:
                # the last output and the result may arrive meanwhile
                _notice_loss(await api.recorded.job(session.key.job), session)
            left_s = deadline_s - time.monotonic()
            if chunks or result is not None or left_s <= 0 or api.notifier.closing:
                told = [{"stream": chunk.stream, "data": chunk.data} for chunk in chunks]
                cursor = chunks[-1].number if chunks else after
                return bodies.Json({"chunks": told, "cursor": cursor, "over": None if chunks else result})
            await api.execs.notifier.wait(signal, min(left_s, _BEAT_S))


@router.post(
    "/jobs/{ref}/exec/{id}/input", status_code=202, summary="Give input to a command beside a job", response_model=None,
    responses=described.answers(actions.ExecTaken, 202), openapi_extra=described.body(actions.ExecInput),
)  # fmt: skip
async def give(request: Request, ref: Ref, id: Id) -> bodies.Json:
    """Base64; `end` closes the input. If `taken` is false, the input buffer is full: try again."""
    body = await bodies.read_json(request, "the input", frozenset(("data", "end")))
    api = runtime.of(request)
    job = (await run_in_threadpool(find, api, ref)).job
    check_own(request, job)
    session = api.execs.of_user(id, job.id, runtime.user(request))
    if session.result is not None or not session.order.get("stdin"):
        raise ConflictError("this command takes no input" if session.result is None else "the command has ended")
    try:
        data = base64.b64decode(bodies.text(body, "data", "", INPUT_MAX) or "", validate=True)
    except binascii.Error as error:
        raise UsageError(f"data is not base64: {error}") from error
    if not await _wait_until(api, session, lambda: not session.input.is_full):
        return bodies.Json({"taken": False}, 202)
    session.input.add(data, body.get("end") is True)
    api.execs.notifier.notify(id)
    return bodies.Json({"taken": True}, 202)


@router.post(
    "/jobs/{ref}/exec/{id}/stop", status_code=202, summary="End a command beside a job", response_model=None,
    responses=described.answers(actions.ExecTaken, 202),
)  # fmt: skip
async def stop(request: Request, ref: Ref, id: Id) -> bodies.Json:
    """Sends SIGTERM to all its processes, and SIGKILL two seconds later."""
    api = runtime.of(request)
    job = (await run_in_threadpool(find, api, ref)).job
    check_own(request, job)
    session = api.execs.of_user(id, job.id, runtime.user(request))
    session.order = Order(**{**session.order, "stop": True})
    api.notifier.notify(job.id)
    return bodies.Json({"taken": True}, 202)


@router.post(
    "/jobs/{ref}/exec/{id}/resize", status_code=202, summary="Tell the size of the terminal of a command beside a job",
    response_model=None, responses=described.answers(actions.ExecTaken, 202), openapi_extra=described.body(actions.Terminal),
)  # fmt: skip
async def resize(request: Request, ref: Ref, id: Id) -> bodies.Json:
    """For a command that was started with `terminal`. Its foreground processes get SIGWINCH."""
    body = await bodies.read_json(request, "the size", frozenset(("rows", "columns", "term")))
    api = runtime.of(request)
    job = (await run_in_threadpool(find, api, ref)).job
    check_own(request, job)
    session = api.execs.of_user(id, job.id, runtime.user(request))
    if "terminal" not in session.order:
        raise ConflictError("this command has no terminal")
    session.order = Order(**{**session.order, "terminal": _terminal(body)})
    api.notifier.notify(job.id)
    return bodies.Json({"taken": True}, 202)


async def agent_output(request: Request) -> bodies.Json:
    """For the agent: store output and the result of a command. `taken` is false while the output buffer is full."""
    body, api, session = await _of_agent(request)
    number, chunks = body.get("n"), body.get("chunks")
    if not isinstance(number, int) or not isinstance(chunks, list) or not all(map(_is_chunk, chunks)):
        raise UsageError("n must be a number and chunks a list of [stream, text]")
    output = session.output
    if number <= output.messages:
        return bodies.Json({"taken": True})
    if chunks and not await _wait_until(api, session, lambda: not output.is_full or number <= output.messages):
        return bodies.Json({"taken": False})
    if number > output.messages:
        output.add(number, [(1 if stream == 1 else 2, data) for stream, data in chunks])
        if isinstance(body.get("over"), dict):
            session.result = {name: body["over"].get(name) for name in ("exit_code", "signal", "error", "with_attempt")}
    api.execs.notifier.notify(session.id)
    return bodies.Json({"taken": True})


def _is_chunk(told: Any) -> bool:
    return isinstance(told, list) and len(told) == 2 and isinstance(told[1], str)


async def agent_input(request: Request) -> bodies.Json:
    """For the agent: return the input from `offset` on; the response waits until there is some."""
    body, api, session = await _of_agent(request)
    offset = body.get("offset")
    if not isinstance(offset, int) or offset < 0:
        raise UsageError("offset must be a number")
    typed = session.input
    await _wait_until(api, session, lambda: bool(typed.after(offset)) or typed.is_closed or session.result is not None)
    data = typed.after(offset)[:_INPUT_MAX_BYTES]
    ended = session.result is not None or typed.ends_at(offset + len(data))
    api.execs.notifier.notify(session.id)
    return bodies.Json({"data": base64.b64encode(data).decode(), "ended": ended})


async def _of_agent(request: Request) -> tuple[dict[str, Any], runtime.Runtime, Session]:
    """Raises: UsageError, AuthenticationError, NotFoundError."""
    body = await bodies.decoded(request, "the output", lambda parts: bodies.parse_lenient(parts, "the output"))
    api = runtime.of(request)
    return body, api, api.execs.of_agent(str(body.get("id")), runtime.agent(request, body.get("key")))


async def _wait_until(api: runtime.Runtime, session: Session, free: Any) -> bool:
    """Wait until `free()` is true; False if that takes too long."""
    deadline_s = time.monotonic() + _HOLD_MAX_S
    with api.execs.notifier.subscribe(session.id) as signal:
        while not free():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or api.notifier.closing:
                return False
            signal.clear()
            await api.execs.notifier.wait(signal, min(left_s, _BEAT_S))
    return True


def _running(job: Job) -> Attempt:
    """Raises: ConflictError unless the job has an attempt whose ranks run."""
    if job.state.ended:
        raise ConflictError(f"{job.id} has ended ({job.state.value})", f"see how: tm show {job.id}")
    if job.attempt is None or job.state not in (State.RUNNING, State.STOPPING):
        raise ConflictError(f"{job.id} is {job.state.value}; commands run beside running ranks only", f"why: tm why {job.id}")
    return job.attempt


def _order(job: Job, attempt: Attempt, body: Mapping[str, Any]) -> tuple[int, Order]:
    """The node and the order for its agent. Raises: UsageError, ConflictError."""
    nodes, per_node = len(attempt.nodes), job.spec.resources.chosen(attempt.allocation.choice).ranks
    rank, role, node = _number(body, "rank"), bodies.text(body, "role"), _number(body, "node")
    if sum(one is not None for one in (rank, role, node)) > 1:
        raise UsageError("rank, role and node contradict each other", "give one of them")
    if rank is not None and rank >= nodes * per_node:
        raise UsageError(f"{job.id} has no rank {rank}", f"its last is {nodes * per_node - 1}")
    if node is not None and node >= nodes:
        raise UsageError(f"{job.id} has no node {node}", f"its last is {nodes - 1}")
    if role is not None and role not in job.spec.roles:
        known = ", ".join(job.spec.roles)
        raise UsageError(f"{job.id} has no role {role!r}", f"it has {known}" if known else "it has none")
    index = rank // per_node if rank is not None else node or 0
    if attempt.nodes[index].lost or attempt.nodes[index].phase is not NodePhase.RUNNING:
        raise ConflictError(f"node {index} of {job.id} has ended", f"see how: tm show {job.id}")
    order = Order(rank=rank, role=role, stdin=body.get("stdin") is True)
    if body.get("terminal") is not None:
        order["stdin"], order["terminal"] = True, _terminal(body["terminal"])
    if body.get("stacks") is True:
        order["stacks"], order["py_spy"], order["command"] = True, shutil.which("py-spy"), []
        return index, order
    command = body.get("command")
    if not isinstance(command, list) or not command or not all(isinstance(word, str) and "\0" not in word for word in command):
        raise UsageError("command must be a list of strings", 'such as ["nvidia-smi"], or ask for stacks')
    if len(command) > COMMAND_MAX:
        raise UsageError(f"command has {len(command):,} words; at most {COMMAND_MAX:,} are taken")
    order["command"] = command
    return index, order


def _terminal(told: Any) -> Terminal:
    """Raises: UsageError."""
    found = told if isinstance(told, dict) else {"term": None}
    rows, columns, term = _number(found, "rows") or 0, _number(found, "columns") or 0, found.get("term", "dumb")
    if max(rows, columns) > SIDE_MAX or not isinstance(term, str) or not _TERM.match(term):
        raise UsageError(f"a terminal has rows and columns up to {SIDE_MAX} and the name of its kind", "such as xterm-256color")
    return Terminal(rows=rows, columns=columns, term=term)


def _number(body: Mapping[str, Any], name: str) -> int | None:
    """Raises: UsageError."""
    found = body.get(name)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= NUMBER_MAX):
        raise UsageError(f"{name} must be a number from 0")
    return found


def _notice_loss(job: Job | None, session: Session) -> None:
    """End the session if its agent is gone: the command ended with the agent."""
    key, now_s = session.key, time.monotonic()
    attempt = job.attempt if job is not None else None
    gone = job is None or over(job, key)
    if not gone and attempt is not None and attempt.number == key.attempt:
        node = attempt.nodes[key.node_index]
        gone = node.lost or node.phase is NodePhase.ENDED
    if not gone:
        session.lost_s = None
    elif session.lost_s is None:
        session.lost_s = now_s
    elif now_s - session.lost_s >= _LOST_S:
        session.result = {"exit_code": None, "signal": None, "error": None, "with_attempt": True}
