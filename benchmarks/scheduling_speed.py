"""How long a decision takes from scratch: of a full queue, after an arrival and an end, for a gang that can never start, for
victims of a large one. The state that it reads is kept up to date by events, as in the live loop.

The queue has three dozen requests by ten projects of four members under fair share with quotas, before nodes of 8 GPUs,
80 % full. Beside it SDSC-SP2 through the production cycle where that trace is there (`TRAINMASTER_TRACES`), next to a bare loop
that only counts nodes, and a million jobs on 100,000 GPUs in a process of its own, whose peak memory is read at its end.
"""

import gc
import os
import resource
import time
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from random import Random

import bare_easy
import common

from trainmaster.model.cluster import Cluster, Project, Quota
from trainmaster.scheduling.cycle import cycle, kept
from trainmaster.scheduling.model.jobs import Owner, Run, Task, kind_of
from trainmaster.scheduling.model.request import WHOLE, Ask, Shape, ask_of
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.simulator.formats import load
from trainmaster.simulator.measures import measure
from trainmaster.simulator.replay import Replay, Settings
from trainmaster.simulator.trace import Arrival, Trace, gpu_nodes

TRACES = Path(os.environ.get("TRAINMASTER_TRACES", Path(__file__).parents[1].parent / "shared" / "traces"))
GPUS = 8
FAIR = POLICIES["fair-share"]
PROJECTS = tuple(
    Project(f"p{i}", 1.0 + i % 3, None, (("m0", 2.0),), (("gpu", Quota(8, 4000 + 100 * i, 60_000)),), 50_000, 20_000)
    for i in range(10)
)
RULES = Cluster(projects=PROJECTS, min_run_s=300.0)
OWNERS = [Owner(f"p{i % 10}", f"m{i // 10}", "training") for i in range(40)]


def requests(distinct: bool, rng: Random) -> Ask:
    """One of 36, or one of its own."""
    gpus, nodes = rng.choice([1, 2, 4, 8]), rng.choice([1, 1, 1, 2, 4])
    cpus = rng.randint(1, 1000) if distinct else rng.choice([250, 500, 1000])
    memory = rng.randint(1, 1 << 20) if distinct else 0
    return ask_of(nodes, Shape(gpus, 0, ("gpu",), cpus * gpus, memory))


class World:
    """A cluster that is 80 % full and a queue before it; `step` is one arrival and one end."""

    def __init__(self, nodes: int, pending: int, distinct: bool = False) -> None:
        self.rng, self.now_s, self.ids = Random(7), 100_000.0, count()
        self.sites = gpu_nodes(nodes, GPUS)
        self.sites = tuple(site._replace(cell=site.cell._replace(memory=1 << 30)) for site in self.sites)
        self.distinct, self.waiting, self.running = distinct, dict[str, Task](), dict[str, Run]()
        self.state: ClusterState | None = None
        free = [GPUS if self.rng.random() > 0.8 else 0 for _ in range(nodes)]
        for node in range(nodes):
            left = GPUS - free[node]
            while left:
                gpus = min(left, self.rng.choice([1, 2, 4, 8, 8]))
                task = self._task(ask_of(1, Shape(gpus, 0, ("gpu",), gpus * 500)))
                devices = tuple(range(GPUS - left, GPUS - left + gpus))
                self.running[task.id] = Run(
                    task, Grant(task.kind.ask, (node,), (devices,)), self.now_s - self.rng.random() * 9e4
                )
                left -= gpus
        for _ in range(pending):
            self.arrive(self._task(requests(distinct, self.rng)))

    def _task(self, ask: Ask) -> Task:
        seq = next(self.ids)
        since_s = self.now_s - 50_000 + seq % 50_000
        kind = kind_of(ask, self.rng.choice(OWNERS))
        return Task(seq, f"j{seq}", kind, since_s, 0.0, 90_000 + self.rng.random() * 9e4)

    def arrive(self, task: Task) -> None:
        self.waiting[task.id] = task
        if self.state is not None:
            self.state.arrive(task)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.now_s, self.sites, self.waiting, self.running, 0, rules=RULES)

    def act(self, plan: Plan) -> None:
        for placement in plan.placements:
            run = self.running[placement.job] = Run(self.waiting.pop(placement.job), placement.grant, self.now_s)
            if self.state is not None:
                self.state.start(run)

    def step(self) -> None:
        self.now_s += 1.0
        id = self.rng.choice(list(self.running))
        del self.running[id]
        if self.state is not None:
            self.state.end(id)
        self.arrive(self._task(requests(self.distinct, self.rng)))


