"""What docs/explanation/scheduling.md says is true: the tests that it names exist, and here are the rules that no other shows."""

import re
from pathlib import Path

import pytest

from trainmaster.model.cluster import DAY_S, URGENT, Cluster, Project, Quota
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.jobs import Kind, Owner, Run, Task, kind_of
from trainmaster.scheduling.model.request import Shape, ask_of
from trainmaster.scheduling.model.snapshot import DEFAULT, Plan, Snapshot
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.policies.known import LIVE, POLICIES
from trainmaster.simulator.trace import gpu_nodes

ROOT = Path(__file__).parents[2]
NOW_S = 10_000.0
OWED = Project("owed", quotas=(("gpus", Quota(nominal=2)),))


def kind(project: str = "p", gpus: int = 2, member: str = "m", work: str = "training", priority: int = 0) -> Kind:
    tier = URGENT if work == "urgent" else Cluster().work(work).priority
    return kind_of(ask_of(1, Shape(gpus)), Owner(project, member, work, tier + priority, tier))


def runs(of: Kind, first: int = 0) -> Run:
    devices = tuple(range(first, first + of.ask.each.gpus))
    return Run(Task(first, f"r{first}", of, 0.0), Grant(of.ask, (0,), (devices,)), 0.0)


def decided(
    waiting: list[Kind], running: list[Run], rules: Cluster = DEFAULT, policy: str = "fair-share", now_s: float = NOW_S
) -> Plan:
    """On two GPUs. The first of `waiting` has waited since 0, the others have just come."""
    tasks = {f"w{at}": Task(10 + at, f"w{at}", one, now_s if at else 0.0) for at, one in enumerate(waiting)}
    runs_by_id = {one.task.id: one for one in running}
    return cycle(Snapshot(now_s, gpu_nodes(1, 2), tasks, runs_by_id, rules=rules), POLICIES[policy])


def started(plan: Plan) -> list[str]:
    return [one.job for one in plan.placements]


def victims(plan: Plan) -> list[str]:
    return [id for one in plan.handovers for id in one.victims]


def test_the_laws_that_the_page_names_exist() -> None:
    named = re.findall(r"<!-- law: (\w+) -->", (ROOT / "docs" / "explanation" / "scheduling.md").read_text())
    text = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 30
    assert [name for name in named if f"def {name}(" not in text] == []


def test_a_priority_counts_among_jobs_of_one_owner_only() -> None:
    assert started(decided([kind(), kind(priority=5)], [])) == ["w1"]
    used = [runs(kind(gpus=1))]
    assert started(decided([kind(gpus=1, priority=100), kind(gpus=1, member="other")], used)) == ["w1"]


def test_a_priority_stops_nobody() -> None:
    assert not decided([kind(priority=100)], [runs(kind(member="other", priority=-100))]).handovers


@pytest.mark.parametrize("policy", LIVE)
def test_who_has_waited_for_23_days_comes_before_what_is_urgent(policy: str) -> None:
    waiting = [kind(work="trial"), kind(work="urgent")]
    assert started(decided(waiting, [], policy=policy, now_s=23 * DAY_S)) == ["w0"]
    assert started(decided(waiting, [], policy=policy, now_s=23 * DAY_S - 1)) == ["w1"]


def test_a_guarantee_is_kept_from_urgent_jobs() -> None:
    rules = Cluster(projects=(Project("kept", quotas=(("gpus", Quota(1, 1)),)),))
    assert not started(decided([kind(work="urgent")], [], rules))
    assert started(decided([kind(work="urgent", gpus=1)], [], rules)) == ["w0"]


def test_what_is_taken_back_is_what_others_hold_beyond_their_own() -> None:
    lent = Project("lent", quotas=(("gpus", Quota(nominal=1)),))
    rules, held = Cluster(projects=(OWED, lent)), [runs(kind("lent", 1)), runs(kind("lent", 1), 1)]
    assert len(victims(decided([kind("owed", 1)], held, rules))) == 1
    assert victims(decided([kind("owed", 2)], held, rules)) == [], "one of them is its own"
    for work, count in (("interactive", 1), ("urgent", 0)):
        other = kind("lent", 1, work=work)
        assert len(victims(decided([kind("owed", 1)], [runs(other), runs(other, 1)], rules))) == count, work


def test_a_project_without_a_quota_gives_nothing_back() -> None:
    for rules in (Cluster(projects=(OWED,)), Cluster(projects=(OWED, Project("free")))):
        assert not decided([kind("owed")], [runs(kind("free"))], rules).handovers


def test_nobody_stops_production() -> None:
    rules = Cluster(projects=(OWED, Project("lent", quotas=(("gpus", Quota(nominal=0)),))))
    for work in ("urgent", "production"):
        assert not decided([kind("owed", work=work)], [runs(kind("lent", work="production"))], rules).handovers
    assert victims(decided([kind(work="urgent")], [runs(kind(work="interactive"))])) == ["r0"]


def test_who_reserves_and_who_preempts() -> None:
    snapshot = Snapshot(NOW_S, (), {f"w{at}": Task(at, f"w{at}", kind(), 0.0) for at in range(50)}, {})
    depths = {name: POLICIES[name].depth(snapshot) for name in LIVE}
    assert {name: depth for name, depth in depths.items() if depth} == {
        "fair-share": 1, "multifactor": 1, "easy": 1, "predicted": 1, "conservative": 50,
    }  # fmt: skip
    assert {name for name in LIVE if POLICIES[name].preempt is not None} == {"fair-share", "multifactor", "learned", "least-attained"}
