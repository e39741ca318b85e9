"""Describes how two simulations differ, as sentences. Pure."""

from collections.abc import Set

from trainmaster.cli.render.human import plural, span
from trainmaster.simulator.measures import Measures

_NOTICED, _NOTICED_S = 0.05, 1.0  # smaller differences are ignored
_PROJECTS = 8  # projects listed, with the largest differences


def differences(now: Measures, then: Measures) -> list[str]:
    """Sentences about the differences, the most important first: `waits of vision fall from 3.1 h to 0.9 h`."""
    told = [
        _left_out(now, then),
        _moved("waits", now.wait_mean_s, then.wait_mean_s) or f"waits stay at {span(now.wait_mean_s)}",
        _moved("the time from submission to end", now.completion_mean_s, then.completion_mean_s, one=True),
        _shifted("use of the cluster", now.utilisation, then.utilisation),
        _preempted(now, then),
        _moved("the longest wait", now.wait_max_s, then.wait_max_s, one=True),
        *(_projects(now, then) if len(now.projects) > 1 else []),
    ]
    return [one for one in told if one]


def apart(now: Set[str], then: Set[str]) -> list[str]:
    """Notes about jobs that could start in only one of the two cases. They are left out of both replays."""
    counts = ((len(now - then), "could start then, and not now"), (len(then - now), "could start now, and not then"))
    out = "left out of both, so that the figures describe the same jobs"
    return [f"{plural(count, 'job')} {where}: {out}" for count, where in counts if count]


def _moved(what: str, before_s: float, after_s: float, one: bool = False) -> str:
    change_s = after_s - before_s
    if abs(change_s) < max(_NOTICED_S, _NOTICED * before_s) or span(before_s) == span(after_s):
        return ""
    verb = ("falls" if one else "fall") if change_s < 0 else ("rises" if one else "rise")
    return f"{what} {verb} from {span(before_s)} to {span(after_s)}"


def _shifted(what: str, before: float, after: float) -> str:
    if f"{before:.0%}" == f"{after:.0%}":
        return ""
    return f"{what} {'falls' if after < before else 'rises'} from {before:.0%} to {after:.0%}"


def _preempted(now: Measures, then: Measures) -> str:
    if now.preemptions == then.preemptions:
        return ""
    lost = f", and {then.lost_hours:,.0f} hours of work are done again" if then.lost_hours >= 1 else ""
    return f"jobs make way {then.preemptions:,} times, where it was {now.preemptions:,}{lost}"


def _projects(now: Measures, then: Measures) -> list[str]:
    both = [name for name in now.projects if name in then.projects]
    moved = {name: then.projects[name].wait_mean_s - now.projects[name].wait_mean_s for name in both}
    first = sorted(both, key=lambda name: -abs(moved[name] * now.projects[name].jobs))[:_PROJECTS]
    return [_moved(f"waits of {name}", now.projects[name].wait_mean_s, then.projects[name].wait_mean_s) for name in first]


def _left_out(now: Measures, then: Measures) -> str:
    if then.never == now.never:
        return ""
    return f"{then.never:,} jobs never start, where it was {now.never:,}: the other figures leave them out"
