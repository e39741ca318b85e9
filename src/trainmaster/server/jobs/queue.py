"""Routes of the queue as the scheduler sees it: the whole queue, why a job waits, and the plan for another job."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from trainmaster.model import redaction
from trainmaster.model.cluster import Cluster
from trainmaster.model.commands import SubmitJob
from trainmaster.model.job import Job, State
from trainmaster.ports.store import InboxRow, JobQuery, NewRow
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation.standing import ordered, terms
from trainmaster.scheduling.explanation.why import why
from trainmaster.scheduling.model.convert import accounts, allocation
from trainmaster.scheduling.model.convert import snapshot as world
from trainmaster.scheduling.model.jobs import Task
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.model.words import describe, given_up, summed
from trainmaster.scheduling.placement.strategies import beside
from trainmaster.scheduling.policies.known import chosen
from trainmaster.scheduling.prediction.speeds import told
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import NUMBER_MAX, Text
from trainmaster.server.http.unchanged import path_and_query
from trainmaster.server.jobs import forecasting, start_waits
from trainmaster.server.jobs.admission import delayed_by, present, remarks
from trainmaster.server.jobs.start_estimates import StartEstimates, estimates_of
from trainmaster.server.jobs.submit import ONE, row_of, ruled_out
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.workers import SUBMITS
from trainmaster.server.schemas import described, models
from trainmaster.server.schemas.queue_schemas import Planned, Queue
from trainmaster.server.views.lookup import FoundJob, find_each, page
from trainmaster.server.views.resources import View, pending_job
from trainmaster.spec.document import to_mapping

router = APIRouter(tags=["jobs"])

QUEUE_MAX = 20_000  # jobs considered
_LISTED_MAX = 1000
_LIVE = tuple(state for state in State if state.live)


def waiting_jobs(api: runtime.Runtime) -> list[Job]:
    """The queue, newest first."""
    return [found.job for found in page(api, JobQuery(states=(State.QUEUED,), limit=QUEUE_MAX))]


def snapshot(api: runtime.Runtime, extra: tuple[Job, ...] = (), rules: Cluster | None = None) -> Snapshot:
    """The scheduler's snapshot, with the jobs in `extra` queued too, and under `rules` if given."""
    return snapshot_of(api, (*waiting_jobs(api), *extra), rules)


def snapshot_of(api: runtime.Runtime, waiting: Sequence[Job], rules: Cluster | None = None) -> Snapshot:
    """The scheduler's snapshot with `waiting` as its queue."""
    events = api.services.events
    live = events.jobs(JobQuery(states=_LIVE, limit=QUEUE_MAX))
    seen = world(time.time(), events.nodes(), waiting, live, present(api) if rules is None else rules)
    return seen._replace(usage=accounts(events.balances()), ended=api.recorded.ended().pasts)


def position(seen: Snapshot, job_id: str) -> int | None:
    """The position of a job in the queue, from 1; None if it does not wait."""
    ids = [task.id for task in ordered(seen, chosen(seen.rules))]
    return 1 + ids.index(job_id) if job_id in ids else None


