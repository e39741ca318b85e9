"""OpenAPI models of request and response bodies. Documentation only: nothing is validated or serialized through them."""

from typing import Any

from pydantic import Field

from trainmaster.server.http.parameters import GRACE_AGE_MAX_S, JOBS_MAX, NUMBER_MAX, Entries, Key, LongText
from trainmaster.server.schemas import actions as ask
from trainmaster.server.schemas.described import Described
from trainmaster.server.schemas.record_schemas import ArtifactView


class Fault(Described):
    """An error: what went wrong, with which object, and what to do."""

    code: str = Field(examples=["not_found"])
    message: str
    hint: str
    details: list[dict[str, Any]]
    request_id: str


class Error(Described):
    """The body of every response with a status of 400 or more."""

    error: Fault


class Submit(Described):
    """A job: `spec` is the mapping of a spec file (`tm schema`)."""

    spec: dict[str, Any] = Field(examples=[{"command": "python train.py", "name": "digits"}])
    origin: dict[str, Any] | None = Field(None, description="user, host, directory, python, variables, git_commit, git_dirty")
    code: dict[str, Any] | None = Field(None, description="digest, files, bytes, linked, in_place")
    data: Entries | None = Field(None, description="name, uri, digest, exact, files, bytes of the spec's data")
    hold: LongText | None = Field(None, description="submit the job held, for this reason")
    start: ask.Start | None = Field(None, description="what the job waits for before it joins the queue")
    urgent: LongText | None = Field(None, description="submit the job as urgent, for this reason")


class SubmitKeyed(Submit):
    """A job of a batch."""

    key: Key | None = None


class SubmitBatch(Described):
    """Up to 10,000 jobs."""

    jobs: list[SubmitKeyed] = Field(min_length=1, max_length=JOBS_MAX)


class Submitted(Described):
    """The job's id, and notes for its submitter, for example that the job cannot start under the present configuration."""

    id: str = Field(examples=["digits-14"])
    notes: list[str]


class SubmittedBatch(Described):
    """The jobs' ids, in the order given."""

    ids: list[str]


class Ticket(Described):
    """A short-lived key for a URL."""

    ticket: str
    expires_s: float


class StorageCollect(Described):
    """Options of a garbage collection."""

    grace_s: float = Field(86400.0, ge=0, le=GRACE_AGE_MAX_S, description="keep what is younger, or of a job that ended since")
    dry_run: bool = False
    older_checkpoints: bool = Field(False, description="also remove `spare_bytes`")
    unknown_jobs: bool = Field(
        False, description="also remove blobs of jobs not on record, or perhaps stored after the backup that was restored"
    )


class StorageCollected(Described):
    """What was removed, or would be."""

    dry_run: bool
    blobs: int
    bytes: int
    uploads: int = Field(description="unfinished uploads that were removed")
    young_bytes: int = Field(description="unreferenced, but younger than `grace_s`")
    by_kind: dict[str, int]
    unread_trees: int = Field(description="lists of the files of code copies that are damaged or unreadable: all code was kept")
    given_up: int = Field(description="discarded older checkpoints of ended jobs; removed once no fork needs them")
    given_up_bytes: int
    held_jobs: int = Field(description="jobs that keep all checkpoints: the last good one is not whole in the store")


class Asked(Described):
    """A reason."""

    reason: LongText | None = None


class Taken(Described):
    """The job, and its state when the request was accepted."""

    id: str
    state: str


class NodeTaken(Described):
    """The node and its new state."""

    name: str
    state: str


class JobSummary(Described):
    """A job as lists show it. Times are seconds since the epoch."""

    id: str
    seq: int
    name: str
    member: str = Field(description="the owner: usage is charged to it, its quota applies, it may change the job")
    project: str
    experiment: str
    state: str = Field(examples=["running"])
    reason: str
    workload_class: str = Field(alias="class", examples=["training"])
    priority: int
    attempt: int = Field(description="number of the current or last attempt; 0 if there was none")
    created_s: float
    started_s: float | None
    ended_s: float | None
    nodes: list[str]
    command: str
    step: int | None
    metrics: dict[str, float | str] = Field(description="the last values; words: NaN, Infinity, -Infinity, see `diverged`")
    diverged: dict[str, dict[str, Any]] = Field(
        description="metrics whose last value is not finite, the first few: value (nan inf -inf), since_step, last_step, "
        "last_value: the last finite one (null: long ago, or none)"
    )
    primary: str | None = Field(description="the metric that the spec calls the primary one")
    stalled: str | None = Field(description="what is told of a running job that may hang; null: nothing")
    restarts: dict[str, int]
    tags: dict[str, str]


