"""A workload in `tm simulate`'s own code: the file that `tm export` would write of it, read and replayed."""

from dataclasses import dataclass, field
from pathlib import Path

from workloads import NAME, Workload

from trainmaster.model.job import Attempt, Job, State
from trainmaster.model.nodes import Allocation, Node
from trainmaster.model.spec import CodeCopy, Origin
from trainmaster.scheduling.model.snapshot import Plan
from trainmaster.scheduling.policies.known import chosen
from trainmaster.simulator.forecast_scores import ForecastScorer
from trainmaster.simulator.formats import load
from trainmaster.simulator.replay import Replay, Settings
from trainmaster.spec import history

Said = tuple[float, str, str, str]  # when, what, which job, where or for whom or why


@dataclass(slots=True)
class Told(Replay):
    """A replay that tells what it does."""

    said: list[Said] = field(default_factory=list)
    looks: set[float] = field(default_factory=set)
    _reasons: dict[str, str] = field(default_factory=dict)

    def _act(self, plan: Plan) -> None:
        self.looks.add(self.now_s)
        victims = {id: one.job for one in reversed(plan.handovers) for id in one.victims}
        self.said += [(self.now_s, "makes way", id, job) for id, job in victims.items()]
        Replay._act(self, plan)

    def _start(self, id: str, grant: object) -> None:
        sites = self.trace.sites
        self.said.append((self.now_s, "starts", id, " ".join(sites[node].name for node in grant.nodes)))  # type: ignore[attr-defined]
        Replay._start(self, id, grant)  # type: ignore[arg-type]

    def _decide(self) -> None:
        Replay._decide(self)
        self.said += self._waits()

    def _waits(self) -> list[Said]:
        """Why jobs wait, as one more decision says: the live loop makes one when those that start have started."""
        jobs = self._scheduler
        plan = jobs.decide(jobs.snapshot(self.now_s, self.trace.sites, self.settings.rules), self.policy)
        assert not plan.placements, f"the same again at {self.now_s:g} s starts {plan.placements}"
        assert not plan.handovers, f"the same again at {self.now_s:g} s hands over {plan.handovers}"
        before = self._reasons
        self._reasons = {id: plan.reason(task, self.now_s).text for id, task in jobs.waiting.items()}
        return [(self.now_s, "waits", id, text) for id, text in self._reasons.items() if before.get(id) != text]


def simulated(work: Workload, nodes: list[Node], directory: Path, scored: bool = False) -> Told:
    """The whole replay."""
    file = directory / "history.jsonl"
    file.write_bytes(b"".join(map(history.encode, [history.heading(nodes, work.rules, 0.0), *_rows(work)])))
    return replayed(file, work.cost_s, scored)


def replayed(file: Path, cost_s: float, scored: bool = False) -> Told:
    """The whole replay of a history; `scored`: with a start estimate for each job that must wait."""
    trace = load(file)
    policy = chosen(trace.rules)
    replay = Told(trace, policy, Settings(cost_s, rules=trace.rules), scorer=ForecastScorer(policy) if scored else None)
    replay.run()
    return replay


def _rows(work: Workload) -> list[history.Row]:
    rows = []
    for seq, one in enumerate(work.jobs, 1):
        attempt = Attempt(1, Allocation(()), one.submit_s, (), ran_s=one.run_s)
        job = Job(f"{NAME}-{seq}", seq, one.spec, Origin(one.member), CodeCopy(), one.submit_s, State.SUCCEEDED, "", one.submit_s)
        rows.append(history.row(job, [attempt]))
    return rows
