"""Finished jobs in any number, as if the server had run them: real events, folded by the real life cycle, through the real
stores. `replay(events) == projections` stays true; `python benchmarks/seeding.py HOME --jobs N` seeds a home by hand.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from trainmaster.home import Home
from trainmaster.lifecycle.machine import apply
from trainmaster.model import events as ev
from trainmaster.model.ids import AgentKey, job_id
from trainmaster.model.job import Attempt, Job, Outcome, RankEnd, StopFor
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.model.spec import CheckpointSpec, CodeCopy, JobSpec, Origin, Resources
from trainmaster.ports.metric_store import HeartbeatRow, MetricPoint
from trainmaster.ports.store import NewEvent
from trainmaster.recovery.restart_policy import verdict_of
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.store.migrate import migrate

BATCH = 1000  # jobs of one transaction
_RAN_S = 60.0
_PROJECTS = ("vision", "speech", "language", "default")
_EXPERIMENTS = tuple(f"experiment{n}" for n in range(21))
_FAILED_EVERY, _CANCELLED_EVERY = 13, 53  # no common factor: every filter finds some of each
_ORIGIN = Origin(
    "ann", "laptop", "/home/ann/project", "3.11.7",
    {"PATH": "/home/ann/project/.venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "/home/ann/project/.venv", "LANG": "C.UTF-8"},
    "1f0c3a5b7d9e2468ace013579bdf02468ace1357", True,
)  # fmt: skip
_CODE = CodeCopy("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 42, 381_204)
_SHARE = NodeShare("node0", "127.0.0.1", 1.0)
_LAST_LINES = (
    "Traceback (most recent call last):", '  File "train.py", line 71, in <module>', "    main()",
    '  File "train.py", line 58, in main', "    loss.backward()", "RuntimeError: the loss is not finite",
)  # fmt: skip


@dataclass(slots=True)
class _Transaction:
    """What one append is given: the events of a batch of jobs, each applied as it comes."""

    now_s: float
    jobs: dict[str, Job]
    events: list[NewEvent] = field(default_factory=list)

    def record(self, id: str, event: ev.JobEvent) -> None:
        """Apply and remember one event."""
        before, job = self.jobs.get(id), apply(self.jobs.get(id), id, event, self.now_s)[0]
        self.jobs[id] = job
        over = before is not None and not before.state.ended and job.state.ended and job.ran_s > 0
        ended: Attempt | None = job.attempt if isinstance(event, ev.AttemptEnded) else None
        self.events.append(NewEvent(id, job.attempt.number if job.attempt else None, event, ended, over=over))


def seed(home: Home, count: int, seed: int = 0) -> None:
    """Give an empty home `count` finished jobs, with their metrics; the server must not run. About a millisecond a job."""
    migrate(home)
    rng, numbers, spacing_s = Random(seed), Counter[str](), 30.0
    began_s = time.time() - 60.0 - spacing_s * count
    with (
        closing(SqlEventStore(home.events_db)) as events,
        closing(SqlInbox(home.inbox_db)) as inbox,
        closing(SqlMetricStore(home.metrics_db)) as metrics,
    ):
        for first in range(1, count + 1, BATCH):
            batch = {}
            for seq in range(first, min(first + BATCH, count + 1)):
                experiment = _EXPERIMENTS[seq % len(_EXPERIMENTS)]
                numbers[experiment] += 1
                batch[job_id(experiment, numbers[experiment])] = seq
            now_s = began_s + spacing_s * first
            started = _Transaction(now_s, {})
            for id, seq in batch.items():
                for event in _start(id, seq, now_s, rng):
                    started.record(id, event)
            events.append(now_s, started.events, started.jobs, (), first - 1)
            ended = _Transaction(now_s + _RAN_S, started.jobs)
            for id, seq in batch.items():
                _end(ended, id, seq, rng)
            events.append(now_s + _RAN_S, ended.events, ended.jobs, (), first - 1 + len(batch))
            points = [p for id in batch for p in _points(id, now_s, rng)]
            metrics.write(points, [HeartbeatRow(str(AgentKey(id, 1, 0)), now_s, 100, 2**28, 58.0) for id in batch])
        inbox.keep_ahead(count, numbers)


def _start(id: str, seq: int, now_s: float, rng: Random) -> Iterator[ev.JobEvent]:
    rate = round(rng.uniform(1e-4, 1e-2), 6)
    spec = JobSpec(
        f"python train.py --epochs 20 --lr {rate}",
        name="train",
        project=_PROJECTS[seq % len(_PROJECTS)],
        experiment=id.rpartition("-")[0],
        resources=Resources(),
        checkpoint=CheckpointSpec("out/ckpt*.pt"),
        params={"lr": rate, "batch": 256},
        tags={"owner": "team-a", "task": "classification"},
    )
    yield ev.Submitted(seq, spec, _ORIGIN, _CODE, now_s)
    yield ev.Placed(1, Allocation((_SHARE,)))
    yield ev.NodeStarted(1, 0, report=1)


def _end(transaction: _Transaction, id: str, seq: int, rng: Random) -> None:
    """Most succeed, some fail, a few are cancelled."""
    outcome = Outcome((RankEnd(0, exit_code=0, ended_after_s=_RAN_S, cpu_s=58.0),), last_step=100, first_step=1, ran_s=_RAN_S)
    if seq % _CANCELLED_EVERY == 0:
        transaction.record(id, ev.CancelRequested("ann", "the wrong data"))
        outcome = Outcome((RankEnd(0, signal=15, stopped_by_us=True, ended_after_s=_RAN_S),), last_step=80, ran_s=_RAN_S)
    elif seq % _FAILED_EVERY == 0:
        transaction.record(id, ev.StopOrdered(StopFor.LIMIT, "reached its time limit of 60 s"))
        rank = RankEnd(0, signal=15, stopped_by_us=True, ended_after_s=_RAN_S, last_lines=_LAST_LINES)
        outcome = Outcome((rank,), last_step=80, ran_s=_RAN_S)
    transaction.record(id, ev.NodeEnded(1, 0, outcome))
    transaction.record(id, ev.AttemptEnded(1, verdict_of(transaction.jobs[id], rng)))


def _points(id: str, now_s: float, rng: Random) -> Iterator[MetricPoint]:
    for step in (50, 100):
        yield MetricPoint(id, 1, 0, step, "loss", rng.uniform(0.1, 1.0), now_s + step / 2)
    yield MetricPoint(id, 1, 0, 100, "accuracy", rng.uniform(0.8, 0.99), now_s + _RAN_S)


def main() -> None:
    """Seed the home that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--jobs", type=int, default=100_000)
    given = parser.parse_args()
    began_s = time.perf_counter()
    seed(Home(given.home.absolute()), given.jobs)
    print(f"{given.jobs:,} finished jobs in {time.perf_counter() - began_s:.1f} s")


if __name__ == "__main__":
    main()
