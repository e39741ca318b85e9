"""What `/openapi.json` says of bodies: documentation only; nothing is validated or serialized through these models."""

from typing import Any

from pydantic import BaseModel, Field

from trainmaster.server.http.parameters import JOBS_MAX, NUMBER_MAX, TEXT_MAX, YOUNG_MAX_S, Entries, Key, Words
from trainmaster.server.schemas import actions as ask
from trainmaster.server.schemas.cluster_schemas import NewRules
from trainmaster.server.schemas.record_schemas import ArtifactView, NewNote
from trainmaster.server.schemas.token_schemas import NewToken


class Fault(BaseModel):
    """What went wrong, which object, and what to do."""

    code: str = Field(examples=["not_found"])
    message: str
    hint: str
    details: list[dict[str, Any]]
    request_id: str


class Error(BaseModel):
    """Every answer with a status of 400 or more."""

    error: Fault


class Submit(BaseModel):
    """A job: `spec` is the mapping of a spec file (`tm schema`)."""

    spec: dict[str, Any] = Field(examples=[{"command": "python train.py", "name": "digits"}])
    origin: dict[str, Any] | None = Field(None, description="user, host, directory, python, variables, git_commit, git_dirty")
    code: dict[str, Any] | None = Field(None, description="digest, files, bytes, linked, in_place")
    data: Entries | None = Field(None, description="name, uri, digest, exact, files, bytes of the spec's data")
    hold: Words | None = Field(None, description="the reason for which the job starts out held")
    urgent: Words | None = Field(None, description="why it cannot wait for its turn")


class SubmitKeyed(Submit):
    """A job of a batch."""

    key: Key | None = None


class SubmitBatch(BaseModel):
    """Up to 10,000 jobs."""

    jobs: list[SubmitKeyed] = Field(min_length=1, max_length=JOBS_MAX)


class Submitted(BaseModel):
    """The job's id, and what whoever submits it should know: that the rules of the cluster never let it start."""

    id: str = Field(examples=["digits-14"])
    notes: list[str]


class SubmittedBatch(BaseModel):
    """The jobs' ids, in the order given."""

    ids: list[str]


class Ticket(BaseModel):
    """A short-lived key for a URL."""

    ticket: str
    expires_s: float


class StorageCollect(BaseModel):
    """How to collect."""

    grace_s: float = Field(86400.0, ge=0, le=YOUNG_MAX_S, description="what is younger, or of a job that ended since, stays")
    dry_run: bool = False
    older_checkpoints: bool = Field(False, description="give up `spare_bytes` as well")
    unknown_jobs: bool = Field(False, description="remove what lies there of jobs that this server does not know as well")


class StorageCollected(BaseModel):
    """What was removed, or would be."""

    dry_run: bool
    blobs: int
    bytes: int
    uploads: int = Field(description="unfinished uploads that were given up")
    young_bytes: int = Field(description="nothing refers to it, but it is younger than `grace_s`")
    by_kind: dict[str, int]
    given_up: int = Field(description="older checkpoints of jobs that are over; their bytes go as soon as no fork needs them")
    given_up_bytes: int


class Asked(BaseModel):
    """Why something is asked for."""

    reason: Words | None = None


class Taken(BaseModel):
    """The job and its state when the request was accepted."""

    id: str
    state: str


class NodeTaken(BaseModel):
    """The node and the state it is going to be in."""

    name: str
    state: str


class JobSummary(BaseModel):
    """A job as lists show it. Times are seconds since the epoch."""

    id: str
    seq: int
    name: str
    project: str
    experiment: str
    state: str = Field(examples=["running"])
    reason: str
    workload_class: str = Field(alias="class", examples=["training"])
    priority: int
    attempt: int = Field(description="number of the current or last attempt; 0: none yet")
    created_s: float
    started_s: float | None
    ended_s: float | None
    nodes: list[str]
    command: str
    step: int | None
    metrics: dict[str, float | None]
    restarts: dict[str, int]
    tags: dict[str, str]


