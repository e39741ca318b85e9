"""OpenAPI models for the record of a run: artifacts, comparisons, logbook. Documentation only, as in `models`."""

from typing import Any

from pydantic import Field

from trainmaster.server.http.parameters import LongText
from trainmaster.server.schemas.described import Described


class ArtifactView(Described):
    """One artifact."""

    path: str
    kind: str = Field(description="file metrics plot confusion_matrix model pickle")
    bytes: int
    digest: str = Field(description="SHA-256")
    attempt: int = Field(description="the attempt that stored it")


class ArtifactList(Described):
    """A page of a job's artifacts by path; `total` and `bytes` count all of them."""

    id: str
    artifacts: list[ArtifactView]
    total: int
    bytes: int
    removed: bool = Field(description="their content was removed to free space")


class Comparison(Described):
    """Differences between runs. Every list of `values`, `last`, `best` and curves is in the order of `jobs`."""

    jobs: list[dict[str, Any]] = Field(
        description="id name project experiment state created_s started_s ended_s ran_s attempts restarts"
    )
    differences: list[dict[str, Any]] = Field(
        description="section (spec params recorded logged tags start code files data python packages hardware machine "
        "variables submitted), field, values (null: a run has none; (null): a parameter is null), equal"
    )
    unknown: dict[str, list[str]] = Field(description="section -> runs of which it is not known")
    unknown_because: dict[str, dict[str, str]] = Field(description="section -> run -> why it is not known")
    not_compared: list[str] = Field(description="what a run could read and the comparison does not look at, with the reason")
    metrics: list[dict[str, Any]] = Field(
        description="name, mode, primary, equal (last, and best if there is a mode), winner (index), last, best: {step, "
        "value}, diverged: as of a job, null: finite"
    )
    metrics_equal: list[str] = Field(
        description="metrics whose last and best value are the same in all runs; values between are not compared"
    )
    metrics_last_equal: list[str] = Field(description="metrics without a mode whose last value is the same in all runs")
    series: dict[str, list[list[tuple[int, float | None]]]] = Field(description="metric -> one curve per run")
    patches: list[dict[str, Any]] | None = Field(None, description="from, to, path, text (a unified diff), note")


class NewNote(Described):
    """A note, and its subject: a job, an experiment or a project."""

    text: str = Field(max_length=64 * 1024, description="Markdown, up to 64 KiB; ids of jobs in it become links")
    job: LongText | None = None
    project: LongText | None = None
    experiment: LongText | None = None


class NoteTaken(Described):
    """The note's subject and author."""

    job: str | None
    project: str
    experiment: str | None
    by: str
    jobless: bool = Field(description="whether the experiment or the project has no job yet")


class Logbook(Described):
    """The newest entries, in order of time."""

    entries: list[dict[str, Any]] = Field(
        description="at_s, kind (note submitted start resume crash damage best end), text, project, experiment, job, by, links"
    )


class PointPage(Described):
    """Points of a metric as [step, value, time_s, attempt]; NaN and infinity are words."""

    id: str
    name: str
    points: list[tuple[int, float | None, float, int]]
    next: int | None = Field(description="send it as `after` for the next page; null: there are no more")
    stepless: bool = Field(description="whether there are points before the first step: ask for them with `stepless=true`")


class BestValue(Described):
    """The best value of a metric."""

    step: int | None = Field(
        description="of a metric without steps: its number in order of arrival, from 0; null: before the first step"
    )
    value: float | None


class Series(Described):
    """Metric values as [step, value]."""

    series: dict[str, list[tuple[int, float | None]]]
    best: dict[str, BestValue | None]
