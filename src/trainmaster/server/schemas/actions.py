"""OpenAPI models for cancelling, exec and removal. Documentation only, as in `models`."""

from typing import Annotated, Any

from pydantic import Field

from trainmaster.server.http.parameters import (
    COMMAND_MAX,
    GRACE_AGE_MAX_S,
    GRACE_MAX_S,
    INPUT_MAX,
    JOBS_MAX,
    KINDS_MAX,
    NAMES_MAX,
    NUMBER_MAX,
    REFS_MAX,
    REMOVED_MAX,
    SIDE_MAX,
    STATES_MAX,
    TIME_LIMIT_MAX_S,
    TIME_MAX_S,
    Key,
    LongText,
)
from trainmaster.server.schemas.described import Described


class AskedToCancel(Described):
    """The reason, and the grace period for the ranks to save and exit."""

    reason: LongText | None = None
    grace_s: float | None = Field(
        None, ge=0, le=GRACE_MAX_S, description="seconds from SIGTERM to SIGKILL; 0: kill at once; default: 30"
    )


class CancelMany(AskedToCancel):
    """Jobs by reference, or all unfinished jobs, filtered by project, experiment and state."""

    jobs: list[LongText] | None = Field(None, max_length=REFS_MAX, description="up to 10,000 references")
    all: bool = False
    project: LongText | None = None
    experiment: LongText | None = None
    states: list[LongText] | None = Field(None, max_length=STATES_MAX)


class CancelledMany(Described):
    """Which jobs are being cancelled, and which were rejected and why."""

    jobs: list[dict[str, Any]] = Field(description="{id, state}, or {ref, error: {code, message, hint, details}}")


class Terminal(Described):
    """The size and the kind of a terminal."""

    rows: int = Field(0, ge=0, le=SIDE_MAX)
    columns: int = Field(0, ge=0, le=SIDE_MAX)
    term: str = Field("dumb", max_length=64, pattern=r"^[A-Za-z0-9_.+-]+$", description="the variable TERM")


class Exec(Described):
    """A command to run beside the ranks, or `stacks`. `rank`, `role` or `node` say where; the default is rank 0."""

    command: list[str] | None = Field(None, max_length=COMMAND_MAX)
    rank: int | None = Field(None, ge=0, le=NUMBER_MAX)
    role: LongText | None = None
    node: int | None = Field(None, ge=0, le=NUMBER_MAX)
    stacks: bool = Field(False, description="dump the ranks' Python stacks with py-spy instead of running a command")
    stdin: bool = Field(False, description="whether input will be sent; otherwise it is empty")
    terminal: Terminal | None = Field(None, description="run it in a terminal of its own; includes `stdin`")


class ExecBegun(Described):
    """The session's id, and where the command runs."""

    id: str
    job: str
    attempt: int
    node: int
    host: str


class ExecOutput(Described):
    """Output of the command; `over` is set once it has ended and everything was read."""

    chunks: list[dict[str, Any]] = Field(description="stream (1 standard output, 2 standard error), data (base64)")
    cursor: int
    over: dict[str, Any] | None = Field(description="exit_code, signal, error (why it could not start), with_attempt")


class ExecInput(Described):
    """Input as base64; `end` closes the input."""

    data: str = Field("", max_length=INPUT_MAX)
    end: bool = False


class ExecTaken(Described):
    """Whether the input was accepted."""

    taken: bool


class Remove(Described):
    """Jobs by reference, and the kinds of bytes to remove; default: all kinds."""

    jobs: list[LongText] = Field(min_length=1, max_length=REMOVED_MAX, description="references")
    kinds: list[LongText] | None = Field(None, max_length=KINDS_MAX, description="work, logs, checkpoints, artifacts, metrics")
    dry_run: bool = False


class Removed(Described):
    """What is removed, or would be."""

    dry_run: bool
    jobs: list[dict[str, Any]] = Field(
        description="{id, ended_s, kinds, bytes: {kind: n}, kept_for, unread, going}, or {ref, error: {…}}; unread: more bytes"
    )


class Prune(Described):
    """Which ended jobs: older than `older_than_s`, except the newest `keep`."""

    older_than_s: float = Field(0, ge=0, le=GRACE_AGE_MAX_S)
    keep: int = Field(0, ge=0, le=NUMBER_MAX, description="keep this many of the newest jobs, whatever their age")
    kinds: list[LongText] | None = Field(None, max_length=KINDS_MAX, description="default: work and logs")
    project: LongText | None = None
    dry_run: bool = False


class Pruned(Removed):
    """What is removed, or would be, for at most 1,000 jobs."""

    more: bool


class Update(Described):
    """What to change; what is not named stays. `hold` holds the job, for this reason."""

    priority: int | None = Field(None, ge=-100, le=100)
    time_limit: LongText | Annotated[float, Field(gt=0, le=TIME_LIMIT_MAX_S)] | None = Field(
        None, description="as in a spec: 12h, or seconds; null: no limit", examples=["12h"]
    )
    workload_class: LongText | None = Field(None, alias="class", description="of a waiting job")
    tags: dict[str, LongText | None] | None = Field(
        None, description="by name; null removes one", examples=[{"owner": "team-a"}]
    )
    hold: LongText | None = Field(None, description="of a waiting job")


class Updated(Described):
    """The job as it will be, and its state when the request was accepted."""

    id: str
    state: str
    priority: int
    time_limit_s: float | None
    workload_class: str = Field(alias="class")
    tags: dict[str, str]


class After(Described):
    """Another job that must end first; `ok`: succeed, `failed`: fail. If it ends otherwise, this job is cancelled."""

    job: LongText
    when: Key = Field("ok", description="ok, any, failed")


class Start(Described):
    """Start conditions. Of the jobs with the same `array`, at most `at_most` are active at once."""

    after: list[After] | None = Field(None, max_length=NAMES_MAX)
    begin_s: float | None = Field(None, ge=0, le=TIME_MAX_S, description="not before this time, in seconds since the epoch")
    begin_in_s: float | None = Field(None, ge=0, le=TIME_MAX_S, description="not before so many seconds from now")
    array: Key | None = None
    at_most: int | None = Field(None, ge=0, le=JOBS_MAX, description="0: no limit")
