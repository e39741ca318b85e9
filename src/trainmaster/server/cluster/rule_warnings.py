"""What a cluster configuration means for what is here: what the nodes cannot provide, and jobs that it no longer accepts."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from trainmaster.errors import UsageError
from trainmaster.model.cluster import Cluster, Work, matches
from trainmaster.model.job import Job, State
from trainmaster.model.nodes import Node, NodeState
from trainmaster.ports.store import JobQuery
from trainmaster.server.jobs import queue
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.views.lookup import page
from trainmaster.spec.cluster.contradictions import guaranteed
from trainmaster.spec.cluster.windows import span_text

_NAMED_MAX = 5
_WAITING = (State.QUEUED, State.HELD)


def warnings(api: Runtime, now: Cluster, rules: Cluster) -> Iterator[str]:
    """All warnings about `rules`, which would replace `now`. Raises: UsageError for guarantees beyond all nodes."""
    yield from unkept(rules, api.recorded.nodes())
    yield from over(rules, time.time())
    yield from _bereft(api, now, rules)


def _bereft(api: Runtime, now: Cluster, rules: Cluster) -> Iterator[str]:
    """Warnings about jobs that wait or run and keep what the configuration would give to no new job."""
    declared = [{one.name for one in each.projects} for each in (now, rules)]
    access = [{work.name: work.access for work in each.classes} for each in (now, rules)]
    if declared[0] == declared[1] and access[0] == access[1]:
        return
    found = page(api, JobQuery(states=tuple(state for state in State if not state.ended), limit=queue.QUEUE_MAX))
    jobs = [one.job for one in reversed(found)]
    for name in (name for name in access[0] if name not in access[1]):
        ids = [job.id for job in jobs if job.spec.work == name and job.state in _WAITING]
        if ids:
            wait = f"{_some(ids)} {'waits' if len(ids) == 1 else 'wait'} in it"
            yield f"class {name} is removed, and {wait}: its jobs get a class's defaults (priority {Work(name).priority})"
    for name, ids in _by(jobs, lambda job: job.spec.work, lambda job: not rules.may_use(*_named(job))).items():
        yield f"class {name}: {_some(ids)} {'keeps' if len(ids) == 1 else 'keep'} it, and new jobs like that are refused"
    for name, ids in _by(jobs, lambda job: job.spec.project, lambda job: not rules.takes(job.spec.project)).items():
        keeps = f"{_some(ids)} {'goes' if len(ids) == 1 else 'go'} on without a quota, and new jobs are refused"
        yield f"project {name} is not declared: {keeps}; to declare it, add under projects: {name}: {{}}"


def _named(job: Job) -> tuple[str, str, str]:
    return job.spec.work, job.spec.project, job.owner or ""


def _by(jobs: Iterable[Job], name_of: Callable[[Job], str], wanted: Callable[[Job], bool]) -> dict[str, list[str]]:
    """The ids of the jobs that are wanted, by a name of theirs."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        if wanted(job):
            found.setdefault(name_of(job), []).append(job.id)
    return found


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_NAMED_MAX]) + (f" and {len(ids) - _NAMED_MAX} more" if len(ids) > _NAMED_MAX else "")


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
    pooled: dict[str, list[str]] = {}
    for node in known:
        pooled.setdefault(rules.pool_of(node.name, node.pool).name, []).append(node.name)
    for pool in rules.pools:
        if pool.nodes and pool.name not in pooled:
            yield f"pool {pool.name}: no node matches {', '.join(pool.nodes)} and is in no earlier pool"
            continue
        members = pooled.get(pool.name, [])
        for pattern, _ in pool.node_labels:
            if nodes and not any(matches((pattern,), name) for name in members):
                yield f"pool {pool.name}: node_labels: none of its nodes matches {pattern}"
    away = [node for node in nodes if node.state is not NodeState.UP]
    here, whole = _capacity(node for node in nodes if node.state is NodeState.UP), _capacity(nodes)
    for resource in dict.fromkeys(name for project in rules.projects for name, quota in project.quotas if not quota.guarantee):
        if nodes and resource not in whole:
            yield f"no node has any {resource}: a quota of it has no effect yet"
    for resource, asked in guaranteed(rules).items():
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
