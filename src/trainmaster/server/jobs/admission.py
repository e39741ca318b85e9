"""Checks jobs against the cluster configuration: project, class and pool, the right to a class and to be urgent, and notes."""

import time
from collections.abc import Sequence

from trainmaster.errors import PermissionDeniedError, UsageError
from trainmaster.model import redaction
from trainmaster.model.cluster import Cluster
from trainmaster.model.commands import ConfigureCluster
from trainmaster.model.nodes import Node, NodeState
from trainmaster.model.options.notify_targets import kind_of
from trainmaster.model.options.placeholders import without_resume_arguments
from trainmaster.model.spec import DEFAULT_PROJECT, JobSpec, Urgency
from trainmaster.scheduling.admission.feasible import grouped, impossible
from trainmaster.scheduling.model.convert import asks, sites_of
from trainmaster.scheduling.model.domains import unlabelled
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.server.jobs.deliveries import NO_MAIL
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.spec.cluster.summary import who_may_use
from trainmaster.spec.faults import nearest

_READ = "see the cluster configuration: tm policy"
_REASON_MAX = 500  # characters
_TOLD_MAX = 3
_NAMES_MAX = 20


def present(api: Runtime) -> Cluster:
    """The configuration once control has processed all accepted changes."""
    accepted = [row.command.cluster for row in api.commands.pending() if isinstance(row.command, ConfigureCluster)]
    return accepted[-1] if accepted else api.services.events.rules()


def current(api: Runtime) -> Cluster:
    """The same, for each submit: at most a second old, and never older than a change that was acknowledged."""
    accepted = api.commands.configurations
    if accepted == api.commands.configurations_taken_up:
        return api.recorded.rules()
    rules = present(api)
    if not any(isinstance(row.command, ConfigureCluster) for row in api.commands.pending()):
        api.recorded.forget_rules()
        api.commands.configurations_taken_up = accepted
    return rules


def check_rules(api: Runtime, spec: JobSpec, user: str) -> Cluster:
    """The configuration that a spec of this member fits into: its project, class and pool.

    Raises: UsageError for an unknown one, PermissionDeniedError.
    """
    rules = current(api)
    _check_project(rules, spec.project)
    check_class(rules, spec, user)
    pools = _pools(rules, api.recorded.nodes())
    if spec.placement.pool is not None and spec.placement.pool not in pools:
        raise _no_such("pool", spec.placement.pool, pools)
    return rules


def check_class(rules: Cluster, spec: JobSpec, user: str) -> None:
    """Every request that gives a job a class passes here. Raises: UsageError (there is none), PermissionDeniedError."""
    classes = [work.name for work in rules.classes]
    if spec.work not in classes:
        raise _no_such("class", spec.work, classes)
    if rules.may_use(spec.work, spec.project, user):
        return
    others = [name for name in classes if rules.may_use(name, spec.project, user)]
    instead = f"use --class {_either(others)}" if others else "no other class is open to you in this project"
    only = who_may_use(rules.work(spec.work), {one.parent for one in rules.projects})
    message = f"{user} may not use class {spec.work} in project {spec.project}: {only}"
    raise PermissionDeniedError(message, f"{instead}   an administrator changes who may: classes.{spec.work} of cluster.yaml")


def _check_project(rules: Cluster, project: str) -> None:
    """Raises: UsageError for a project that is not declared, where any is. A job that names none is of project `default`."""
    if rules.takes(project):
        return
    names = [one.name for one in rules.projects]
    near = nearest(project, names)
    meant = f"did you mean {near!r}? " if near else ""
    known = f"declared: {_some(names)}"
    own = f"name yours: --project {near or names[0]}   or for good: tm config set project {near or names[0]}"
    declare = f"an administrator declares it with a line under projects of cluster.yaml: `{project}: {{}}`"
    unnamed = " (the job names no other)" if project == DEFAULT_PROJECT else ""
    raise UsageError(f"there is no project {project!r} here{unnamed}; {meant}{known}", f"{own}   {declare}")


def _either(names: Sequence[str]) -> str:
    shown = names[:_NAMES_MAX]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(names[:_NAMES_MAX]) + more


def _pools(rules: Cluster, nodes: Sequence[Node]) -> list[str]:
    named = [pool.name for pool in rules.pools]
    return list(dict.fromkeys([*named, *(rules.pool_of(node.name, node.pool).name for node in nodes)]))


def _no_such(what: str, name: str, names: Sequence[str]) -> UsageError:
    near = nearest(name, names)
    known = f"did you mean {near!r}?" if near else f"known: {_some(names)}"
    return UsageError(f"there is no {what} {name!r} here; {known}", _READ)


def remarks(api: Runtime, spec: JobSpec) -> list[str]:
    """Notes on what has no effect, though the job may start (most of it may be misspelled), and on unused GPUs."""
    found = _nowhere(api, spec, current(api))
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
    """A note if only server.toml names projects, and not this one: it may be misspelled."""
    names = list(api.services.configuration.projects)
    if not names or project in (*names, DEFAULT_PROJECT) or current(api).projects:
        return []
    near = nearest(project, names)
    others = ", ".join(names[:_TOLD_MAX]) + (", …" if len(names) > _TOLD_MAX else "")
    meant = f"did you mean {near!r}?" if near else f"those there are: {others}"
    return [f"project {project} is in no configuration: it has no quota and the usual weight; {meant}"]


def urgency(api: Runtime, project: str, user: str, reason: str | None) -> Urgency | None:
    """The record of an urgent job: its owner and the reason. Raises: UsageError, PermissionDeniedError."""
    if reason is None:
        return None
    if not reason.strip() or len(reason) > _REASON_MAX or not reason.isprintable():
        raise UsageError(f"urgent: expected a reason of up to {_REASON_MAX} printable characters", "--urgent --reason 'why'")
    rules = current(api)
    if rules.may_call_urgent(project, user):
        return Urgency(user, redaction.prose(reason.strip()))
    may = rules.project(project).urgent
    who = f"{_some(may)} may" if may else "nobody may (an administrator changes that: projects.NAME.urgent of cluster.yaml)"
    hint = f"submit it without --urgent   {_READ}"
    raise PermissionDeniedError(f"{user} may not call a job of {project} urgent; {who}", hint)


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
