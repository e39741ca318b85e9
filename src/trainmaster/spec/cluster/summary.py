"""Explains a cluster configuration as text. The text is derived from the configuration and the policies themselves."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from trainmaster.model.cluster import DAY_S, UNBOUNDED, WAIT_MAX_S, Cluster, Pool, Project, Quota, Weights, Work
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.policies.known import chosen
from trainmaster.scheduling.policies.policy import Policy, one_for_everybody
from trainmaster.spec.cluster.windows import span_text

_NONE_DECLARED = "none are declared: a job may name any; there are no quotas, and nobody may call a job urgent"
_LISTED_MAX = 20  # names in a sentence
Inside = Mapping[str | None, tuple[int, float]]
_UNITS = ((DAY_S, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


class Paragraph(NamedTuple):
    """An explanation of one subject: a pool, a project, a class."""

    about: str
    sentences: tuple[str, ...]


def explain(rules: Cluster, now_s: float) -> list[Paragraph]:
    """The whole explanation, in the order of the file."""
    orders = [(_where(pools), policy) for pools, policy in chosen(rules).parts] or [("order", chosen(rules))]
    found = [Paragraph(where, tuple(_order(policy, rules))) for where, policy in orders]
    found += [Paragraph(f"pool {pool.name}", tuple(_pool(pool, rules, now_s))) for pool in rules.pools]
    inside = _inside(rules)
    found += [Paragraph(f"project {project.name}", tuple(_project(project, inside))) for project in rules.projects]
    if not rules.projects:
        found.append(Paragraph("projects", (_NONE_DECLARED,)))
    else:
        found.append(Paragraph("other projects", ("are not declared, and their jobs are refused",)))
    classes = sorted(rules.classes, key=lambda work: (-work.priority, work.name))
    stops = any(policy.preempt is not None for _, policy in orders)
    found += [Paragraph(f"class {work.name}", tuple(_class(work, inside, stops))) for work in classes]
    return found


def _where(pools: frozenset[str]) -> str:
    return f"order in pool{'s' * (len(pools) > 1)} {', '.join(sorted(pools))}"


def _order(policy: Policy, rules: Cluster) -> Iterator[str]:
    yield f"{policy.name}: {_summary(policy.words)}" if policy.words else policy.name
    if policy.terms is not None:
        yield from _weighted(rules.weights)
    yield "a job's priority is the sum of its class's and its own"
    yield f"after {span(WAIT_MAX_S)} in the queue a job goes before all others, unless its class says otherwise"
    depth = policy.depth(Snapshot(0.0, (), {}, {}))
    if not depth and policy.depth is not one_for_everybody:
        yield "jobs that fit start; nothing is reserved for jobs ahead that do not fit"
    else:
        many = "each" if policy.depth is one_for_everybody else "the first" if depth == 1 else f"the first {depth}"
        yield f"resources are reserved for {many} that cannot start; other jobs start only if they delay none of these"
    if policy.preempt is None:
        yield "running jobs are never preempted"
    else:
        said = _summary(policy.preempt.__doc__)
        yield "running jobs may be preempted" + (f": {said}" if said else "")
        yield f"but not before having run {span(rules.min_run_s)}" if rules.min_run_s else "at any time"
    if policy.shares:
        yield f"past usage counts half after {span(rules.half_life_s)}"
        yield f"a CPU of a job without GPUs counts as {rules.cpu_weight:g} GPUs"


def _weighted(weights: Weights) -> Iterator[str]:
    """What each factor adds."""
    said = {
        "its class up to {}": weights.workload_class,
        "its own priority up to {}": weights.priority,
        f"its wait up to {{}} after {span(weights.age_max_s)}": weights.age,
        "unused fair share of its project and member up to {}": weights.fair_share,
        "its size up to {}": weights.size,
    }
    yield "a job's place is the sum of " + ", ".join(text.format(f"{weight:,g}") for text, weight in said.items() if weight)


def _summary(words: str | None) -> str:
    """The first line of what a part of a policy says of itself, as the middle of a sentence."""
    first = (words or "").strip().partition("\n")[0].rstrip(".")
    return first[:1].lower() + first[1:]


def _pool(pool: Pool, rules: Cluster, now_s: float) -> Iterator[str]:
    yield f"the nodes {', '.join(pool.nodes)}" if pool.nodes else "every node that is in no other pool"
    if pool.price:
        yield f"{pool.price:g} {rules.currency} per GPU and hour (per CPU and hour if it has no GPUs)"
    if pool.speed != 1:
        yield f"its GPUs count as {pool.speed:g} times as fast, for jobs with a choice of GPUs, until that is measured"
    labels = [f"{name} {value}" for name, value in pool.labels]
    labels += [f"{name} {value} on {pattern}" for pattern, own in pool.node_labels for name, value in own]
    if labels:
        yield f"labels: {', '.join(labels)}"
    for window in pool.windows:
        when = span_text((window.from_s, window.until_s, window.every_s)).partition("/")[0]
        nodes = "" if window.nodes == ("*",) else f" on {', '.join(window.nodes)}"
        why = f" ({window.reason})" if window.reason else ""
        long = span(window.until_s - window.from_s)
        starts = "only jobs that end before it, or have no time limit, start there"
        means = "it is past" if window.turn(now_s) is None else starts
        yield f"maintenance {when} UTC for {long}{nodes}{why}: {means}"


def _inside(rules: Cluster) -> Inside:
    """How many projects are inside each project, or inside none, and their weights together."""
    found: dict[str | None, list[float]] = {}
    for project in rules.projects:
        found.setdefault(project.parent, []).append(project.weight)
    return {parent: (len(weights), sum(weights)) for parent, weights in found.items()}


def _project(project: Project, inside: Inside) -> Iterator[str]:
    siblings, all_of = inside[project.parent]
    within = f" of {project.parent}" if project.parent is not None else ""
    if siblings > 1:
        yield f"its share{within} is {project.weight:g} of {all_of:g} while all projects have jobs"
    elif project.parent is not None:
        yield f"is part of {project.parent}"
    for resource, quota in project.quotas:
        yield from _quota(resource, quota)
    if not project.quotas:
        yield "has no quota: it uses free resources, and nothing is guaranteed to it"
    if project.running_max is not None:
        yield f"runs at most {project.running_max} jobs at a time"
    if project.running_per_member_max is not None:
        yield f"runs at most {project.running_per_member_max} jobs per member at a time"
    if project.members:
        yield "members: " + ", ".join(f"{name} (weight {weight:g})" for name, weight in project.members)
    yield _who_may(project)


def _quota(resource: str, quota: Quota) -> Iterator[str]:
    if quota.guarantee:
        yield f"{quota.guarantee:g} {resource} are guaranteed: never lent"
    if quota.nominal < UNBOUNDED and quota.nominal > quota.guarantee:
        yield f"{quota.nominal:g} {resource} are its quota: lent while idle, taken back when it needs them"
    if quota.limit == quota.nominal:
        yield f"borrows no {resource}" if quota.limit < UNBOUNDED else f"has unlimited {resource}"
    elif quota.limit < UNBOUNDED:
        yield f"may borrow {resource} up to {quota.limit:g} in total"
    else:
        yield f"may borrow unlimited {resource}"


def _who_may(project: Project) -> str:
    if "*" in project.urgent:
        return "every member may call a job urgent"
    return f"{_listed(project.urgent)} may call a job urgent" if project.urgent else "nobody may call a job urgent"


def _listed(names: tuple[str, ...]) -> str:
    if len(names) > _LISTED_MAX:
        return f"{', '.join(names[:_LISTED_MAX])} and {len(names) - _LISTED_MAX} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _class(work: Work, inside: Inside, stops: bool) -> Iterator[str]:
    """`stops`: whether the policy preempts jobs at all."""
    yield f"priority {work.priority:+d}"
    if stops or not work.preemptible:
        yield f"its jobs {'may' if work.preemptible else 'must not'} be preempted"
    targets = (
        ("start", work.wait_target_s),
        ("complete, waiting included,", work.completion_target_s),
        ("run again after a failure", work.recovery_target_s),
    )
    said = [f"{what} within {span(seconds)}" for what, seconds in targets if seconds is not None]
    if said:
        yield f"should {', '.join(said)}"
    if stops and work.slice_s is not None:
        yield f"its jobs may be preempted by jobs of the same class after {span(work.slice_s)}"
    if work.wait_max_s != WAIT_MAX_S:
        yield f"after {span(work.wait_max_s)} in the queue its jobs go before all others"
    only = who_may_use(work, inside)
    if only:
        yield only
    if work.express_gpus:
        small = f"up to {work.express_gpus:g} GPUs with a time limit of {span(work.express_limit_s)} at most"
        yield f"{work.express_gpus:g} GPUs are reserved for its jobs of {small}"


def who_may_use(work: Work, parents: Collection[str | None]) -> str:
    """Who may use a class, as a sentence; empty if everybody may. `parents`: projects that have others inside."""
    given = (work.access.members, work.access.projects)
    members, projects = (None if names is not None and "*" in names else names for names in given)
    if members == () or projects == ():
        return "nobody may use it"
    within = "" if projects is None else f"project{'s' * (len(projects) > 1)} {_listed(projects)}"
    within += " and what is inside" if projects and any(name in parents for name in projects) else ""
    if members is None:
        return f"only jobs of {within} may use it" if within else ""
    return f"only {_listed(members)} may use it" + (f", in {within}" if within else "")


def span(seconds: float) -> str:
    """`7 d`, `1 h 30 min`."""
    left, words = seconds, []
    for unit_s, unit in _UNITS:
        count = int(left // unit_s)
        left -= count * unit_s
        words += [f"{count} {unit}"] if count else []
    return " ".join(words) or f"{seconds:g} s"
