"""Checks jobs against the cluster configuration: class and pool, the right to be urgent, what a submitter should know."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainmaster.errors import ConflictError, UsageError
from trainmaster.model import redaction
from trainmaster.model.cluster import Cluster, Project, matches
from trainmaster.model.commands import ConfigureCluster
from trainmaster.model.nodes import Node, NodeState
from trainmaster.model.options.notify_targets import kind_of
from trainmaster.model.options.placeholders import without_resume_arguments
from trainmaster.model.spec import JobSpec, Urgency
from trainmaster.scheduling.admission.feasible import grouped, impossible
from trainmaster.scheduling.model.convert import asks, sites_of
from trainmaster.scheduling.model.domains import unlabelled
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.server.jobs.deliveries import NO_MAIL
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.spec.cluster.windows import span_text
from trainmaster.spec.faults import nearest

_READ = "see the cluster configuration: tm policy"
_REASON_MAX = 500  # characters
_TOLD_MAX = 3


def present(api: Runtime) -> Cluster:
    """The configuration once control has processed all accepted changes."""
    accepted = [row.command.cluster for row in api.commands.pending() if isinstance(row.command, ConfigureCluster)]
    return accepted[-1] if accepted else api.services.events.rules()


def obeyed(api: Runtime, spec: JobSpec) -> Cluster:
    """The configuration that a spec fits into. Raises: UsageError for an unknown class or pool."""
    rules, nodes = api.recorded.rules(), api.recorded.nodes()
    if _known(rules, nodes, spec):
        return rules
    rules = present(api)  # it may have changed a moment ago
    if _known(rules, nodes, spec):
        return rules
    classes, pools = [work.name for work in rules.classes], _pools(rules, nodes)
    if spec.work not in classes:
        raise _no_such("class", spec.work, classes)
    raise _no_such("pool", str(spec.placement.pool), pools)


def _known(rules: Cluster, nodes: Sequence[Node], spec: JobSpec) -> bool:
    pool = spec.placement.pool
    return any(work.name == spec.work for work in rules.classes) and (pool is None or pool in _pools(rules, nodes))


def _pools(rules: Cluster, nodes: Sequence[Node]) -> list[str]:
    named = [pool.name for pool in rules.pools]
    return list(dict.fromkeys([*named, *(rules.pool_of(node.name, node.pool).name for node in nodes)]))


def _no_such(what: str, name: str, names: Sequence[str]) -> UsageError:
    near = nearest(name, names)
    known = f"did you mean {near!r}?" if near else f"known: {', '.join(names)}"
    return UsageError(f"there is no {what} {name!r} here; {known}", _READ)


def remarks(api: Runtime, spec: JobSpec) -> list[str]:
    """Notes on what has no effect, though the job may start (most of it may be misspelled), and on unused GPUs."""
    found = _nowhere(api, spec, api.recorded.rules())
    if found:
        found = _nowhere(api, spec, present(api))  # the labels may have changed a moment ago
    unused = [*_unmailed(api, spec), *without_gpus(api.recorded.nodes(), spec), *without_resume_arguments(spec)]
    return [*_unconfigured(api, spec.project), *found, *unused]


def without_gpus(nodes: Sequence[Node], spec: JobSpec) -> list[str]:
    """A note if each node has GPUs and the job requests none: the program sees none, and may train on the CPU unnoticed."""
    requested = spec.resources.devices or any(role.resources.devices for role in spec.roles.values())
    up = [node for node in nodes if node.state is NodeState.UP]
    if requested or not up or not all(any(not one.stand_in for one in node.devices) for node in up):
        return []
    return ["it requests no GPU and so sees none, although there are some here: --gpus 1"]


def _unmailed(api: Runtime, spec: JobSpec) -> list[str]:
    """Who is not told of its end because the server cannot send mail."""
    mails = [] if api.services.configuration.notify.smtp else [to for to in spec.notify.to if kind_of(to) == "mail"]
    return [f"notify: nothing is sent to {', '.join(mails)}: {NO_MAIL}"] if mails else []


def _nowhere(api: Runtime, spec: JobSpec, rules: Cluster) -> list[str]:
    """What no node has: some of its choices of GPUs (a job is refused if that holds of all), labels, data."""
    sites = sites_of(api.recorded.nodes(), rules, time.time())
    if not sites:
        return []
    groups = grouped(sites)
    lacking = [impossible(ask, groups) for ask in asks(spec)]
    idle = [f"one of its choices is never taken here: it {text}" for text in lacking if text and None in lacking]
    return [*idle, *unlabelled(spec.placement, [site.labels for site in sites])]


def _unconfigured(api: Runtime, project: str) -> list[str]:
    """A note if the cluster or server configuration names projects, and not this one: it may be misspelled."""
    names = list(dict.fromkeys([*(one.name for one in api.recorded.rules().projects), *api.services.configuration.projects]))
    if not names or project in (*names, "default"):
        return []
    near = nearest(project, names)
    others = ", ".join(names[:_TOLD_MAX]) + (", …" if len(names) > _TOLD_MAX else "")
    meant = f"did you mean {near!r}?" if near else f"those there are: {others}"
    return [f"project {project} is in no configuration: it has no quota and the usual weight; {meant}"]


def urgency(api: Runtime, project: str, user: str, reason: str | None) -> Urgency | None:
    """The record of an urgent job: its owner and the reason. Raises: UsageError, ConflictError."""
    if reason is None:
        return None
    if not reason.strip() or len(reason) > _REASON_MAX or not reason.isprintable():
        raise UsageError(f"urgent: expected a reason of up to {_REASON_MAX} printable characters", "--urgent --reason 'why'")
    rules = present(api)
    if rules.may_call_urgent(project, user):
        return Urgency(user, redaction.prose(reason.strip()))
    may = rules.project(project).urgent
    who = f"{', '.join(may)} may" if may else "nobody may (an administrator changes that: projects.NAME.urgent of cluster.yaml)"
    raise ConflictError(f"{user} may not call a job of {project} urgent; {who}", _READ)


def delayed_by(api: Runtime, seen: Snapshot, id: str) -> str:
    """Which urgent jobs go, or went, before a waiting job: the end of a sentence, or empty."""
    mine = seen.waiting[id]
    if mine.kind.urgent:
        return ""
    before = [task.id for task in sorted(seen.waiting.values()) if task.kind.urgent]
    runs = [run for run in seen.running.values() if run.task.kind.urgent and run.placed_s >= mine.since_s]
    told = []
    for other in (*before, *(run.task.id for run in runs)):
        job = api.services.events.job(other)
        if job is not None and job.urgent is not None:
            told.append(f"{other} is urgent ({job.urgent.by}: {job.urgent.reason})")
    more = f" and {len(told) - _TOLD_MAX} more" if len(told) > _TOLD_MAX else ""
    return f"; {', '.join(told[:_TOLD_MAX])}{more}" if told else ""


def over(rules: Cluster, now_s: float) -> Iterator[str]:
    """Warnings about maintenance windows that are past."""
    for pool in rules.pools:
        for window in pool.windows:
            if window.turn(now_s) is None:
                when = span_text((window.from_s, window.until_s, window.every_s))
                yield f"pool {pool.name}: the maintenance of {when} (UTC) is past and has no effect"


def unkept(rules: Cluster, nodes: Sequence[Node]) -> Iterator[str]:
    """Warnings: what the present nodes cannot provide. Raises: UsageError for guarantees beyond all nodes."""
    known = [node for node in nodes if node.state is not NodeState.GONE]
    pooled = {rules.pool_of(node.name, node.pool).name for node in known}
    for pool in rules.pools:
        if pool.nodes and pool.name not in pooled:
            yield f"pool {pool.name}: no node matches {', '.join(pool.nodes)} and is in no earlier pool"
            continue
        members = [node.name for node in known if rules.pool_of(node.name, node.pool).name == pool.name]
        for pattern, _ in pool.node_labels:
            if nodes and not any(matches((pattern,), name) for name in members):
                yield f"pool {pool.name}: node_labels: none of its nodes matches {pattern}"
    away = [node for node in nodes if node.state is not NodeState.UP]
    here, whole = _capacity(node for node in nodes if node.state is NodeState.UP), _capacity(nodes)
    for resource in dict.fromkeys(name for project in rules.projects for name, quota in project.quotas if not quota.guarantee):
        if nodes and resource not in whole:
            yield f"no node has any {resource}: a quota of it has no effect yet"
    for resource, asked in _guaranteed(rules).items():
        if asked <= here.get(resource, 0.0):
            continue
        has, more = here.get(resource, 0.0), whole.get(resource, 0.0) - here.get(resource, 0.0)
        there = f"{asked:g} {resource} are guaranteed in total; the nodes have {has:g}"
        if nodes and asked > whole.get(resource, 0.0):
            besides = f" now, and with those that are away {has + more:g}" if away else ""
            raise UsageError(f"{there}{besides}", "guarantee less, or add nodes first; tm nodes lists them")
        yield f"{there} now ({len(away)} away, with {more:g} more)"


def _capacity(nodes: Iterable[Node]) -> dict[str, float]:
    found: dict[str, float] = {"gpus": 0.0, "cpus": 0.0}
    for node in nodes:
        found["cpus"] += node.cpus
        found["gpus"] += len(node.devices)
        for device in node.devices:
            found[device.kind] = found.get(device.kind, 0.0) + 1
    return found


def _guaranteed(rules: Cluster) -> Mapping[str, float]:
    """The total guarantee by resource. A project's guarantee counts once: it is part of its parent's."""
    total: dict[str, float] = {}
    for project in rules.projects:
        for resource, quota in project.quotas:
            if quota.guarantee and not any(_guarantees(above, resource) for above in _above(project, rules)):
                total[resource] = total.get(resource, 0.0) + quota.guarantee
    return total


def _guarantees(project: Project, resource: str) -> bool:
    return any(name == resource and quota.guarantee for name, quota in project.quotas)


def _above(project: Project, rules: Cluster) -> Iterator[Project]:
    while project.parent is not None:
        project = rules.project(project.parent)
        yield project
