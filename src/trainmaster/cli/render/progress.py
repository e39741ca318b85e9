"""The progress of a running job: step, rate and remaining time, from its reports and its output. Pure; time is passed in."""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.agent.metrics.vocabulary import measured
from trainmaster.cli.render import human
from trainmaster.model.metric_modes import guessed_mode
from trainmaster.wire import rest

_OF = re.compile(
    r"\b(?:step|iter(?:ation)?|epoch|batch|round)s?\b[\s:=\[(#]{0,4}(\d{1,12})\s*(?:/|of)\s*(\d{1,12})\b", re.IGNORECASE
)
_TOTALS = ("steps", "max_steps", "total_steps", "num_steps", "train_steps", "max_iters", "iterations")
_USUAL = ("loss", "train_loss", "train/loss")
_WINDOW_S = 60.0
_TAIL = 4000  # characters of new output that are searched for "x/y"


def total_steps(params: Mapping[str, Any]) -> int | None:
    """The number of steps, if a parameter with a usual name gives it."""
    for name in _TOTALS:
        value = params.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


@dataclass
class Meter:
    """Follows one job. `total`: the number of steps; None if unknown."""

    total: int | None = None
    step: int | None = None
    counted: tuple[int, int] | None = None  # the last "x/y" in the output
    _seen: deque[tuple[float, float]] = field(default_factory=deque)  # (time_s, position)

    def read(self, text: str, now_s: float) -> None:
        """Search the output for "step x/y"."""
        for done, total in _OF.findall(text[-_TAIL:])[-1:]:
            if 0 < int(total) >= int(done):
                self.counted = (int(done), int(total))
                self._moved(float(done), now_s)

    def report(self, step: int | None, now_s: float) -> None:
        """Record the step that the server reports."""
        if step is None:
            return
        self.step = step
        if self.counted is None:
            self._moved(float(step), now_s)

    def _moved(self, position: float, now_s: float) -> None:
        if self._seen and position < self._seen[-1][1]:
            self._seen.clear()  # a restart: the old pace is no longer valid
        if not self._seen or position > self._seen[-1][1]:
            self._seen.append((now_s, position))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > _WINDOW_S:
            self._seen.popleft()

    @property
    def rate(self) -> float | None:
        """Steps per second over the last minute; None if unknown."""
        if len(self._seen) < 2:
            return None
        (from_s, first), (to_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (to_s - from_s) if to_s > from_s else None

    def left_s(self) -> float | None:
        """Remaining seconds; None if unknown."""
        total = self.counted[1] if self.counted else self.total
        if total is None or not self._seen or not self.rate:
            return None
        return max(0.0, (total - self._seen[-1][1]) / self.rate)


def line(job: Mapping[str, Any], meter: Meter, primary: str | None, width: int) -> str:
    """One line for the terminal: state, step and total, rate, primary metric, remaining time."""
    parts = [str(job["state"])]
    if job["state"] not in ("running", "stopping"):
        parts.append("" if job.get("reason") == job["state"] else str(job.get("reason") or ""))
    counted, total = meter.counted, meter.total
    if counted is not None:
        parts.append(f"{counted[0]}/{counted[1]}")
    elif meter.step is not None:
        parts.append(f"step {meter.step}/{total}" if total is not None else f"step {meter.step}")
    if meter.rate is not None:
        parts.append(f"{meter.rate:.3g}/s" if meter.rate >= 0.1 else f"{human.duration(1 / meter.rate)} each")
    name, value = chosen(values_of(job), primary)
    if name is not None:
        parts.append(f"{name} {last_text(job, name, value)}")
    left_s = meter.left_s()
    if left_s is not None:
        parts.append(f"{human.duration(left_s)} left")
    text = " · ".join(part for part in parts if part)
    return text if len(text) <= width else text[: width - 1] + "…"


def values_of(job: Mapping[str, Any]) -> dict[str, float | None]:
    """The last value by metric name, from a list entry (`name: value`) or a job (`name: {step, value, time_s}`)."""
    metrics: Mapping[str, Any] = job.get("metrics") or {}
    values = {name: told.get("value") if isinstance(told, Mapping) else told for name, told in metrics.items()}
    return {name: rest.number_of(value) for name, value in values.items()}


def last_text(job: Mapping[str, Any], name: str, value: float | None) -> str:
    """The last value of a metric, and since when it is not finite: `nan since step 4, last finite 0.3333 at 3`."""
    diverged = (job.get("diverged") or {}).get(name)  # a server of an older version does not say
    return human.number(value) if diverged is None else human.diverged(diverged)


def chosen(values: Mapping[str, float | None], primary: str | None) -> tuple[str | None, float | None]:
    """The metric to show: the primary one, else a loss, else one that may be best, else what was measured, else any.

    Of several, the first by name.
    """
    if primary is not None:
        return (primary, values[primary]) if primary in values else (None, None)
    found = min(values, key=_rank, default=None)
    return (None, None) if found is None else (found, values[found])


def _rank(name: str) -> tuple[int, bool, bool, bool, str]:
    usual = _USUAL.index(name) if name in _USUAL else len(_USUAL)
    return usual, "loss" not in name.lower(), guessed_mode(name) is None, not measured(name), name
