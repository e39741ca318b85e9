"""When a replay decides, and on what: as the live loop does, which decides every second."""

from trainmaster.model.cluster import Cluster, Pool
from trainmaster.model.job import State
from trainmaster.model.spec import JobSpec, PlacementSpec, Resources
from trainmaster.scheduling.model.jobs import Choices, Run, Task, kind_of, owner_of
from trainmaster.scheduling.model.request import Shape, Wish, ask_of
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.moments import moments_of
from trainmaster.scheduling.policies.known import POLICIES, chosen
from trainmaster.simulator.history import arrival
from trainmaster.simulator.replay import History, Replay, Settings
from trainmaster.simulator.trace import Arrival, Trace, gpu_nodes
from trainmaster.spec.history import Ran, Record, row
from trainmaster.testing import builders

LONG_S = 1e6


def job(id: str, submit_s: float, run_s: float, gpus: int, work: str = "training", **more: object) -> Arrival:
    return Arrival(id, submit_s, run_s, ask_of(1, Shape(gpus)), work=work)._replace(**more)  # type: ignore[arg-type]


def played(arrivals: list[Arrival], policy: str = "fair-share", gpus: int = 4, **settings: float) -> dict[str, History]:
    rules = Cluster((Pool("default", (), policy=policy),), min_run_s=settings.pop("min_run_s", 300.0))
    trace = Trace("trace", tuple(arrivals), gpu_nodes(1, gpus), rules)
    replay = Replay(trace, chosen(rules), Settings(rules=rules, **settings))  # type: ignore[arg-type]
    replay.run()
    return replay.histories


def test_what_a_victim_leaves_over_is_used_at_once() -> None:
    """Here by the victim itself, which takes less, too."""
    wide, less = ask_of(1, Shape(4)), ask_of(1, Shape(1))
    low = Arrival("low", 0.0, 5000.0, wide, choices=Choices((wide, less)))
    found = played([low, job("high", 1000, LONG_S, 3, "production")])
    assert (found["high"].started_s, found["low"].preemptions) == (1000, 1)
    assert found["low"].ended_s == 5030, "it did not wait"


def test_a_job_makes_way_as_soon_as_it_is_protected_no_longer() -> None:
    found = played([job("low", 0, 5000, 4), job("high", 10, 10, 4, "production")])
    assert (found["high"].started_s, found["low"].preemptions) == (300, 1)
    found = played([job("low", 0, 5000, 4), job("high", 10, 10, 4, "production")], policy="easy")
    assert found["high"].started_s == 5000


def test_a_time_slice_ends_though_nothing_happens() -> None:
    found = played([job("one", 0, 5000, 4, "interactive"), job("two", 10, 10, 4, "interactive")])
    assert found["two"].started_s == 1800


def test_an_elastic_job_gives_back_as_soon_as_it_may() -> None:
    one = ask_of(1, Shape(1))
    wide = Arrival("wide", 0.0, 5000.0, one, choices=Choices((one,), most=2))
    rules = Cluster((Pool("default", (), policy="fifo"),))
    replay = Replay(Trace("trace", (wide, job("small", 10, 10, 1)), gpu_nodes(2, 1), rules), POLICIES["fifo"])
    assert [replay.run()[id].started_s for id in ("wide", "small")] == [0, 300]


def test_when_a_job_runs_for_longer_than_expected_others_fit_before_the_reservation() -> None:
    """An hour is expected, and twice that counted on; then twice as long again."""
    jobs = [job("runs", 0, LONG_S, 1), job("first", 1, 100, 2), job("small", 2, 10, 1, limit_s=7198.5)]
    assert played(jobs, "easy", gpus=2)["small"].started_s == 7201


def test_repeated_work_counts_against_the_time_limit() -> None:
    """What is left of the limit says when the first ends at the latest: the last would end later, and delay the next."""
    jobs = [
        job("first", 0, 1000, 3, limit_s=1000.0),
        job("high", 400, 10, 4, "production", limit_s=10.0),
        job("next", 401, 100, 4, limit_s=100.0),
        job("small", 420, 595, 1, limit_s=595.0),
    ]
    found = played(jobs, preemption_cost_s=30.0)
    assert found["high"].started_s == 400
    assert found["small"].started_s > found["next"].started_s


def test_a_history_keeps_where_a_job_would_be() -> None:
    place = PlacementSpec(prefer="rack", prefer_s=60.0, near="checkpoint", group="mine")
    spec = JobSpec("-", resources=Resources(nodes=2, gpus=1), placement=place)
    ran = (Ran(5.0, None, None, None, True),)
    found = arrival(Record("a-1", 1, "ann", 0.0, State.SUCCEEDED, 0.0, "", spec, ran), 2)
    assert found is not None
    wish = found.kind(Cluster()).wish
    assert (wish.prefer, wish.prefer_s, wish.near, wish.group) == ("rack", 60.0, "checkpoint", "mine")


def test_a_job_waits_for_a_better_place_only_for_as_long_as_it_says() -> None:
    nodes = (*gpu_nodes(2, 1, "x"), *gpu_nodes(2, 1, "y"))
    sites = tuple(site._replace(name=f"n{at}", labels=(("rack", f"r{at % 2}"),)) for at, site in enumerate(nodes))
    busy = [Arrival(f"busy{at}", 0.0, 5000.0, ask_of(1, Shape(1, kinds=("x",)))) for at in range(2)]  # one in each rack
    gang = Arrival("gang", 1.0, 10.0, ask_of(2, Shape(1)), wish=Wish(prefer="rack", prefer_s=60.0))
    replay = Replay(Trace("trace", (*busy, gang), sites), POLICIES["fifo"])
    assert replay.run()["gang"].started_s == 61


def test_jobs_of_a_sweep_have_one_digest() -> None:
    """The scheduler expects them to run for as long as each other: so does a replay of what was exported."""
    one, two, other = (builders.job(command) for command in ("python train.py --lr 1", "python train.py --lr 2", "python eval.py"))
    digests = [row(job, [])["command"] for job in (one, two, other)]
    assert digests[0] == digests[1] != digests[2]


def test_a_job_that_had_waited_too_long_is_decided_upon_when_its_turn_is_over() -> None:
    """Its protection lasts for an hour: a replay decided after five minutes only, and then at the policy's beat."""
    rules, policy = Cluster(), POLICIES["learned"]
    ask = ask_of(1, Shape(1))
    for waited_s, protected_s in ((0.0, 300.0), (rules.work("training").wait_max_s, 3600.0)):
        task = Task(0, "j", kind_of(ask, owner_of(rules, ("p", "m", "training"), 0)), 1000.0)
        run = Run(task, Grant(ask, (0,), ((0,),)), 1000.0 + waited_s)
        assert max(moments_of(run, policy, rules)) == run.placed_s + protected_s
