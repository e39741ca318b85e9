"""`GET /compare`: differences between runs, their metrics, and their curves, thinned by the database."""

import difflib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import StringConstraints

from trainmaster.blobs.code import object_name, tree_name
from trainmaster.errors import (
    DamagedError,
    NotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
    TrainmasterError,
    UsageError,
)
from trainmaster.model.job import Job
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import NAMES_MAX, TEXT_MAX, Metric
from trainmaster.server.record.command_reading import BY_ITSELF
from trainmaster.server.record.curves import Curves
from trainmaster.server.record.data_seen import doubted
from trainmaster.server.record.differences import NO_COPY, Compared, Run, compare
from trainmaster.server.record.divergence import compared
from trainmaster.server.record.not_compared import not_compared
from trainmaster.server.record.provenance import recorded
from trainmaster.server.record.ranking import MetricRanking, point_view, rank_metrics, unrecorded
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.services import Services
from trainmaster.server.runtime.unsent_points import arriving
from trainmaster.server.runtime.workers import STORES
from trainmaster.server.schemas import described, record_schemas
from trainmaster.server.views.lookup import find_each
from trainmaster.server.views.resources import all_attempts
from trainmaster.wire.code import Tree
from trainmaster.wire.environment import EnvironmentRecord
from trainmaster.wire.names import SYSTEM

_Name = Annotated[str, StringConstraints(max_length=TEXT_MAX)]
_METRICS = "these, with curves; default: all, and the primary's curve"
router = APIRouter(tags=["compare"])

RUNS_MAX = 100
_POINTS, _POINTS_MAX = 400, 5000
_PATCHED_MAX = 200  # files with a patch
_PATCHED_MAX_BYTES = 256 * 1024  # larger files are listed without a patch
_STEPS_MAX = 5_000_000  # per pair of files, about a second; crafted files would take hours
_ALL_STEPS_MAX = 30_000_000  # per request


@dataclass(slots=True)
class CompareQuery:
    """Which runs to compare, and how much to return."""

    job: Annotated[list[_Name], Query(max_length=NAMES_MAX, description="two or more references")]
    metric: Annotated[list[Metric] | None, Query(max_length=NAMES_MAX, description=_METRICS)] = None
    points: Annotated[int, Query(ge=2, le=_POINTS_MAX, description="maximum number of points per curve")] = _POINTS
    all: Annotated[bool, Query(description="include equal fields")] = False
    patch: Annotated[bool, Query(description="include code differences line by line, each run against the first")] = False


@router.get("/compare", summary="Compare runs", response_model=None, responses=described.answers(record_schemas.Comparison))
@STORES.runs
def compare_runs(request: Request, query: Annotated[CompareQuery, Depends()]) -> bodies.Json:
    """Only differences, unless `all`. A section that some run did not record is listed under `unknown`, never as equal."""
    services = runtime.of(request).services
    jobs = _jobs(runtime.of(request), query.job)
    runs = _runs(services, jobs)
    records = {run.job.id: run.environment for run in runs if not isinstance(run.environment, str)}
    read = Curves(services.events, services.metrics)
    late = {job.id: arriving(services.home, job) for job in jobs}  # before what has arrived is read
    last = read.last(jobs)
    names = _metrics(last, query.metric)
    replaced_s = services.metrics.replaced_s()
    told = {job.id: [*unrecorded(job, replaced_s), *read.elsewhere(job), *late[job.id]] for job in jobs}
    gone = {id: what for id, what in told.items() if what}
    stand, ids = rank_metrics(read, jobs, names, last, gone), [job.id for job in jobs]
    missing = [f"{one} ({id})" for id, what in gone.items() for one in what]
    drawn = query.metric or [one.name for one in stand if one.primary]
    curves = {name: [[list(point) for point in read.series(job, name, query.points)] for job in jobs] for name in drawn}
    answer = {
        "jobs": [_run_view(job) for job in jobs],
        **_fields(compare(runs, query.all)),
        "not_compared": [*not_compared(jobs, records, _data_doubts(services, jobs)), *missing, BY_ITSELF],
        "metrics": [
            {**_ranking_view(one), "diverged": compared(services.metrics, ids, last, one.name)}
            for one in stand
            if query.all or query.metric or not one.equal
        ],
        "metrics_equal": [one.name for one in stand if one.equal and one.mode is not None],
        "metrics_last_equal": [one.name for one in stand if one.equal and one.mode is None],
        "series": curves,
    }
    if query.patch:
        effort = _StepBudget()
        answer["patches"] = [patch for run in runs[1:] for patch in _patches(services, (runs[0], run), effort)]
    return bodies.Json(answer)


