"""Draws a job's attempts on one time axis as text. Pure."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.cli.render import human
from trainmaster.cli.render.table import fit, width_of

_HEAD, _TAIL = 3, 12  # attempts drawn if there are too many
_BESIDE = 44  # columns beside the bar: the number before it, the end and the nodes after it
_BAR_MIN = 12


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a bar: starting, running."""

    starting: str = "░"
    running: str = "█"
    ellipsis: str = "…"
    times: str = "×"


UNICODE = Glyphs()
ASCII = Glyphs("-", "#", "...", "x")


def draw(job: Mapping[str, Any], now_s: float, width: int = 80, glyphs: Glyphs = UNICODE) -> list[str]:
    """One bar per attempt, from submission to its end or now, with its run time; below it what it was given and why it ended.

    For the last attempt of a failed or cancelled job the end is left out: it is the end of the job.
    """
    bar = max(_BAR_MIN, width - _BESIDE)
    attempts: Sequence[Mapping[str, Any]] = job["attempts"]
    begin_s = float(job["created_s"])
    end_s = max(float(job["ended_s"] or now_s), begin_s + 0.001)
    lines = [_axis(begin_s, end_s, bar)]
    if job.get("state") in ("failed", "cancelled") and attempts:
        attempts = [*attempts[:-1], {**attempts[-1], "cause": None}]
    span = begin_s, end_s
    for attempt in attempts[:_HEAD] if len(attempts) > _HEAD + _TAIL else attempts:
        lines += _attempt(attempt, _gpus(job, attempt, glyphs), span, bar, glyphs)
    if len(attempts) > _HEAD + _TAIL:
        lines.append(f"  {glyphs.ellipsis}  {len(attempts) - _HEAD - _TAIL} more (tm show {job['id']} --json has all)")
        for attempt in attempts[-_TAIL:]:
            lines += _attempt(attempt, _gpus(job, attempt, glyphs), span, bar, glyphs)
    return lines


def _gpus(job: Mapping[str, Any], attempt: Mapping[str, Any], glyphs: Glyphs) -> str:
    """What an attempt got of its job's choices of GPUs; empty for a job without a choice."""
    choice = attempt.get("choice")  # a server of an older version does not say
    if choice is None:
        return ""
    one = job["spec"]["resources"]["choices"][choice]
    each = " each" if len(attempt.get("nodes") or ()) > 1 else ""
    return f": {one['gpu_share'] or one['gpus']:g} {glyphs.times} {one['gpu_kind'] or 'GPU'}{each}"


def _axis(begin_s: float, end_s: float, bar: int) -> str:
    right = human.duration(end_s - begin_s)
    return "     0 s" + right.rjust(bar - 3)


def _attempt(attempt: Mapping[str, Any], gpus: str, span: tuple[float, float], bar: int, glyphs: Glyphs) -> list[str]:
    begin_s, end_s = span
    placed_s = float(attempt["placed_s"])
    started_s, ended_s = attempt.get("started_s"), attempt.get("ended_s")
    last_s = end_s if ended_s is None else float(ended_s)

    def column(time_s: float) -> int:
        return min(bar, max(0, round((time_s - begin_s) / (end_s - begin_s) * bar)))

    first, last = min(column(placed_s), bar - 1), column(last_s)
    last = max(last, first + 1)
    middle = last if started_s is None else min(max(column(float(started_s)), first), last - 1)
    drawn = " " * first + glyphs.starting * (middle - first) + glyphs.running * (last - middle)
    took = f" for {human.duration(last_s - placed_s)}"
    ran_s = attempt.get("ran_s")
    if started_s is not None and ran_s != 0.0:  # of a lost agent, how long it ran may not be known
        took = f", ran {human.duration(last_s - float(started_s) if ran_s is None else float(ran_s))}"
    head, width = f"  {attempt['number']:>2} {drawn:<{bar}}  {attempt['state']}{took}", bar + _BESIDE
    nodes: Sequence[str] = attempt.get("nodes") or ()
    where = f" on {', '.join(nodes)}{gpus}" if nodes else ""
    beside = not nodes or width_of(head + where) <= width
    below = [] if beside else [_where(nodes, gpus, width - 5)]  # never cut to nothing
    return [fit(head + where if beside else head, width), *(f"     {line}" for line in (*below, *told(attempt, width - 5)))]


def _where(nodes: Sequence[str], gpus: str, width: int) -> str:
    """The nodes, as many as fit into a line of `width` columns, and how many more there are."""
    for count in range(min(len(nodes), width), 0, -1):
        more = f" and {len(nodes) - count} more" if count < len(nodes) else ""
        line = f"on {', '.join(nodes[:count])}{more}{gpus}"
        if width_of(line) <= width:
            return line
    return fit(line, width)


def resumed_line(attempt: Mapping[str, Any]) -> str:
    """What it was given, and what is seen of it; empty for a first attempt from the beginning."""
    place, word = given(attempt), attempt.get("resumed_evidence")  # a server of an older version has no evidence
    because = ", and ".join(attempt.get("resumed_because") or ())
    told = f": {because}" if because else ""
    if not place:
        if word == "seen":
            return f"given no checkpoint, but it went on{told}"
        started = attempt.get("number", 1) > 1 and attempt.get("started_s") is not None
        return "given no checkpoint; it may find files of its own" if started else ""
    if word == "seen":
        return f"resumed from {place}{told}"
    if word == "against":
        return f"given {place}, but {because}"
    return f"given {place}; not known whether it went on from there{told}" if word else f"given {place}"


def given(attempt: Mapping[str, Any]) -> str:
    """The checkpoint that was put in place for it; empty for none."""
    step, checkpoint, saved = attempt.get("resumed_from_step"), attempt.get("resumed_from"), attempt.get("resumed_saved")
    if saved:
        return saved_place(str(checkpoint), step, saved)
    if step is not None:
        return f"{'about ' if attempt.get('resumed_about') else ''}step {step}"
    return f"checkpoint {checkpoint}, whose step is not known" if checkpoint else ""


def saved_place(checkpoint: str, at_least: int | None, saved: Mapping[str, Any]) -> str:
    """What is known of a checkpoint without a step."""
    return f"checkpoint {checkpoint}, {saved_after(at_least, saved)}"


def saved_after(given: int | None, saved: Mapping[str, Any]) -> str:
    """When a checkpoint was saved, and the step of what its attempt had been given. That attempt may have begun again."""
    began = "began" if given is None else f"was given step {given}"
    return f"saved {human.duration(saved['after_s'])} after attempt {saved['attempt']} {began}"


def told(attempt: Mapping[str, Any], width: int) -> list[str]:
    """What an attempt was given, wrapped, and why it ended, in one line; `width` columns each."""
    lines = textwrap.wrap(resumed_line(attempt), width)
    if attempt.get("cause"):
        message = str(attempt.get("message") or "").strip()
        cause = str(attempt["cause"]).replace("_", " ")
        lines.append(fit(f"{cause}: {message}" if message else cause, width))
    return lines
