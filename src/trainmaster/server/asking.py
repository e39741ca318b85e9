"""What `/openapi.json` says of cancelling and of commands beside a job: documentation only, as in `schemas`."""

from typing import Any

from pydantic import BaseModel, Field


class AskedToCancel(BaseModel):
    """Why, and how long its ranks may take to save and end."""

    reason: str | None = None
    grace_s: float | None = Field(None, description="seconds from TERM to KILL; 0: killed at once; the usual is 30")


class CancelMany(AskedToCancel):
    """Jobs by name, or all that have not ended, narrowed down by project, experiment and state."""

    jobs: list[str] | None = Field(None, description="up to 100,000 references")
    all: bool = False
    project: str | None = None
    experiment: str | None = None
    states: list[str] | None = None


class CancelledMany(BaseModel):
    """What was taken, and what was refused and why."""

    jobs: list[dict[str, Any]] = Field(description="{id, state}, or {ref, error: {code, message, hint, details}}")


class Exec(BaseModel):
    """A command to run beside a job's ranks, or `stacks`; `rank`, `role` or `node` say where, else beside rank 0."""

    command: list[str] | None = None
    rank: int | None = None
    role: str | None = None
    node: int | None = None
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

    data: str = ""
    end: bool = False


class ExecTaken(BaseModel):
    """Whether it was taken."""

    taken: bool
