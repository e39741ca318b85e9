"""What `/openapi.json` says of cancelling and of commands beside a job: documentation only, as in `models`."""

from typing import Any

from pydantic import BaseModel, Field

from trainmaster.server.http.parameters import (
    COMMAND_MAX,
    GRACE_MAX_S,
    INPUT_MAX,
    KINDS_MAX,
    NUMBER_MAX,
    REFS_MAX,
    REMOVED_MAX,
    STATES_MAX,
    YOUNG_MAX_S,
    Words,
)


class AskedToCancel(BaseModel):
    """Why, and how long its ranks may take to save and end."""

    reason: Words | None = None
    grace_s: float | None = Field(
        None, ge=0, le=GRACE_MAX_S, description="seconds from TERM to KILL; 0: killed at once; the usual is 30"
    )


class CancelMany(AskedToCancel):
    """Jobs by name, or all that have not ended, narrowed down by project, experiment and state."""

    jobs: list[Words] | None = Field(None, max_length=REFS_MAX, description="up to 10,000 references")
    all: bool = False
    project: Words | None = None
    experiment: Words | None = None
    states: list[Words] | None = Field(None, max_length=STATES_MAX)


class CancelledMany(BaseModel):
    """What was taken, and what was refused and why."""

    jobs: list[dict[str, Any]] = Field(description="{id, state}, or {ref, error: {code, message, hint, details}}")


class Exec(BaseModel):
    """A command to run beside a job's ranks, or `stacks`; `rank`, `role` or `node` say where, else beside rank 0."""

    command: list[str] | None = Field(None, max_length=COMMAND_MAX)
    rank: int | None = Field(None, ge=0, le=NUMBER_MAX)
    role: Words | None = None
    node: int | None = Field(None, ge=0, le=NUMBER_MAX)
    stacks: bool = Field(False, description="dump the Python stacks of the ranks with py-spy, in place of a command")
    stdin: bool = Field(False, description="input will be given; otherwise it is empty")


class ExecBegun(BaseModel):
    """The command's id, and where it runs."""

    id: str
    job: str
    attempt: int
    node: int
    host: str


class ExecOutput(BaseModel):
    """What it printed; `over` once it has ended and everything was read."""

    chunks: list[dict[str, Any]] = Field(description="stream (1 standard output, 2 standard error), data (base64)")
    cursor: int
    over: dict[str, Any] | None = Field(description="exit_code, signal, error (why it could not start), with_attempt")


class ExecInput(BaseModel):
    """Input in base64; `end` closes it."""

    data: str = Field("", max_length=INPUT_MAX)
    end: bool = False


class ExecTaken(BaseModel):
    """Whether it was taken."""

    taken: bool


class Remove(BaseModel):
    """Jobs by name, and of which kinds the bytes go: by default all."""

    jobs: list[Words] = Field(min_length=1, max_length=REMOVED_MAX, description="references")
    kinds: list[Words] | None = Field(None, max_length=KINDS_MAX, description="work, logs, checkpoints, artifacts, metrics")
    dry_run: bool = False


class Removed(BaseModel):
    """What goes, or would."""

    dry_run: bool
    jobs: list[dict[str, Any]] = Field(description="{id, ended_s, kinds, bytes: {kind: n}, kept_for}, or {ref, error: {…}}")


class Prune(BaseModel):
    """Which jobs that are over: those that ended so long ago, but for the newest `keep`."""

    older_than_s: float = Field(0, ge=0, le=YOUNG_MAX_S)
    keep: int = Field(0, ge=0, le=NUMBER_MAX, description="so many of the newest jobs stay whatever their age")
    kinds: list[Words] | None = Field(None, max_length=KINDS_MAX, description="work and logs, unless others are named")
    project: Words | None = None
    dry_run: bool = False


class Pruned(Removed):
    """What goes, or would, of at most 1,000 jobs."""

    more: bool
