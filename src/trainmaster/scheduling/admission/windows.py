"""Maintenance windows: for how long nodes stay open, and which jobs need them for longer.

A node that closes takes only jobs that end before. A job that needs more than the time between two windows can never start.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple

from trainmaster.model.cluster import Cluster, Window
from trainmaster.scheduling.admission.feasible import Group, away, fits, impossible
from trainmaster.scheduling.model import words
from trainmaster.scheduling.model.cells import FOREVER, steps
from trainmaster.scheduling.model.jobs import Kind
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.model.space import GONE, Site

WINDOW_MIN_S = 3600.0  # a job without a time limit starts only on nodes that stay this long


class Need(NamedTuple):
    """For how long a job's nodes must stay."""

    least_s: float
    limited: bool  # it has a time limit
    stops: bool  # it may be preempted, and resumes elsewhere

    def __str__(self) -> str:
        """The end of `waiting for 2 GPUs …`."""
        if self.least_s == FOREVER:
            return "without a time limit"
        return f"for {words.length(self.least_s)}{'' if self.limited else ' at least'}"


def need_of(kind: Kind, estimate_s: float | None, rules: Cluster) -> Need:
    """The need of a job. A preemptible job without a time limit resumes elsewhere when its nodes close."""
    stops = rules.work(kind.work).preemptible
    if estimate_s is not None:
        return Need(estimate_s, True, stops)
    return Need(WINDOW_MIN_S if stops else FOREVER, False, stops)


class Staying:
    """What windows leave of one inventory, whatever else runs."""

    def __init__(self, rules: Cluster, groups: Sequence[Group]) -> None:
        self._rules, self._groups = rules, groups
        self._closings = sorted({group.cell.closes_s for group in groups})
        self._found: dict[tuple[Ask, Need, int, bool], Refusal | None] = {}
        self._longest: dict[tuple[Ask, bool], float] = {}

    def refusal(self, ask: Ask, need: Need, now_s: float, patient: bool = False) -> Refusal | None:
        """Why windows would keep a request from starting now on empty nodes; None: they would not.

        `patient`: the job accepts another place in the end.
        """
        until_s = now_s + need.least_s
        key = ask, need, bisect_left(self._closings, until_s), patient
        if key not in self._found:
            self._found[key] = self._refusal(ask, need, until_s, patient)
        return self._found[key]

    def never(self, ask: Ask, need: Need) -> str | None:
        """Why windows never let a request start that the nodes could hold; None: at times they do."""
        if self._closings[-1:] == [FOREVER] and self._closings[:1] == [FOREVER]:
            return None
        longest_s = self._longest_s(ask, up=False)
        if need.least_s <= longest_s:
            return None
        asked = f"asks for {words.describe(ask)} {need}; maintenance of {_pools(self._leaving(ask, FOREVER))}"
        if not longest_s:
            return f"{asked} leaves it no time at all (tm policy): make it shorter, or rarer"
        hint = f"give it a time limit of {words.length(longest_s)} or less"
        either = ", or none" if need.limited and need.stops and longest_s >= WINDOW_MIN_S else ""
        return f"{asked} never leaves it more than {words.length(longest_s)}: {hint}{either}"

    def _refusal(self, ask: Ask, need: Need, until_s: float, patient: bool) -> Refusal | None:
        up = [group for group in self._groups if group.open]
        staying = [group for group in up if group.cell.closes_s >= until_s]
        if fits(ask, staying) or impossible(ask, self._groups) is not None:
            return None
        never = None if patient else self.never(ask, need)
        if never is not None:
            return Refusal(Reason.IMPOSSIBLE, never)
        if not fits(ask, up):
            return None  # nodes are away: that comes first
        leaving = [group for group in self._leaving(ask, until_s) if group.open]
        if self._longest_s(ask, up=True) < need.least_s:
            gone = away([group for group in self._groups if group.why != GONE and steps(group.cell, ask.each)])
            never = f"{gone}, and maintenance of {_pools(leaving)} never leaves it as long elsewhere"
            return Refusal(Reason.WINDOW, f"waiting for {words.describe(ask)} {need}: {never}")
        first_s = min(group.cell.closes_s for group in leaving)
        begins = datetime.fromtimestamp(first_s, UTC).strftime("%Y-%m-%d %H:%M")
        way = f"maintenance of {_pools(leaving)} (from {begins} UTC) is in the way"
        return Refusal(Reason.WINDOW, f"waiting for {words.describe(ask)} {need}: {way}")

    def _leaving(self, ask: Ask, until_s: float) -> list[Group]:
        """Nodes that could hold a member and close before `until_s`."""
        able = [group for group in self._groups if group.why != GONE and group.cell.closes_s < until_s]
        return [group for group in able if steps(group.cell, ask.each) or steps(group.cell, ask.first)]

    def _longest_s(self, ask: Ask, up: bool) -> float:
        """The longest time for which enough nodes stay open together, after all windows that do not recur.

        `up`: of the nodes that take work now; else of all nodes.
        """
        found = self._longest.get((ask, up))
        if found is None:
            found = self._longest[ask, up] = self._at_best_s(ask, up)
        return found

    def _at_best_s(self, ask: Ask, up: bool) -> float:
        longest_s = 0.0
        turns = self._turns
        for at_s in turns.ends_s:
            stays = [_stays_s(windows, at_s) for windows in turns.windows]
            for stay_s in sorted({stay_s for stay_s in stays if stay_s > longest_s}, reverse=True):
                there = [group for group, which in turns.groups if stays[which] >= stay_s and (group.open or not up)]
                if fits(ask, there):
                    longest_s = stay_s
                    break
        return longest_s

    @cached_property
    def _turns(self) -> "_Turns":
        known: dict[tuple[Window, ...], int] = {}
        groups = []
        for group in self._groups:
            if group.why == GONE:
                continue
            parts: dict[int, list[Site]] = {}
            for site in group.sites:
                windows = tuple(_again(self._rules, site)) if group.cell.closes_s < FOREVER else ()
                parts.setdefault(known.setdefault(windows, len(known)), []).append(site)
            groups += [(group._replace(sites=tuple(sites)), which) for which, sites in parts.items()]
        every = {window for windows in known for window in windows}
        round_s = max((window.every_s for window in every), default=0.0)  # days and weeks: multiples of each other
        ends_s = {one.until_s + turn * one.every_s for one in every for turn in range(int(round_s // one.every_s))}
        return _Turns(tuple(known), groups, sorted(ends_s) or [0.0])


class _Turns(NamedTuple):
    """Recurring windows: `windows` of each kind of node, `groups` with the number of their kind, the ends of windows."""

    windows: tuple[tuple[Window, ...], ...]
    groups: Sequence[tuple[Group, int]]
    ends_s: Sequence[float]


def _again(rules: Cluster, site: Site) -> Iterable[Window]:
    return (window for window in rules.pool(site.pool).windows if window.every_s and window.touches(site.name))


def _stays_s(windows: Iterable[Window], at_s: float) -> float:
    """For how long a node stays open from `at_s` on; 0 within a window."""
    stay_s = FOREVER
    for window in windows:
        since_s = (at_s - window.from_s) % window.every_s
        stay_s = min(stay_s, window.every_s - since_s if since_s >= window.until_s - window.from_s else 0.0)
    return stay_s


def _pools(groups: Iterable[Group]) -> str:
    names = sorted({group.cell.pool for group in groups})
    return f"pool{'s' * (len(names) > 1)} {', '.join(names)}"