def why_view(api: runtime.Runtime, job: Job) -> View:
    """Why a queued job waits, what would let it start, and when it will; `kind` is `starting` if nothing prevents it."""
    seen = snapshot(api)
    if job.id not in seen.waiting:  # it was placed since
        return {**NOT_WAITING, "reason": job.reason}
    policy = chosen(seen.rules)
    place, mine = position(seen, job.id) or 1, seen.waiting[job.id]
    plan = cycle(seen, policy)
    starting = job.id in {one.job for one in plan.placements} | {one.job for one in plan.handovers}
    refused = None if starting else plan.reason(mine, seen.now_s)
    changes, once = forecasting.needs(seen, policy, job.id)
    if refused is None:
        reason = f"{job.id} is number {place} in the queue and starts with the next decision"
    elif refused.cause is Reason.IMPOSSIBLE and changes:  # the nodes are large enough for it
        reason = _ruled_out(mine, place, refused)
    else:
        reason = why(mine, seen, place, refused, job.reason)
    reason += delayed_by(api, seen, job.id)
    known = forecasting.measured(seen, mine.kind)
    if known:
        reason += f"; measured: {told(known)}"
    parts = terms(seen, policy, job.id)
    if parts is not None:
        reason += f" (it counts {summed(parts)})"
    past = forecasting.history(api)
    waits = forecasting.estimates(seen, policy, past, (job.id,)).get(job.id)
    return {
        "kind": "starting" if refused is None else refused.cause,
        "reason": reason,
        "position": place,
        "ahead": place - 1,
        "needs": changes,
        "text": f"{reason}. {once}".strip() if once else reason,
        "eta_s": forecasting.waits_view(waits, past),
        "terms": parts,
        "speeds": {gpu: one._asdict() for gpu, one in known.items()} or None,
    }


NOT_WAITING: View = {
    "kind": None, "position": None, "ahead": None, "needs": [], "eta_s": None, "terms": None, "speeds": None,
}  # fmt: skip


@dataclass(slots=True)
class Page:
    """Which part of the queue."""

    limit: Annotated[int, Query(ge=1, le=_LISTED_MAX)] = 50
    after: Annotated[int, Query(ge=0, le=NUMBER_MAX, description="only those behind this position: the next page")] = 0
    project: Text = None


@router.get("/queue", summary="The queue", response_model=None, responses=described.answers(Queue))
def show_queue(request: Request, query: Annotated[Page, Depends()]) -> bodies.Json:
    """The waiting jobs in order, why each waits, and when it will start in seconds from `now_s`.

    Held jobs are not in the queue: `held` lists them, newest first, at most one page. In a long queue, start estimates may be a
    few seconds old: a job that joined since then has none yet.
    """
    api, estimates = runtime.of(request), estimates_of(request)
    waiting, asked = waiting_jobs(api), path_and_query(request)
    now_s, total, rows = _listed(api, estimates, snapshot_of(api, waiting), query, asked) if waiting else (time.time(), 0, [])
    kept = page(api, JobQuery(states=(State.HELD,), project=query.project, limit=query.limit))
    held = [
        {"id": one.job.id, "project": one.job.spec.project, "member": one.job.owner, "reason": one.reason} for one in kept
    ]
    return bodies.Json({"jobs": rows, "total": total, "held": held, "now_s": now_s})


def _listed(
    api: runtime.Runtime, estimates: StartEstimates, seen: Snapshot, query: Page, asked: bytes
) -> tuple[float, int, list[View]]:
    """The time of the snapshot, how many jobs of the project wait, and one page of them."""
    policy = chosen(seen.rules)
    queue = enumerate(ordered(seen, policy), 1)
    mine = [(place, task) for place, task in queue if query.project in (None, task.kind.project)]
    shown = [(place, task) for place, task in mine if place > query.after][: query.limit]
    named = zip(shown, find_each(api, [task.id for _, task in shown]), strict=True)
    listed = [(place, task, one) for (place, task), one in named if isinstance(one, FoundJob)]
    etas = estimates.views(api, asked, seen, policy, {task.id for _, task in shown})
    rows = [
        {
            "id": task.id,
            "position": place,
            "project": task.kind.project,
            "member": task.kind.member,
            "class": task.kind.work,
            "priority": one.job.spec.priority,
            "asks": " or ".join(map(describe, task.kind.asks)),
            "queued_s": task.since_s,
            "reason": one.reason,
            "eta_s": etas[task.id],
        }
        for place, task, one in listed
    ]
    return seen.now_s, len(mine), rows