def _jobs(api: runtime.Runtime, refs: Sequence[str]) -> list[Job]:
    """Raises: UsageError for fewer than two jobs or too many, NotFoundError, ConflictError."""
    if len(refs) > RUNS_MAX:
        raise UsageError(f"{len(refs)} runs are too many to compare at once", f"at most {RUNS_MAX}")
    jobs: dict[str, Job] = {}
    for found in find_each(api, refs):
        if isinstance(found, TrainmasterError):
            raise found
        jobs[found.job.id] = found.job
    if len(jobs) < 2:
        same = f"all of them are {next(iter(jobs))}" if len(refs) > 1 else "one run cannot be compared with itself"
        raise UsageError(f"nothing to compare: {same}", "name two runs or more: tm compare A B; `tm ps` lists them")
    return list(jobs.values())


def _runs(services: Services, jobs: Sequence[Job]) -> list[Run]:
    """The jobs with their stored records. A record or code copy that several jobs share is read once."""
    digests = [job.code.digest for job in jobs]
    same = None not in digests and len(set(digests)) == 1
    trees: dict[str | None, Tree | str] = {}
    records: dict[str | None, EnvironmentRecord | str] = {}
    runs = []
    for job in jobs:
        if job.code.digest not in trees:
            trees[job.code.digest] = Tree(entries=[]) if same else _tree(services, job.code.digest)
        names = [node.environment for node in job.attempt.nodes] if job.attempt is not None else []
        for name in names:
            if name not in records:
                records[name] = recorded(services, name)
        runs.append(Run(job, tuple(records[name] for name in names), trees[job.code.digest]))
    return runs


def _data_doubts(services: Services, jobs: Sequence[Job]) -> dict[str, dict[str, str]]:
    return {job.id: doubted(job, all_attempts(job, services.events.attempts(job.id))) for job in jobs if job.data}


def _tree(services: Services, digest: str | None) -> Tree | str:
    """The entries of a code copy, or why there are none."""
    if digest is None:
        return NO_COPY
    try:
        with services.blobs.open(tree_name(digest)) as file:
            tree: Tree = json.loads(file.read())
    except NotFoundError:
        return "the list of them is lost"
    except (DamagedError, ValueError):
        return "the list of them is damaged"
    except OSError as error:
        return f"the list of them cannot be read now ({error.strerror or error})"
    except (StoreUnavailableError, StoreRefusedError) as error:
        return f"the list of them cannot be read now ({error.message})"
    return tree


def _metrics(last: Mapping[str, Mapping[str, Any]], asked: Sequence[str] | None) -> list[str]:
    """The metrics to return. Raises: NotFoundError for one that no run has, with the most similar name."""
    known = sorted({name for mine in last.values() for name in mine})
    if not asked:
        return [name for name in known if not name.startswith(SYSTEM)]
    for name in asked:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            others = f"known: {', '.join(known[:20])}" if known else "none of them has reported any"
            raise NotFoundError(f"no run here has a metric {name!r}", f"did you mean {near[0]}?" if near else others)
    return list(dict.fromkeys(asked))


def _fields(compared: Compared) -> dict[str, Any]:
    differences = [
        {"section": one.section, "field": one.field, "values": one.values, "equal": one.equal} for one in compared.fields
    ]
    unknown = {section: list(why) for section, why in compared.unknown.items()}
    return {"differences": differences, "unknown": unknown, "unknown_because": compared.unknown}


def _run_view(job: Job) -> dict[str, Any]:
    """The header of a run's column: what it is and how it ended."""
    attempt, (began_s, ended_s) = job.attempt, job.span
    live_s = 0.0
    if attempt is not None and attempt.started_s is not None and attempt.ended_s is None:
        live_s = max(0.0, time.time() - attempt.started_s)
    return {
        "id": job.id,
        "name": job.spec.name,
        "project": job.spec.project,
        "experiment": job.spec.experiment,
        "state": job.state.value,
        "created_s": job.created_s,
        "started_s": began_s,
        "ended_s": ended_s,
        "ran_s": job.ran_s + live_s,
        "attempts": attempt.number if attempt is not None else 0,
        "restarts": job.restarts_program + job.restarts_infrastructure,
    }