def timed(world: World) -> tuple[float, Plan]:
    """One decision."""
    snapshot = world.snapshot()
    world.state = kept(world.state, snapshot, FAIR)
    assert world.state is not None
    world.state.settle()  # of the decision before, where that was not carried out
    began_s = time.perf_counter()
    plan = cycle(snapshot, FAIR, world.state)
    return time.perf_counter() - began_s, plan


def cold(nodes: int, pending: int, n: int, distinct: bool = False) -> list[float]:
    """Decisions about the whole queue, none of which is carried out."""
    world = World(nodes, pending, distinct)
    timed(world)
    return [timed(world)[0] for _ in range(n)]


def incremental(nodes: int, pending: int, n: int) -> tuple[list[float], list[float]]:
    """One arrival, one end, then the cycle; and the same when a gang arrives that can never start."""
    world = World(nodes, pending)
    world.act(timed(world)[1])
    found, never = [], []
    for _ in range(n + 3):
        world.step()
        seconds, plan = timed(world)
        world.act(plan)
        found.append(seconds)
    for i in range(n):
        task = world._task(ask_of(nodes + 1, Shape(8, 0, ("gpu",), 100 + i)))
        world.arrive(task)
        seconds, plan = timed(world)
        assert plan.reason(task, world.now_s).cause == "impossible"
        world.act(plan)
        never.append(seconds)
    return found[3:], never


def making_way(n: int) -> list[float]:
    """A production gang of 500 whole nodes within its project's quota, 4,000 jobs running on 1,000 nodes, all preemptible."""
    found = []
    for seed in range(n):
        world = World(1000, 0)
        world.rng.seed(seed)
        world.running, task_ids = {}, count()
        for node in range(1000):
            for part in range(4):
                task = world._task(ask_of(1, Shape(2, 0, ("gpu",), 500)))
                grant = Grant(task.kind.ask, (node,), ((2 * part, 2 * part + 1),))
                world.running[f"r{next(task_ids)}"] = Run(
                    task._replace(id=f"r{node * 4 + part}"), grant, world.now_s - 400 - world.rng.random() * 9e4
                )
        gang = world._task(ask_of(500, Shape(8, 0, ("gpu",), 1000)))
        kind = kind_of(gang.kind.ask, Owner("p9", "m0", "production", 0, 3000))
        timed(world)
        world.arrive(gang._replace(kind=kind))
        seconds, plan = timed(world)
        assert len(plan.handovers) == 1
        assert len(plan.handovers[0].victims) == 2000
        found.append(seconds)
    return found


def million(jobs: int, nodes: int) -> tuple[float, float, int]:
    """Seconds, GiB at the most, and jobs that ended, of a trace of `jobs` on `nodes` × 8 GPUs at 90 % load."""
    rng, arrivals, now_s = Random(3), [], 0.0
    asks = [ask_of(nodes, Shape(gpus, 0, (), gpus * WHOLE)) for gpus in (1, 2, 4, 8) for nodes in (1, 2, 4)]
    weights = [40, 12, 12, 16, 4, 4, 4, 3, 2, 1, 1, 1]
    mean = sum(weight * ask.gpu_milli / WHOLE for weight, ask in zip(weights, asks, strict=True)) / sum(weights)
    rate = 0.9 * nodes * GPUS / (mean * 3600.0)
    for i in range(jobs):
        now_s += rng.expovariate(rate)
        run_s = rng.expovariate(1 / 3600.0)
        arrivals.append(Arrival(f"j{i}", now_s, run_s, rng.choices(asks, weights)[0], f"p{i % 10}", "", run_s * 2))
    replay = Replay(Trace("million", tuple(arrivals), gpu_nodes(nodes, GPUS)), POLICIES["easy"], Settings())
    lives = replay.run()
    return replay.seconds, _peak_gib(), len(lives)