@router.post(
    "/plan",
    summary="Plan a job",
    response_model=None,
    responses=described.answers(Planned),
    openapi_extra=described.body(models.Submit),
)
async def plan(request: Request) -> bodies.Json:
    """The scheduler's decision if the job were submitted now. Nothing is submitted, and no code is needed.

    `placement` is where it would start at once. Otherwise `reason` says why it would wait, at which `position`, and `eta_s`
    for how long. `delays` lists jobs in the queue that would start later because of it.
    """
    body = await bodies.read_json(request, "the job", ONE)
    api = runtime.of(request)
    row = await SUBMITS.run(row_of, api, body, "plan", runtime.user(request))
    return bodies.Json(await asyncio.to_thread(_foreseen, api, row))


def _foreseen(api: runtime.Runtime, row: NewRow) -> View:
    now_s, command = time.time(), row.command
    assert isinstance(command, SubmitJob)
    job = pending_job(InboxRow(2**62, row.key, "it", now_s, command))  # `it`, as sentences call it
    if start_waits.has_turn(api, job):
        job = replace(job, state=State.QUEUED, start=None, blocked=False)
    if job.state is State.HELD:
        held = f"it would be held: {start_waits.outlook(api, job) if job.blocked and not job.hold else job.reason}"
        nothing: View = dict.fromkeys(("placement", "position", "eta_s", "cost"))
        found: View = {**nothing, "reason": held, "delays": [], "notes": remarks(api, job.spec)}
    else:
        seen = snapshot(api, (job,))
        policy = chosen(seen.rules)
        decided = cycle(seen, policy)
        grant = next((placed.grant for placed in decided.placements if placed.job == job.id), None)
        nodes = tuple(sorted(api.services.events.nodes(), key=lambda node: node.name))
        shares = None if grant is None else allocation(grant, nodes).shares
        place, mine, known = position(seen, job.id), seen.waiting[job.id], forecasting.history(api)
        reason = None
        if grant is None:
            refused = _refused(decided, mine, seen.now_s)
            ruled = refused.cause is Reason.IMPOSSIBLE and ruled_out(api, row) is not None
            reason = _ruled_out(mine, place or 1, refused) if ruled else why(mine, seen, place or 1, refused)
        waits = None if grant is not None else forecasting.estimates(seen, policy, known, (job.id,)).get(job.id)
        found = {
            "placement": None if shares is None else [
                {"node": share.node, "cpus": share.cpus, "memory_bytes": share.memory_bytes, "devices": list(share.devices),
                 "gpus": share.gpus}
                for share in shares
            ],
            "reason": reason,
            "position": place,
            "eta_s": forecasting.waits_view(waits, known),
            "cost": forecasting.cost(seen, policy, known.lifetimes, mine),
            "delays": forecasting.delays(seen, policy, known.lifetimes, mine),
            "notes": [*remarks(api, job.spec), *_lonely(seen, mine)],
        }  # fmt: skip
    code = {"files": job.code.files, "bytes": job.code.bytes}
    return {**found, "spec": to_mapping(redaction.shown(job.spec)), "code": code}


def _ruled_out(mine: Task, place: int, refused: Refusal) -> str:
    """The reason of a job that can start only if the configuration changes."""
    return f"{mine.id} is number {place} in the queue, and cannot start under these rules: it {refused.text}"


def _lonely(seen: Snapshot, mine: Task) -> list[str]:
    """A note if no job matches `placement.with`."""
    group = mine.kind.wish.group
    others = (*(one for one in seen.waiting.values() if one is not mine), *(run.task for run in seen.running.values()))
    if group is None or any(beside(group, one) for one in others):
        return []
    return [f"placement.with: no job that waits or runs is called {group!r} or says the same: it means nothing so far"]


def _refused(decided: Plan, mine: Task, now_s: float) -> Refusal:
    """Why it would not start at once. For a handover, victims have to end first."""
    handed = next((one for one in decided.handovers if one.job == mine.id), None)
    return decided.reason(mine, now_s) if handed is None else Refusal(Reason.HANDOVER, given_up(handed.victims, handed.shrunk))