def _ranking_view(one: MetricRanking) -> dict[str, Any]:
    return {
        "name": one.name,
        "mode": one.mode.value if one.mode is not None else None,
        "primary": one.primary,
        "equal": one.equal,
        "winner": one.winner,
        "last": [point_view(point) for point in one.last],
        "best": [point_view(point) for point in one.best],
    }


class _TooManyStepsError(Exception):
    """Two files would take too long to compare."""


@dataclass(slots=True)
class _StepBudget:
    """The remaining budget of comparison steps."""

    left: int = _ALL_STEPS_MAX

    def spend(self, before: Sequence[str], after: Sequence[str]) -> bool:
        """Whether two files can be compared within the remaining budget; if so, deduct the cost."""
        matcher = _BoundedMatcher(before, after, min(_STEPS_MAX, self.left))
        try:
            matcher.get_opcodes()
        except _TooManyStepsError:
            return False
        finally:
            self.left -= matcher.taken
        return True


class _BoundedMatcher(difflib.SequenceMatcher[str]):
    """The matcher of `difflib.unified_diff`, limited to `most` steps; `taken` counts them."""

    def __init__(self, before: Sequence[str], after: Sequence[str], most: int) -> None:
        super().__init__(None, before, after)
        self._most = most
        self.taken = 0
        places: dict[str, list[int]] = vars(self)["b2j"]  # documented, but missing in the stubs
        costs = (1 + len(places.get(line, ())) for line in before)
        self._cost = list(accumulate(costs, initial=0))  # prefix sums over the lines

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> difflib.Match:
        """See `difflib`. Raises: _TooManyStepsError."""
        cost = self._cost[-1 if ahi is None else ahi] - self._cost[alo]
        if self.taken + cost > self._most:
            raise _TooManyStepsError
        self.taken += cost
        return super().find_longest_match(alo, ahi, blo, bhi)


def _patches(services: Services, pair: tuple[Run, Run], effort: _StepBudget) -> Iterator[dict[str, Any]]:
    """A unified diff for each text file that differs between two runs; `note` says why a file has none."""
    first, other = pair
    if isinstance(first.tree, str) or isinstance(other.tree, str):
        return
    mine, theirs = ({entry["path"]: entry for entry in tree["entries"]} for tree in (first.tree, other.tree))
    changed = [path for path in sorted({*mine, *theirs}) if mine.get(path) != theirs.get(path)]
    ids = {"from": first.job.id, "to": other.job.id}
    for path in changed[:_PATCHED_MAX]:
        before, after = _lines(services, mine.get(path)), _lines(services, theirs.get(path))
        if isinstance(before, str) or isinstance(after, str):
            yield {**ids, "path": path, "text": "", "note": before if isinstance(before, str) else after}
            continue
        if not effort.spend(before, after):
            yield {**ids, "path": path, "text": "", "note": "takes too long to compare"}
            continue
        lines = difflib.unified_diff(before, after, f"{first.job.id}/{path}", f"{other.job.id}/{path}")
        ended = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
        yield {**ids, "path": path, "text": "".join(ended), "note": ""}
    if len(changed) > _PATCHED_MAX:
        yield {**ids, "path": "", "text": "", "note": f"and {len(changed) - _PATCHED_MAX} more files"}


def _lines(services: Services, entry: Mapping[str, Any] | None) -> list[str] | str:
    """The lines of a file (none if it does not exist), or a note if it cannot be shown."""
    if entry is None:
        return []
    if entry["type"] != "file":
        return [f"{entry['type']} {entry.get('target', '')}\n"]
    if entry["bytes"] > _PATCHED_MAX_BYTES:
        return "too large to show"
    try:
        with services.blobs.open(object_name(entry["sha256"])) as file:
            text = file.read().decode()
    except NotFoundError:
        return "no longer stored"
    except DamagedError:
        return "damaged in the store"
    except OSError as error:
        return f"cannot be read now ({error.strerror or error})"
    except (StoreUnavailableError, StoreRefusedError) as error:
        return f"cannot be read now ({error.message})"
    except UnicodeDecodeError:
        return "not text"
    return "not text" if "\0" in text else text.splitlines(keepends=True)
