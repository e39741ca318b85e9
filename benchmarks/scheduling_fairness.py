"""Who gets how much of a cluster that everybody wants more of: service over weight, of who always has work.

Days of submissions are made up, from a seed: each project asks for the whole cluster all the time, whatever its weight,
in gangs and run times of its own, and its members ask for equal parts. Looked at is the time from `BEGIN_S` to the last
submission, in which every project and every member has a job in the queue throughout (it is checked). `-n` is the number of
seeds.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from random import Random

import common

from trainmaster.model.cluster import DAY_S, Cluster, Project
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.simulator.replay import History, Replay, Settings
from trainmaster.simulator.sampling import jain
from trainmaster.simulator.trace import Arrival, Trace, gang, gpu_nodes

NODES, GPUS = 8, 8
DEMAND = 1.0  # of the cluster, by each project
DAYS, QUICK_DAYS = 4, 2
BEGIN_S = DAY_S / 2  # until then queues build up
JAIN_MIN = 0.95
POLICIES_SHOWN, POLICIES_QUICK = ("fair-share", "fifo", "easy"), ("fair-share", "fifo")
QUICK_CASES = ("weights 4:2:1",)
Span = tuple[float, float]


@dataclass(frozen=True)
class Team:
    """A project: sizes of its gangs, and between which run times (seconds) its jobs are, evenly by logarithm."""

    name: str
    weight: float
    members: tuple[tuple[str, float], ...]
    gpus: tuple[int, ...]
    runs_s: Span


PAIR = (("ann", 1.0), ("bob", 1.0))
CASES = {
    "weights 4:2:1": (
        Team("a", 4.0, PAIR, (1, 2, 4, 8), (600.0, 28_800.0)),
        Team("b", 2.0, PAIR, (1, 2, 4, 8), (600.0, 28_800.0)),
        Team("c", 1.0, PAIR, (1, 2, 4, 8), (600.0, 28_800.0)),
    ),
    "long and short runs": (
        Team("long", 1.0, PAIR, (1, 2, 4), (14_400.0, 86_400.0)),
        Team("short", 1.0, PAIR, (1, 2, 4), (900.0, 3600.0)),
    ),
    "small and large gangs": (
        Team("small", 1.0, PAIR, (1,), (1800.0, 14_400.0)),
        Team("large", 1.0, PAIR, (8, 16, 32), (1800.0, 14_400.0)),
    ),
    "weights of members 2:1, all mixed": (
        Team("a", 3.0, (("ann", 2.0), ("bob", 1.0)), (1, 2, 4), (600.0, 7200.0)),
        Team("b", 2.0, (("ann", 2.0), ("bob", 1.0)), (1, 8, 16), (3600.0, 43_200.0)),
        Team("c", 1.0, (("ann", 1.0), ("bob", 1.0)), (2, 4), (600.0, 14_400.0)),
    ),
}


def submitted(teams: Iterable[Team], days: int, seed: int) -> Trace:
    """What they ask for."""
    rng, arrivals = Random(seed), []
    for team in teams:
        at_s = 0.0
        while at_s < days * DAY_S:
            gpus, run_s = rng.choice(team.gpus), team.runs_s[0] * (team.runs_s[1] / team.runs_s[0]) ** rng.random()
            member, limit_s = rng.choice(team.members)[0], run_s * rng.uniform(1.0, 3.0)
            id = f"{team.name}{len(arrivals)}"
            arrivals.append(Arrival(id, at_s, run_s, gang(gpus, GPUS), team.name, member, limit_s))
            at_s += run_s * gpus / (DEMAND * NODES * GPUS)
    return Trace("made-up", tuple(sorted(arrivals, key=lambda one: one.submit_s)), gpu_nodes(NODES, GPUS))


def service(lives: Iterable[tuple[Hashable, History]], window: Span) -> dict[Hashable, float]:
    """GPU-seconds in the window, by owner: nobody made way, so a job runs from its start to its end."""
    had: defaultdict[Hashable, float] = defaultdict(float)
    for owner, life in lives:
        had[owner] += life.width * max(0.0, min(life.ended_s, window[1]) - max(life.started_s, window[0]))
    return had


def always_waits(lives: Iterable[History], window: Span) -> bool:
    """Whether there is one in the queue throughout."""
    until_s = window[0]
    for submit_s, started_s in sorted((life.submit_s, life.started_s) for life in lives):
        if submit_s > until_s:
            break
        until_s = max(until_s, started_s)
    return until_s >= window[1]


@dataclass(frozen=True)
class Shares:
    """Jain's index of service over weight in one replay."""

    projects: float
    members: float  # of the project where it is least
    day: float  # of projects, on the worst day
    waits: bool  # whether everybody always had a job in the queue


def replayed(teams: tuple[Team, ...], policy: str, days: int, seed: int) -> Shares:
    """One policy."""
    rules = Cluster(projects=tuple(Project(one.name, one.weight, members=one.members) for one in teams))
    trace = submitted(teams, days, seed)
    replay = Replay(trace, POLICIES[policy], Settings(rules=rules))
    replay.run()
    if any(life.preemptions for life in replay.histories.values()):
        raise RuntimeError("somebody made way: the service is not from start to end")
    owners = {one.id: (one.project, one.member) for one in trace.arrivals}
    lives = [(owners[id], life) for id, life in replay.histories.items()]
    window = (BEGIN_S, trace.arrivals[-1].submit_s)

    def of_projects(span: Span) -> float:
        had = service(((owner[0], life) for owner, life in lives), span)
        return jain([had[one.name] / one.weight for one in teams])

    had = service(lives, window)
    members = (jain([had[one.name, name] / weight for name, weight in one.members]) for one in teams)
    waits = all(always_waits((life for owner, life in lives if owner == one), window) for one in set(owners.values()))
    whole_days = [(day * DAY_S, (day + 1) * DAY_S) for day in range(1, days)]
    return Shares(of_projects(window), min(members), min(map(of_projects, whole_days)), waits)


def main() -> None:
    """Each case by each policy."""
    options = common.options(__doc__ or "", n=3, quick_n=1)
    report = common.Report("scheduling_fairness", "Shares of projects that always have work", options)
    days, rows, fair = QUICK_DAYS if options.quick else DAYS, [], []
    cases = {name: CASES[name] for name in QUICK_CASES} if options.quick else CASES
    for name, teams in cases.items():
        for policy in POLICIES_QUICK if options.quick else POLICIES_SHOWN:
            found = [replayed(teams, policy, days, seed) for seed in range(options.n)]
            fair += found if policy == "fair-share" else []
            report.keep(f"{name}, {policy}: Jain's index of projects", [one.projects for one in found])
            kinds: tuple[Callable[[Shares], float], ...] = (
                lambda one: one.projects,
                lambda one: one.members,
                lambda one: one.day,
            )
            least = [f"{min(map(kind, found)):.3f}" for kind in kinds]
            rows.append([name, policy, *least, "yes" if all(one.waits for one in found) else "no"])
    head = ["projects", "policy", "Jain's index", "of members, least", "of projects, worst day", "all always had work"]
    report.table(head, rows)
    report.say(
        "Each figure is that of the worst seed. 1 is what the weights say; of two projects, a half means that one has all. "
        "Who gets little has few jobs at a time: on a single day one more or less is much."
    )
    for whose, least in (("projects", min(one.projects for one in fair)), ("members", min(one.members for one in fair))):
        what = f"Jain's index of {whose} under fair share, least"
        report.goal(what, least, JAIN_MIN, at_least=True, show="{:.3f}".format)
    report.finish()


if __name__ == "__main__":
    main()
