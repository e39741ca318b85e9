"""EngineContract on the simulated engine, and its own laws: the same seed is the same history; faults are seen."""

import random

import pytest

from trainmaster.engines.simulated.engine import SimulatedEngine
from trainmaster.engines.simulated.scripts import Faults, Script, SimulatedCrash, always
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Attempt
from trainmaster.model.nodes import Allocation
from trainmaster.ports.engine import Engine, Phase, Submission
from trainmaster.testing import builders
from trainmaster.testing.engine_contract import Behaviour, EngineContract, EngineWorld

SCRIPTS = {
    Behaviour.SUCCEEDS: Script(runs_s=1.0),
    Behaviour.FAILS: Script(runs_s=1.0, exit_code=3),
    Behaviour.CRASHES: Script(runs_s=1.0, signal=11),
    Behaviour.RUNS: Script(runs_s=1e9, term_s=0.1),
    Behaviour.STUBBORN: Script(runs_s=1e9, term_s=None),
    Behaviour.DAEMON: Script(runs_s=1e9, term_s=0.1),
}


class VirtualClock:
    """A clock that goes when told."""

    def __init__(self) -> None:
        self.s = 1000.0

    def now_s(self) -> float:
        return self.s


class SimulatedWorld:
    """The simulated engine is its world: a crash of control leaves the object as it is."""

    deadline_s = 5.0

    def __init__(self) -> None:
        self._clock = VirtualClock()
        self._behaviours: dict[str, Behaviour] = {}
        self._engine = SimulatedEngine(
            random.Random(7), self._clock, lambda submission, rng: SCRIPTS[self._behaviours[submission.key.job]]
        )

    def engine(self) -> Engine:
        return self._engine

    def restart(self) -> Engine:
        return self._engine

    def rival(self) -> Engine:
        return self._engine

    def submission(self, behaviour: Behaviour, job: str = "train-1") -> Submission:
        self._behaviours[job] = behaviour
        return builders.submission(builders.job(id=job), credential="deadbeef")

    def pause(self) -> None:
        self._clock.s += 0.05

    def kill_agent(self, key: AgentKey) -> None:
        self._engine.kill_agent(key)

    def processes(self, key: AgentKey) -> int:
        return int(self._engine.running(key))

    def starts(self, key: AgentKey) -> int:
        return self._engine.truth.starts.get(key, 0)

    def close(self) -> None:
        assert self._engine.truth.violations == []


class TestSimulatedEngine(EngineContract):
    def make_world(self, tmp_path_factory: pytest.TempPathFactory) -> EngineWorld:
        return SimulatedWorld()


def submission(job: str, number: int = 1, device: int = 0, node: str = "sim0", gpu_share: float = 0.0) -> Submission:
    shares = Allocation((builders.share(node, devices=(device,), gpu_share=gpu_share),))
    value = builders.placed(builders.job(id=job), number)
    assert isinstance(value.attempt, Attempt)
    return builders.submission(builders.placed(builders.job(id=job), number, allocation=shares))


def history(seed: int) -> list[object]:
    """Everything that can be seen of a faulty world, from one seed."""
    clock = VirtualClock()
    faults = Faults(unknown=0.2, late=0.3, late_s=20.0, duplicate=0.3, submit_crash=0.3, agent_crash=0.2)
    engine = SimulatedEngine(random.Random(seed), clock, always(Script(runs_s=30.0)), faults)
    wanted = [submission(f"train-{number}", device=number) for number in range(8)]
    told: list[object] = []
    for step in range(40):
        for one in wanted:
            try:
                engine.submit(one)
            except SimulatedCrash as crash:
                told.append(str(crash))
        told.append(engine.observe(None))
        told.append(engine.due_reports())
        following = engine.next_s()
        clock.s = clock.s + 5.0 if following is None or step % 3 == 0 else following
    assert engine.truth.starts == {one.key: 1 for one in wanted}
    assert engine.truth.violations == []
    return told


def test_a_seed_replays() -> None:
    assert history(11) == history(11) != history(12)


def test_reports_arrive_in_order_and_repeat_under_the_same_number() -> None:
    clock = VirtualClock()
    staged = {"kind": "staged", "id": "c1", "step": 3}
    script = Script(runs_s=10.0, reports=((4.0, staged),))
    engine = SimulatedEngine(random.Random(1), clock, always(script), Faults(duplicate=1.0, late_s=0.0))
    one = submission("train-1")
    engine.submit(one)
    clock.s += 60.0
    told = [(report["kind"], report["n"]) for key, report in engine.due_reports() if key == one.key]
    assert told == [("started", 1), ("started", 1), ("staged", 2), ("staged", 2), ("ended", 3), ("ended", 3)]
    assert [dict(report)["kind"] for report in engine.observe([one.key])[one.key].reports] == ["started", "staged"]


def test_a_partition_is_unknown_and_a_reboot_is_gone() -> None:
    clock = VirtualClock()
    engine = SimulatedEngine(random.Random(1), clock)
    one, other = submission("train-1"), submission("train-2", node="sim1")
    for each in (one, other):
        engine.submit(each)
    clock.s += 1.0
    engine.partition("sim0", 20.0)
    engine.reboot("sim1")
    seen = engine.observe([one.key, other.key])
    assert [seen[each.key].phase for each in (one, other)] == [Phase.UNKNOWN, Phase.GONE]
    clock.s += 20.0
    assert engine.observe([one.key])[one.key].phase is Phase.RUNNING


def test_what_no_control_plane_may_cause_is_noticed() -> None:
    engine = SimulatedEngine(random.Random(1), VirtualClock())
    for each in (submission("train-1"), submission("train-1", 2, device=1), submission("train-2")):
        engine.submit(each)
    assert engine.truth.violations == [
        "train-1.2/n0 started while train-1.1/n0 lives",
        "train-2.1/n0 was given [('sim0', 0)], which train-1.1/n0 holds",
    ]


def test_parts_of_a_device_may_be_given_until_it_is_used_up() -> None:
    engine = SimulatedEngine(random.Random(1), VirtualClock())
    for number, part in enumerate((0.3, 0.6, 0.1)):
        engine.submit(submission(f"part-{number}", gpu_share=part))
    assert engine.truth.violations == []
    engine.submit(submission("part-3", gpu_share=0.1))
    assert engine.truth.violations == ["part-3.1/n0 was given [('sim0', 0)], which part-2.1/n0 holds"]
