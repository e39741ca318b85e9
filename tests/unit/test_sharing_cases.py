"""Sharing a cluster, case by case: lent and reclaimed quotas, classes, express lane, time slices, windows, urgency."""

from trainmaster.model.cluster import CLASSES, URGENT, Cluster, Project, Quota, Work
from trainmaster.model.events import Promised
from trainmaster.model.nodes import Allocation
from trainmaster.scheduling.admission.forbidden import Forbidden
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.jobs import Choices, Owner, Past, Run, Task, kind_of
from trainmaster.scheduling.model.request import Shape, ask_of
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.model.space import Grant, Site
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.server.views.event_text import sentence
from trainmaster.simulator.trace import gpu_nodes

NOW_S = 10_000.0
FAIR = POLICIES["fair-share"]
VISION = Owner("vision", "ann", "training", 0, 0)
RULES = Cluster(
    projects=(Project("vision", quotas=(("gpus", Quota(0, 8, 16)),)), Project("speech", quotas=(("gpus", Quota(0, 8)),)))
)


def task(
    seq: int, project: str, gpus: int, work: str = "training", limit_s: float | None = None, rules: Cluster = RULES
) -> Task:
    tier = rules.work(work).priority
    kind = kind_of(ask_of(1, Shape(gpus)), Owner(project, "ann", work, tier, tier), limit_s)
    return Task(seq, f"{project}-{seq}", kind, NOW_S - 100 + seq, estimate_s=limit_s)


def run(waiting: Task, node: int, first: int = 0, ran_s: float = 1000.0, saved_s: float | None = None) -> Run:
    devices = tuple(range(first, first + waiting.kind.ask.each.gpus))
    return Run(waiting._replace(since_s=0.0), Grant(waiting.kind.ask, (node,), (devices,)), NOW_S - ran_s, saved_s=saved_s)


def decide(waiting: list[Task], running: list[Run], rules: Cluster = RULES, sites: tuple[Site, ...] = gpu_nodes(2, 8)) -> Plan:
    by_id = {one.task.id: one for one in running}
    return cycle(Snapshot(NOW_S, sites, {one.id: one for one in waiting}, by_id, rules=rules), FAIR)


def test_what_is_lent_is_taken_back_from_whom_the_least_is_lost() -> None:
    lent = [run(task(1, "vision", 8), 0, saved_s=NOW_S - 900), run(task(2, "vision", 8), 1, saved_s=NOW_S - 10)]
    plan = decide([task(3, "speech", 8)], lent)
    assert [(one.job, one.victims) for one in plan.handovers] == [("speech-3", ("vision-2",))]


def test_a_project_that_holds_only_its_own_gives_nothing() -> None:
    plan = decide([task(3, "speech", 8), task(4, "speech", 8)], [run(task(1, "vision", 8), 0)])
    assert [one.job for one in plan.placements] == ["speech-3"]
    assert not plan.handovers


def test_a_limit_is_a_limit_and_the_reason_says_whose() -> None:
    plan = decide([task(3, "vision", 8)], [run(task(1, "vision", 8), 0), run(task(2, "vision", 8), 1)], sites=gpu_nodes(3, 8))
    assert not plan.placements
    assert plan.reason(task(3, "vision", 8), NOW_S).text == "waiting for quota: project vision may hold 16 GPUs at a time"


def test_what_is_guaranteed_is_never_lent() -> None:
    rules = Cluster(projects=(Project("vision", quotas=(("gpus", Quota(8, 8)),)),))
    plan = decide([task(3, "speech", 8), task(4, "speech", 4)], [], rules, gpu_nodes(1, 12))
    assert [one.job for one in plan.placements] == ["speech-4"]
    assert "guaranteed to other projects" in plan.reason(task(3, "speech", 8), NOW_S).text


def test_production_stops_training_but_never_the_other_way_round() -> None:
    busy = [run(task(1, "vision", 8), 0), run(task(2, "vision", 8, "production"), 1)]
    plan = decide([task(3, "speech", 8, "production")], busy, Cluster())
    assert [(one.job, one.victims) for one in plan.handovers] == [("speech-3", ("vision-1",))]
    assert not decide([task(3, "speech", 8)], busy, Cluster()).handovers