def beside_bare_easy(trace: Trace, n: int) -> tuple[float, float]:
    """Jobs per second, the median of `n`: of the production decisions, and of the same game with nothing but numbers."""
    jobs = [(one.submit_s, one.run_s, one.ask.nodes, one.limit_s or one.run_s) for one in trace.arrivals]
    found, bare = [], []
    for _ in range(n):
        replay = Replay(trace, POLICIES["easy"], Settings())
        histories = replay.run()
        found.append(measure(replay).jobs_per_s)
        began_s = time.perf_counter()
        waits = bare_easy.waits(jobs, len(trace.sites))
        bare.append(len(jobs) / (time.perf_counter() - began_s))
        assert waits == [one.started_s - one.submit_s for one in histories.values()], "they do not play the same game"
    return common.median(found), common.median(bare)


def _peak_gib() -> float:
    """What `getrusage` tells of a process begins with what its parent had: this is since it became a program of its own."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 2**20


def apart(jobs: int, nodes: int) -> tuple[float, float, int]:
    """`million` in a process of its own."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(million, (jobs, nodes))


def main() -> None:
    """Measure."""
    options = common.options(__doc__ or "", n=30, quick_n=3)
    report = common.Report("scheduling_speed", "How long a decision takes", options)
    gc.disable()
    quick = options.quick
    sizes = [(100, 1000, (12.0, 150.0))] if quick else [(1000, 10_000, (12.0, 150.0)), (10_000, 100_000, (130.0, 2000.0))]
    rows, goals = [], []
    for nodes, pending, limits_ms in sizes:
        for distinct in (False, True):
            samples = cold(nodes, pending, options.n if nodes <= 1000 else max(3, options.n // 5), distinct)
            what = f"{pending:,} pending × {nodes:,} nodes" + (", all requests distinct" if distinct else "")
            report.keep(what, samples)
            rows.append([what, common.ms(common.median(samples)), common.ms(max(samples))])
            goals.append((what, common.median(samples), limits_ms[distinct] / 1000))
    found, never = incremental(*sizes[0][:2], options.n * 3)
    rows.append(["one arrival, one end", common.ms(common.median(found)), common.ms(max(found))])
    rows.append(["a gang that can never start", common.ms(common.median(never)), common.ms(max(never))])
    victims = making_way(max(1, options.n // 6))
    rows.append(["500 nodes from 4,000 that run", common.ms(common.median(victims)), common.ms(max(victims))])
    report.table(["cycle", "p50", "longest"], rows)
    goals += [
        ("one arrival, one end", common.median(found), 0.012),
        ("impossible is said", common.median(never), 0.010),
        ("victims found", common.median(victims), 0.041),
    ]
    for what, value, limit in goals:
        report.goal(what, value, limit)
    swf = TRACES / "swf" / "SDSC-SP2-1998-4.2-cln.swf.gz"
    if swf.is_file() and not quick:
        ours, bare = beside_bare_easy(load(swf), 3)
        report.table(
            ["SDSC-SP2 by EASY", "jobs/s", "against ours"],
            [["ours", f"{ours:,.0f}", ""], ["nothing but numbers (`bare_easy.py`)", f"{bare:,.0f}", common.ratio(bare, ours)]],
        )
        report.goal("SDSC-SP2, EASY, simulated jobs/s", ours, 6_000, at_least=True, show="{:,.0f}".format)
    elif not quick:
        report.say("SDSC-SP2 is not there: left out.")
    seconds, gib, _ = apart(2_000, 25) if quick else apart(1_000_000, 12_500)
    report.goal("the simulation of a million jobs, minutes", seconds / 60, 3.5, show="{:.1f}".format)
    report.goal("its memory, GiB", gib, 4.0, show="{:.2f}".format)
    report.finish()


if __name__ == "__main__":
    main()
