"""Control on real stores with an engine in memory, driven step by step by a test."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from trainmaster.blobs.fs import FsBlobs
from trainmaster.control.effect_runner import EffectRunner
from trainmaster.control.loop import ControlLoop, Recorder
from trainmaster.control.workers import Inline
from trainmaster.control.world import World
from trainmaster.engines.simulated.engine import SimulatedEngine
from trainmaster.engines.simulated.scripts import ended_report
from trainmaster.errors import DiskFullError
from trainmaster.home import Home
from trainmaster.model.commands import AgentReport, Command, SubmitJob
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job, Outcome, RankEnd, State
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.ports.engine import Observation, Submission
from trainmaster.ports.store import NewEvent, NewRow
from trainmaster.store.database import Database
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox
from trainmaster.store.migrate import migrate

KEY = AgentKey("train-1", 1, 0)
DIGEST = "d" * 64
STARTED = {"kind": "started", "restored": None, "step": None, "bad": []}
ENDED = ended_report(9, Outcome(ranks=(RankEnd(0, signal=9),)))


def staged(step: object = 5, **more: object) -> dict[str, object]:
    told = {"id": f"0001-{step}", "step": step, "digest": DIGEST, "files": 1, "bytes": 10, "parts_expected": 1}
    return {"kind": "staged", **told, "approximate": False, **more}


def kept(path: str = "a.png", **more: object) -> dict[str, object]:
    return {"kind": "kept", "path": path, "digest": DIGEST, "bytes": 10, **more}


@dataclass
class Clock:
    time_s: float = 1000.0

    def now_s(self) -> float:
        return self.time_s


class Engine(SimulatedEngine):
    """The simulated engine. A test may replace its observations, and make its verbs fail."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(Random(1), clock)
        self.says: dict[AgentKey, Observation] = {}
        self.just_before: Callable[[], None] = lambda: None  # runs before an observation
        self.broken: Exception | None = None

    def observe(self, keys: Sequence[AgentKey] | None) -> dict[AgentKey, Observation]:
        self.just_before()
        return super().observe(keys) | {key: seen for key, seen in self.says.items() if keys is None or key in keys}

    def submit(self, submission: Submission) -> None:
        if self.broken is not None:
            raise self.broken
        super().submit(submission)

    def stop(self, key: AgentKey, grace_s: float) -> None:
        if self.broken is not None:
            raise self.broken
        super().stop(key, grace_s)


class Events(SqlEventStore):
    """The event store on a disk that is full when a test says so."""

    full = False

    def append(self, now_s: float, events: Sequence[NewEvent], jobs: Mapping[str, Job], *rest: object) -> int:
        if self.full:
            raise DiskFullError("no space left")
        return super().append(now_s, events, jobs, *rest)  # type: ignore[arg-type]


@dataclass
class Server:
    """Control over real stores, an engine in memory, and a hand that writes into the inbox as the api does."""

    home: Home
    clock: Clock = field(default_factory=Clock)
    rows: int = 0

    def __post_init__(self) -> None:
        migrate(self.home)
        self.inbox, self.events = SqlInbox(self.home.inbox_db), Events(self.home.events_db)
        self.engine = Engine(self.clock)
        self.start()

    def start(self) -> None:
        """Control, as after a crash."""
        runner = EffectRunner(self.engine, FsBlobs(self.home.blobs), str, Inline())
        self.loop = ControlLoop(Recorder(self.events, lambda: None), self.inbox, runner, self.clock, Random(1))
        self.loop.load()

    def ask(self, *commands: Command) -> None:
        rows = [NewRow(f"row-{self.rows + n}", one, self.clock.time_s) for n, one in enumerate(commands)]
        self.rows += len(rows)
        self.inbox.accept(rows)

    def submit(self, **spec: object) -> None:
        self.ask(SubmitJob("", replace(JobSpec("true", "train", experiment="train"), **spec), Origin(), CodeCopy()))  # type: ignore[arg-type]

    def tell(self, *reports: dict[str, object], key: AgentKey = KEY) -> None:
        self.ask(*(AgentReport(str(key), report) for report in reports))

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.time_s += seconds
        while self.loop.tick(self.clock.time_s) == 0.0:
            pass

    def job(self, name: str = "train-1") -> Job:
        """As a fresh control process would load it; what is in memory must be equal."""
        assert World.of(self.events.load_live()) == self.loop.world
        job = self.events.job(name)
        assert job is not None
        return job

    def running(self, **spec: object) -> None:
        """One job whose ranks run, for a minute."""
        self.submit(**spec)
        self.tick()
        self.tell({**STARTED, "n": 1})
        self.tick()
        assert self.job().state is State.RUNNING

    def saved(self) -> None:
        """One job whose ranks run, with checkpoint 0001-5 on record."""
        self.running()
        self.tell(staged(n=2))
        self.tick()

    def held(self, key: AgentKey) -> str:
        """The node of this agent."""
        attempt = self.job(key.job).attempt
        assert attempt is not None
        return attempt.allocation.shares[key.node_index].node

    def damage(self, statement: str) -> None:
        """Write into the inbox's file past its store."""
        database = Database("inbox", self.home.inbox_db)
        with database.writing() as connection:
            connection.exec_driver_sql(statement)
        database.close()