def test_nobody_is_stopped_before_it_has_run_for_a_while_and_longer_each_time() -> None:
    waiting = [task(3, "speech", 8, "production")]
    fresh = run(task(1, "vision", 8), 0, ran_s=200.0)
    assert not decide(waiting, [fresh], Cluster(), gpu_nodes(1, 8)).handovers
    often = run(task(1, "vision", 8)._replace(evictions=3), 0, ran_s=2000.0)
    assert not decide(waiting, [often], Cluster(), gpu_nodes(1, 8)).handovers
    assert decide(waiting, [often._replace(placed_s=NOW_S - 2500.0)], Cluster(), gpu_nodes(1, 8)).handovers


def test_the_express_lane_is_kept_for_short_jobs() -> None:
    rules = Cluster(classes=(*CLASSES, Work("quick", express_gpus=2, express_limit_s=600.0)))
    running = [run(task(1, "vision", 6), 0)]
    plan = decide([task(2, "vision", 1), task(3, "vision", 1, "quick", 3600.0, rules)], running, rules, gpu_nodes(1, 8))
    assert not plan.placements, "one is of another class, the other takes too long"
    plan = decide([task(4, "vision", 2, "quick", 300.0, rules)], running, rules, gpu_nodes(1, 8))
    assert [one.job for one in plan.placements] == ["vision-4"]


def test_interactive_jobs_take_turns_when_their_slice_is_over() -> None:
    one = task(1, "vision", 8, "interactive")
    waiting = [task(2, "vision", 8, "interactive")]
    assert not decide(waiting, [run(one, 0, ran_s=1700.0)], Cluster(), gpu_nodes(1, 8)).handovers
    assert decide(waiting, [run(one, 0, ran_s=1900.0)], Cluster(), gpu_nodes(1, 8)).handovers[0].victims == ("vision-1",)


def test_a_node_that_leaves_takes_only_what_ends_before() -> None:
    leaves = tuple(site._replace(cell=site.cell._replace(closes_s=NOW_S + 3000)) for site in gpu_nodes(1, 8))
    waiting = [task(1, "vision", 1, limit_s=4000.0), task(2, "vision", 1, limit_s=2000.0), task(3, "vision", 1)]
    plan = decide(waiting, [], Cluster(), leaves)
    assert [one.job for one in plan.placements] == ["vision-2"]
    later = tuple(site._replace(cell=site.cell._replace(closes_s=NOW_S + 90_000)) for site in leaves)
    plan = decide([task(3, "vision", 1), task(4, "vision", 1, "production")], [], Cluster(), later)
    assert [one.job for one in plan.placements] == ["vision-3"], "a preemptible job without a limit continues elsewhere"


def test_what_is_urgent_goes_before_all_classes() -> None:
    urgent = task(2, "vision", 8)
    kind = kind_of(urgent.kind.ask, Owner("vision", "ann", "training", URGENT, URGENT))
    plan = decide([task(1, "vision", 8, "production"), urgent._replace(kind=kind)], [], Cluster(), gpu_nodes(1, 8))
    assert [one.job for one in plan.placements] == ["vision-2"]


def test_members_of_a_project_share_by_their_weights() -> None:
    rules = Cluster(projects=(Project("vision", members=(("ann", 3.0), ("bob", 1.0))),))
    waiting = []
    for seq in range(16):
        kind = kind_of(ask_of(1, Shape(1)), Owner("vision", "ann" if seq % 2 else "bob"))
        waiting.append(Task(seq, f"j-{seq}", kind, NOW_S))
    plan = decide(waiting, [], rules, gpu_nodes(1, 8))
    members = [next(one for one in waiting if one.id == placed.job).kind.member for placed in plan.placements]
    assert (members.count("ann"), members.count("bob")) == (6, 2)