class JobList(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[JobSummary]


class AttemptView(BaseModel):
    """One try of a job on one allocation."""

    number: int
    state: str = Field(description="starting running stopping succeeded failed cancelled restarted requeued")
    cause: str | None
    message: str | None
    exit_code: int | None
    signal: int | None
    rank: int | None
    placed_s: float
    started_s: float | None
    ended_s: float | None
    ran_s: float | None = Field(description="how long its ranks ran; null: it lives, or what they were seen to run counts")
    resumed_from: str | None
    resumed_from_step: int | None
    resumed_about: bool
    nodes: list[str]
    devices: list[list[int]]
    verdict: dict[str, Any] | None
    last_lines: list[str]


class CheckpointView(BaseModel):
    """One committed checkpoint."""

    id: str
    step: int | None
    bytes: int
    committed_s: float
    good: bool
    approximate: bool
    attempt: int


class TroubleView(BaseModel):
    """Something that a person should know about a job although it goes on."""

    topic: str
    text: str
    attempt: int | None
    node: int | None = Field(description="which node of the gang tells it; null: control")
    since_s: float


class JobDetail(JobSummary):
    """Everything about one job."""

    spec: dict[str, Any]
    member: str = Field(description="whose it is: charged, limited, and allowed to change it")
    origin: dict[str, Any] = Field(description="a note of the client")
    code: dict[str, Any]
    data: list[dict[str, Any]] = Field(description="name, uri, digest, exact, files, bytes")
    lineage: dict[str, Any] | None = Field(description="the job it was made from: relation, job, checkpoint, step, owner")
    children: list[str] = Field(description="the jobs made from it")
    urgent: dict[str, str] | None = Field(description="by, reason; null: it is not")
    failure: dict[str, Any] | None
    time_limit_s: float | None
    attempts: list[AttemptView]
    checkpoints: list[CheckpointView]
    artifacts: list[ArtifactView] = Field(description="the first 100 by path; the others: /jobs/{ref}/artifacts")
    artifacts_total: int
    metrics: dict[str, Any] = Field(description="name -> {step, value, time_s}")
    system: dict[str, Any] = Field(description="what its first node uses: name -> {step, value, time_s}")
    logged: dict[str, dict[str, str]] = Field(description="params and tags that the program logged through mlflow")
    runs: dict[str, str] = Field(description="where it can be looked at in the trackers it is mirrored into: tracker -> URL")
    work: list[str]
    troubles: list[TroubleView] = Field(description="what a person should know although the job goes on; the newest few")
    notes: list[str]


class Series(BaseModel):
    """Metric values as [step, value]."""

    series: dict[str, list[tuple[int, float | None]]]


class LogChunk(BaseModel):
    """A piece of one rank's output, or of a role's."""

    attempt: int
    rank: int = Field(description="-1 of a role")
    role: str | None
    text: str


class Logs(BaseModel):
    """What was new; give `cursor` as `after` the next time."""

    chunks: list[LogChunk]
    cursor: str
    state: str
    ended: bool = Field(description="the job is over and nothing more will come")


class EventList(BaseModel):
    """Events of a job in order."""

    events: list[dict[str, Any]] = Field(description="seq, now_s, type, attempt, text, data")


class Watched(BaseModel):
    """A job as it is now; `version` names exactly this."""

    version: int
    job: JobSummary


class NodeList(BaseModel):
    """The nodes, by name."""

    nodes: list[dict[str, Any]] = Field(
        description="name state state_reason pool host cpus memory_bytes devices counted virtual free jobs"
    )


class CodeTree(BaseModel):
    """The tree of a code copy: `{"entries": [...]}` sorted by path."""

    tree: dict[str, Any]


class CodeMissing(BaseModel):
    """Objects still to be sent; an empty list means that the tree is stored."""

    digest: str
    missing: list[str]


class Reproduce(BaseModel):
    """How a job is run once more. `origin`: what of it differs (user, host)."""

    origin: dict[str, Any] | None = None
    data: Entries | None = Field(None, description="the versions of its data as they are now")
    hold: Words | None = None
    urgent: Words | None = Field(None, description="why it cannot wait for its turn")


class Requeue(Reproduce):
    """`changes`: what is to be otherwise, as in a spec file; its `params` are ones that the job has."""

    changes: dict[str, Any] | None = Field(None, examples=[{"params": {"lr": 1e-4}}])
    new_params: dict[str, Any] | None = None


class Fork(Requeue):
    """Where to start, and code of its own if it is not to have its parent's; then `origin` is whole."""

    step: int | None = Field(None, ge=-NUMBER_MAX, le=NUMBER_MAX)
    checkpoint: Words | None = None
    code: dict[str, Any] | None = None


class MadeFrom(Submitted):
    """The new job, and what it is made from; of a reproduction also what is equal and what is not."""

    lineage: dict[str, Any] = Field(description="relation, job, checkpoint, step, owner")
    equal: list[str] | None = None
    unequal: list[str] | None = None


class PatchStored(BaseModel):
    """A patch is on the server."""

    digest: str
    bytes: int


class Provenance(BaseModel):
    """What a job was run from and in."""

    id: str
    spec: dict[str, Any]
    member: str = Field(description="whose it is")
    origin: dict[str, Any] = Field(description="user, host, directory, python, variables, git_*")
    code: dict[str, Any]
    data: list[dict[str, Any]] = Field(description="name, uri, digest, exact, files, bytes")
    lineage: dict[str, Any] | None = Field(description="relation, job, checkpoint, step, owner")
    children: list[str]
    attempts: list[dict[str, Any]] = Field(description="number, started_s, nodes: [{node, devices, environment}]")
    environments: dict[str, Any] = Field(description="SHA-256 -> python, packages, editable, torch, machine; null where lost")


class CodeStored(BaseModel):
    """How many objects were new."""

    stored: int


class Health(BaseModel):
    """Whether the server is up."""

    status: str
    version: str
    api: bool
    control: bool
    nodes: int
    troubles: list[str] = Field(description="topics of what is wrong with the server; `GET /troubles` says more")


def answers(model: type[BaseModel], status: int = 200) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that answers with `model`."""
    return {status: {"model": model}}


BODIES: tuple[type[BaseModel], ...] = (
    Submit, SubmitBatch, Asked, ask.AskedToCancel, ask.CancelMany, ask.Remove, ask.Prune, ask.Exec, ask.ExecInput, CodeTree,
    Requeue, Reproduce, Fork, NewNote, NewRules, NewToken, StorageCollect, Error,
)  # fmt: skip


def body(model: type[BaseModel], *headers: str) -> dict[str, Any]:
    """The `openapi_extra` of a route that reads its body itself; `components` defines the model."""
    text = {"type": "string", "minLength": 1, "maxLength": TEXT_MAX}
    described = [{"in": "header", "name": name, "required": False, "schema": text} for name in headers]
    reference = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}, "parameters": described}


def asking(question: type[BaseModel], answer: type[BaseModel]) -> dict[str, Any]:
    """How a route is declared that takes a request in (202) which control is going to carry out."""
    extra = body(question, "Idempotency-Key")
    return {"status_code": 202, "response_model": None, "responses": answers(answer, 202), "openapi_extra": extra}


def components() -> dict[str, Any]:
    """The schemas that `body` refers to."""
    found: dict[str, Any] = {}
    for model in BODIES:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        found.update(schema.pop("$defs", {}))
        found[model.__name__] = schema
    return found