class JobList(Described):
    """A page of jobs, newest first."""

    jobs: list[JobSummary]


class AttemptView(Described):
    """One attempt of a job on one allocation."""

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
    ran_s: float | None = Field(description="how long its ranks ran; null: still running, or not recorded")
    resumed_from: str | None = Field(description="the checkpoint that it was given; whether the program used it: the evidence")
    resumed_from_step: int | None
    resumed_about: bool = Field(description="that step is approximate, or with `resumed_saved` that of another attempt")
    resumed_saved: dict[str, Any] | None = Field(
        description="attempt, after_s: the checkpoint has no known step; it was saved that long after that attempt started"
    )
    resumed_evidence: str | None = Field(
        description="seen: the program went on; against: it began again; unknown; null: nothing was given, and nothing is seen"
    )
    resumed_because: list[str] = Field(description="what was seen of it, as clauses; more while it runs")
    nodes: list[str]
    devices: list[list[int]]
    choice: int | None = Field(description="index of what it got in `spec.resources.choices`; null: it has no choice of GPUs")
    verdict: dict[str, Any] | None
    last_lines: list[str]


class CheckpointView(Described):
    """One committed checkpoint."""

    id: str
    name: str = Field(description="its path in the work directory; empty for one of the SDK")
    step: int | None
    bytes: int
    committed_s: float
    good: bool
    approximate: bool
    at_least: int | None = Field(description="if `step` is null: the step that its attempt was given")
    after_s: float | None = Field(description="if `step` is null: when it was saved, since the ranks of its attempt started")
    attempt: int


class TroubleView(Described):
    """A warning about a job that goes on."""

    topic: str
    text: str
    attempt: int | None
    node: int | None = Field(description="the node of the gang that reported it; null: control")
    since_s: float


class JobDetail(JobSummary):
    """Everything about one job."""

    spec: dict[str, Any]
    origin: dict[str, Any] = Field(description="where the client submitted it from")
    code: dict[str, Any]
    data: list[dict[str, Any]] = Field(description="name, uri, digest, exact, files, bytes")
    lineage: dict[str, Any] | None = Field(
        description="the job it was made from: relation, job, checkpoint, step, approximate, owner"
    )
    children: list[str] = Field(description="the jobs made from it")
    start: dict[str, Any] | None = Field(
        description="what it waits for: after (job, when), begin_s, array, at_most, relative, max_running"
    )
    urgent: dict[str, str] | None = Field(description="by, reason; null: not urgent")
    failure: dict[str, Any] | None
    time_limit_s: float | None
    attempts: list[AttemptView]
    checkpoints: list[CheckpointView]
    artifacts: list[ArtifactView] = Field(description="the first 100 by path; for more: /jobs/{ref}/artifacts")
    artifacts_total: int
    metrics: dict[str, Any] = Field(description="name -> {step, value, time_s}")
    lost_work: list[list[int]] = Field(description="[attempt, step]: earlier work from that step on is lost")
    own_counts: list[str] = Field(description="first parts of metric names whose steps are not the training's: no lost work")
    lost_metrics: list[str] = Field(description="metrics that only lost work has measured: they have points, and no value here")
    system: dict[str, Any] = Field(
        description="resource use of its first node: name -> {step, value, time_s}, with mean and highest once it has ended"
    )
    unread_params: list[str] = Field(description="parameters that are only recorded: its program does not read them")
    logged: dict[str, dict[str, str]] = Field(description="params and tags that the program logged through mlflow")
    runs: dict[str, str] = Field(description="its pages in the trackers it is mirrored to: tracker -> URL")
    work: list[str]
    removed: list[str] = Field(description="kinds of its data that a person or the retention had removed, as in /jobs/remove")
    troubles: list[TroubleView] = Field(description="warnings about the job, the newest few")
    notes: list[str]