def test_a_large_job_is_not_starved_by_small_ones_though_nobody_says_how_long() -> None:
    """As small ones come all the time, one for each that ends, it starts as soon as those that run are thought to end."""
    large = Task(1, "large", kind_of(ask_of(2, Shape(8)), Owner("vision", "ann")), NOW_S - 10)
    running = {one.task.id: one for one in [run(task(20 + i, "speech", 1), i % 2, i // 2) for i in range(16)]}
    ends = {id: NOW_S + 200.0 * place for place, id in enumerate(running)}
    over: list[Past] = []
    for now_s in range(int(NOW_S), int(NOW_S) + 50_000, 200):
        for id in [id for id, end_s in ends.items() if end_s <= now_s]:
            gone = running.pop(id)
            over.append(Past(gone.task.seq, gone.task.kind, now_s - gone.placed_s))
            del ends[id]
        small = [task(now_s + i, "speech", 1)._replace(since_s=float(now_s)) for i in range(2)]
        waiting = {one.id: one for one in (large, *small)}
        plan = cycle(Snapshot(now_s, gpu_nodes(2, 8), waiting, dict(running), ended=tuple(over), rules=Cluster()), FAIR)
        if any(one.job == "large" for one in plan.placements):
            break
        for one in plan.placements:
            running[one.job] = Run(waiting[one.job], one.grant, now_s)
            ends[one.job] = now_s + 3200.0
    else:
        raise AssertionError("it never started")
    assert now_s - NOW_S < 3 * 3200.0


def test_a_gang_that_guarantees_never_leave_room_for_can_never_start() -> None:
    rules = Cluster(projects=(Project("vision", quotas=(("gpus", Quota(8, 8)),)),))
    plan = decide([task(3, "speech", 6), task(4, "speech", 4)], [], rules, gpu_nodes(1, 12))
    refused = plan.reason(task(3, "speech", 6), NOW_S)
    assert (refused.cause, refused.text) == ("impossible", "asks for 6 GPUs; of 12 GPUs here 8 GPUs are guaranteed to other projects")
    assert [one.job for one in plan.placements] == ["speech-4"]


def test_what_is_guaranteed_within_a_guarantee_counts_once() -> None:
    lab, vision = Project("lab", quotas=(("gpus", Quota(8, 8)),)), Project("vision", 1.0, "lab", quotas=(("gpus", Quota(4, 8)),))
    rules = Cluster(projects=(lab, vision, Project("sound", 1.0, "lab")))
    assert len(decide([task(3, "speech", 4)], [], rules, gpu_nodes(1, 12)).placements) == 1, "8 of 12 are the lab's"
    assert len(decide([task(3, "sound", 4)], [], rules, gpu_nodes(1, 8)).placements) == 1, "vision's 4 are left of the lab's 8"
    plan = decide([task(3, "sound", 2)], [run(task(1, "sound", 4), 0)], rules, gpu_nodes(1, 8))
    assert not plan.placements, "they are vision's"
    assert len(decide([task(3, "vision", 4)], [run(task(1, "sound", 4), 0)], rules, gpu_nodes(1, 8)).placements) == 1


def test_a_reservation_behind_a_hand_over_does_not_count_on_what_was_handed_over() -> None:
    trial, own = run(task(1, "vision", 8, "trial", 2000.0), 0), run(task(2, "vision", 8, limit_s=5000.0), 1)
    plan = decide([task(3, "speech", 8, "production", 9000.0), task(4, "vision", 8, limit_s=100.0)], [trial, own], Cluster())
    assert [(one.job, one.victims) for one in plan.handovers] == [("speech-3", ("vision-1",))]
    assert [(one.job, one.at_s) for one in plan.reservations] == [("vision-4", own.end_s)], "that of the other ends sooner"


def test_predicted_lets_in_who_is_probably_gone_in_time_until_somebody_has_waited_for_days() -> None:
    over = tuple(Past(seq, task(seq, "speech", 8).kind, 3600.0) for seq in range(100, 130))
    busy = run(task(20, "speech", 8), 0)  # thought to hold its node for 6,200 s more: twice the 3,600, less what it has run
    small = task(30, "speech", 8)
    for waited_s, starts in ((600.0, ["speech-30"]), (4 * 86_400.0, [])):
        large = Task(1, "large", kind_of(ask_of(2, Shape(8)), Owner("speech", "ann")), NOW_S - waited_s)
        waiting = {one.id: one for one in (large, small)}
        seen = Snapshot(NOW_S, gpu_nodes(2, 8), waiting, {busy.task.id: busy}, ended=over)
        plan = cycle(seen, POLICIES["predicted"])
        assert [one.job for one in plan.reservations] == ["large"]
        assert [one.job for one in plan.placements] == starts


def test_who_gives_back_nodes_is_not_said_to_make_way() -> None:
    """Of one that goes on with fewer, and of one that goes: while they are at it, and in the events before."""
    ask, one = ask_of(1, Shape(8)), task(3, "speech", 8)
    wide = task(1, "vision", 8)._replace(kind=kind_of(Choices((ask,), most=2)))
    whole = Run(wide, Grant(ask_of(2, ask.each), (0, 1), (tuple(range(8)),) * 2), NOW_S - 1000.0)
    found = decide([one], [whole], Cluster()).handovers[0]
    assert (found.victims, found.shrunk) == (("vision-1",), ("vision-1",))
    gang = task(4, "speech", 8)._replace(kind=kind_of(ask_of(2, ask.each)))
    going = [whole._replace(stopping=True, shrinking=True), run(task(2, "vision", 8), 2)._replace(stopping=True)]
    runs, promised = {each.task.id: each for each in going}, {gang.id: Grant(gang.kind.ask, (1, 2), (tuple(range(8)),) * 2)}
    seen = Snapshot(NOW_S, gpu_nodes(3, 8), {gang.id: gang}, runs, promised=promised)
    said = "vision-2 to make way for it, and for vision-1 to give back nodes for it and go on with fewer"
    assert cycle(seen, FAIR).reason(gang, NOW_S).text == f"waiting for {said}"
    fewer = Promised(Allocation(()), ("vision-1", "vision-2"), ("vision-1",))
    assert sentence(fewer) == "vision-2 makes way for it and vision-1 gives back nodes for it and goes on with fewer"
    assert sentence(Promised(Allocation(()), ("a-1", "a-2"))) == "a-1, a-2 make way for it"


def test_what_the_rules_never_let_start_is_known_before_it_waits() -> None:
    def told(gpus: int, *projects: Project, sites: tuple[Site, ...] = gpu_nodes(2, 8), work: str = "training") -> str | None:
        rules = Cluster(projects=projects)
        return Forbidden(rules, sites).why(task(1, "vision", gpus, work, rules=rules).kind)

    assert told(8) is None
    assert told(8, Project("vision", quotas=(("gpus", Quota(0, 4, 8)),))) is None, "it borrows"
    few = Project("vision", quotas=(("gpus", Quota(0, 4, 4)),))
    assert told(8, few) == "it asks for 8 GPUs; project vision may hold 4 GPUs"
    assert told(4, few) is None
    assert told(16, few) is None, "no node has so many: that is another matter"
    assert told(1, Project("vision", running_max=0)) == "it asks to run in project vision, which may run no jobs at all"
    none = "it asks to run in project vision, whose members may run no jobs at all"
    assert told(1, Project("vision", running_per_member_max=0)) == none
    theirs = Project("speech", quotas=(("gpus", Quota(12, 12)),))
    assert told(8, theirs) == "it asks for 8 GPUs; of 16 GPUs here 12 GPUs are guaranteed to other projects"
    rules = Cluster(projects=(Project("vision", running_max=0),))
    plan = decide([task(1, "vision", 1)], [], rules)
    assert not plan.placements
    assert plan.reason(task(1, "vision", 1, rules=rules), NOW_S).cause == "impossible", "no end of another lets it start"
    away = tuple(site._replace(open=False, why="drained") for site in gpu_nodes(3, 8))
    assert told(8, theirs, sites=away) is None, "they may come back"


def test_a_choice_of_which_one_is_allowed_may_start() -> None:
    rules = Cluster(projects=(Project("vision", quotas=(("gpus", Quota(0, 4, 4)),)),))
    small, large, larger = (ask_of(1, Shape(gpus)) for gpus in (4, 6, 8))
    told = [Forbidden(rules, gpu_nodes(2, 8)).why(kind_of(Choices(asks))) for asks in ((larger, small), (larger, large))]
    assert told == [None, None], "another project's"
    told = [Forbidden(rules, gpu_nodes(2, 8)).why(kind_of(Choices(asks), VISION)) for asks in ((larger, small), (larger, large))]
    assert told == [None, "it asks for 8 GPUs; project vision may hold 4 GPUs; and asks for 6 GPUs; project vision may hold 4 GPUs"]
