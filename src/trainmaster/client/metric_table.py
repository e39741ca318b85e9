"""The metrics of jobs as one table, for pandas, polars or a file."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from trainmaster.client.api import Client
from trainmaster.wire import rest

COLUMNS = ("job", "metric", "step", "value", "time_s", "attempt")


def metrics_table(
    *jobs: str, metrics: Sequence[str] = (), system: bool = False, client: Client | None = None
) -> dict[str, list[Any]]:
    """All points of the metrics of jobs, as columns for `pandas.DataFrame` or `polars.DataFrame`.

    `jobs`: ids, names or `@last`, as in every command. One row per point, not thinned: `job`, `metric`, `step` (None if it
    came before the first step), `value` (which may be NaN or infinite), `time_s` (seconds since the epoch) and `attempt`.
    `metrics`: only these. `system`: also those about the machine.
    Raises: NotFoundError (no such job), UnreachableError (no server runs; a reader starts none).
    """
    if client is None:
        with Client(start=False) as own:
            return metrics_table(*jobs, metrics=metrics, system=system, client=own)
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for found in {found["id"]: found for found in map(client.job, jobs)}.values():  # a job may be named twice
        machine = [f"system/{name}" for name in found["system"]]
        has = [*found["metrics"], *found.get("lost_metrics", ()), *(machine if system or metrics else ())]
        for name in [one for one in has if not metrics or one in metrics]:
            _add(columns, client, found["id"], name)
    return columns


def _add(columns: dict[str, list[Any]], client: Client, job: str, name: str) -> None:
    """Append the points of one metric, those before its first step first."""
    first = client.points(job, name)
    if first.get("stepless"):  # a server of an older version does not say
        for page in _pages(client, job, name, client.points(job, name, stepless=True), True):
            _append(columns, job, name, [(None, *measured) for _, *measured in page])
    for page in _pages(client, job, name, first, False):
        _append(columns, job, name, page)


def _pages(client: Client, job: str, name: str, page: dict[str, Any], stepless: bool) -> Iterator[list[Any]]:
    """The points of a page and of those after it."""
    yield page["points"]
    while page["next"] is not None:
        page = client.points(job, name, page["next"], stepless)
        yield page["points"]


def _append(columns: dict[str, list[Any]], job: str, name: str, points: Sequence[Sequence[Any]]) -> None:
    steps, values, times_s, attempts = zip(*points, strict=True) if points else ((), (), (), ())
    columns["job"] += [job] * len(points)
    columns["metric"] += [name] * len(points)
    columns["step"] += steps
    columns["value"] += [math.nan if value is None else rest.number_of(value) for value in values]
    columns["time_s"] += times_s
    columns["attempt"] += attempts