class SpecOf(Described):
    """The spec of a job, as in a spec file, and the directory that it was submitted from."""

    id: str
    spec: dict[str, Any]
    hidden: list[str] = Field(description="fields that hold `(hidden)` in place of a credential", examples=[["params.api_key"]])
    directory: str
    in_place: bool


class LogChunk(Described):
    """A piece of output of a rank or a role."""

    attempt: int
    rank: int = Field(description="-1 for a role")
    role: str | None
    text: str
    times: list[tuple[int, float | None]] | None = Field(
        default=None,
        description="if asked for: when the lines of `text` were written, as [number of lines, time] in order; null: not known",
        examples=[[[3, 1795183200.25], [1, 1795183204.5]]],
    )


class Logs(Described):
    """New output; send `cursor` as `after` in the next request."""

    chunks: list[LogChunk]
    cursor: str
    state: str
    ended: bool = Field(description="the job has ended and there is no more output")


class EventList(Described):
    """Events of a job in order."""

    events: list[dict[str, Any]] = Field(description="seq, now_s, type, attempt, text, data")


class Watched(Described):
    """The present state of a job; `version` identifies it."""

    version: int
    job: JobSummary


class NodeList(Described):
    """The nodes, by name."""

    nodes: list[dict[str, Any]] = Field(
        description="name state state_reason pool host cpus memory_bytes devices counted virtual free jobs labels"
    )


class Reproduce(Described):
    """Options for running a job again. `origin`: the fields that differ (user, host)."""

    origin: dict[str, Any] | None = None
    data: Entries | None = Field(None, description="the present versions of its data")
    hold: LongText | None = None
    urgent: LongText | None = Field(None, description="submit the job as urgent, for this reason")


class Requeue(Reproduce):
    """`changes`: fields to change, as in a spec file. Its `params` must exist in the job or in braces in its command; others go
    into `new_params`. With `code` it has code of its own instead of its parent's; then `origin` must be complete.
    """

    changes: dict[str, Any] | None = Field(None, examples=[{"params": {"lr": 1e-4}}])
    new_params: dict[str, Any] | None = None
    code: dict[str, Any] | None = None


class Fork(Requeue):
    """The starting point; default: the newest checkpoint."""

    step: int | None = Field(None, ge=-NUMBER_MAX, le=NUMBER_MAX)
    checkpoint: LongText | None = None


class MadeFrom(Submitted):
    """The new job and its lineage; for a reproduction also what is equal and what is not."""

    lineage: dict[str, Any] = Field(description="relation, job, checkpoint, step, approximate, owner")
    equal: list[str] | None = None
    unequal: list[str] | None = None


class PatchStored(Described):
    """The stored patch."""

    digest: str
    bytes: int


class Provenance(Described):
    """The code, data and environment a job ran with."""

    id: str
    spec: dict[str, Any]
    member: str = Field(description="the owner")
    origin: dict[str, Any] = Field(description="user, host, directory, python, variables, git_*")
    code: dict[str, Any]
    data: list[dict[str, Any]] = Field(description="name, uri, digest, exact, files, bytes")
    lineage: dict[str, Any] | None = Field(description="relation, job, checkpoint, step, approximate, owner")
    children: list[str]
    attempts: list[dict[str, Any]] = Field(description="number, started_s, nodes: [{node, devices, environment}]")
    environments: dict[str, Any] = Field(
        description="SHA-256 -> python, packages, editable, built_from, torch, machine; null if it is in `unshown`"
    )
    unshown: dict[str, str] = Field(description="SHA-256 -> why there is no record: lost, damaged, or it cannot be read now")


class Health(Described):
    """Whether the server is up."""

    status: str
    version: str
    api: bool
    control: bool
    nodes: int
    troubles: list[str] = Field(description="topics of the server's problems; see `GET /troubles`")
