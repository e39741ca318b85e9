"""`tm show`: everything about one job, drawn so that it can be read in a plain terminal of 80 columns."""

import textwrap
import time
from typing import Any

import click

from trainmaster.cli import curve, timeline, words
from trainmaster.cli.output import Output
from trainmaster.cli.progress import chosen, values_of
from trainmaster.cli.session import Session, remote

_WIDTH = 80
_CHECKPOINTS = 5
_ARTIFACTS = 8


@click.command()
@click.argument("job")
@click.option("--metric", help="The metric to draw; default: the primary one.")
@remote
def show(session: Session, job: str, metric: str | None) -> None:
    """Everything about one job: attempts, metric, checkpoints, failure.

    JOB is an id, a unique prefix of one, a name, @last or @last-failed.
    """
    client, out = session.client(), session.out
    found = client.job(job)
    if out.json:
        out.value(found)
        return
    values = values_of(found)
    name, _ = chosen(values, metric or found["spec"]["metrics"]["primary"])
    name = name or (None if metric else chosen(values, None)[0])
    points = client.metrics(found["id"], name).get(name, []) if name else []
    for line in head(found, time.time()):
        out.data(line, found["state"])
    for line in body(found, time.time(), (name, [(step, value) for step, value in points if value is not None]), out):
        out.data(line)


def head(job: dict[str, Any], now_s: float) -> list[str]:
    """What it is, in few lines."""
    spec, origin, code, need = job["spec"], job["origin"], job["code"], job["spec"]["resources"]
    lines = [f"{job['id']}  {job['state']}{_since(job, now_s)}"]
    if job["reason"] and job["state"] not in ("running", "succeeded") and not job["failure"]:
        lines += _wrapped(str(job["reason"]), "  ")
    gpus = f"{need['gpus']} × {need['gpu_kind'] or 'GPU'}, " if need["gpus"] else ""
    each = f"{gpus}{need['cpus']:g} CPU, {words.plural(need['ranks'], 'rank')}"
    resources = f"{need['nodes']} nodes, each {each}" if need["nodes"] > 1 else each
    limit = f", at most {words.duration(job['time_limit_s'])}" if job["time_limit_s"] else ""
    by = f" by {origin['user']} on {origin['host']}" if origin["user"] else ""
    commit = f", git {origin['git_commit'][:8]}" if origin.get("git_commit") else ""
    git = commit + (" with changes" if commit and origin["git_dirty"] else "")
    size = f"{words.plural(code['files'], 'file')}, {words.size(code['bytes'])} copied"
    copied = "in place" if code["in_place"] else size
    linked = f", {code['linked']} linked" if code["linked"] else ""
    return [
        *lines,
        *_field("command", job["command"]),
        *_field("belongs to", f"project {job['project']}, experiment {job['experiment']}, priority {job['priority']}"),
        *_field("needs", resources + limit),
        *_field("submitted", f"{words.ago(job['created_s'], now_s)}{by}{git}"),
        *_field("code", f"{origin['directory'] or '-'} ({copied}{linked})"),
        *_field("params", ", ".join(f"{key}={value}" for key, value in spec["params"].items())),
        *_field("tags", ", ".join(f"{key}={value}" for key, value in job["tags"].items())),
    ]


def _since(job: dict[str, Any], now_s: float) -> str:
    if job["ended_s"]:
        took = words.duration(job["ended_s"] - (job["started_s"] or job["created_s"]))
        return f" after {took}, {words.ago(job['ended_s'], now_s)}"
    return f" for {words.duration(max(0.0, now_s - (job['started_s'] or job['created_s'])))}"


def _field(name: str, value: str) -> list[str]:
    return _wrapped(value, f"  {name:<11}", " " * 13) if value else []


def _wrapped(text: str, first: str, rest: str = "") -> list[str]:
    """`text` in lines of 80 columns; words longer than that (paths) stay whole, to be copied."""
    return textwrap.wrap(
        " ".join(text.split()), _WIDTH, initial_indent=first, subsequent_indent=rest or first, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def body(job: dict[str, Any], now_s: float, series: tuple[str | None, list[tuple[float, float]]], out: Output) -> list[str]:
    """Attempts, metric, checkpoints, artifacts, failure, notes and what to type next."""
    lines: list[str] = []
    if job["attempts"]:
        glyphs = timeline.UNICODE if out.unicode else timeline.ASCII
        lines += ["", "Attempts", *timeline.draw(job, now_s, glyphs=glyphs)]
    name, points = series
    drawn = curve.draw(points, _WIDTH, ascii_only=not out.unicode)
    if name is not None and points:
        pick = min if job["spec"]["metrics"]["mode"] == "min" else max
        best = pick(points, key=lambda point: point[1])
        last = points[-1]
        told = f"{name}: {words.number(last[1])} at step {last[0]:g}, best {words.number(best[1])} at step {best[0]:g}"
        lines += ["", f"Metric {told}", *drawn]
    others = [f"{key} {words.number(value)}" for key, value in values_of(job).items() if key != name]
    if others:
        lines += ["", f"Other metrics: {', '.join(others)}"]
    return [*lines, *_checkpoints(job, now_s), *_artifacts(job), *_failure(job), *_rest(job)]


def _checkpoints(job: dict[str, Any], now_s: float) -> list[str]:
    kept = job["checkpoints"]
    if not kept:
        return []
    lines = ["", f"Checkpoints ({len(kept)} kept)"]
    for one in kept[-_CHECKPOINTS:]:
        step = "step ?" if one["step"] is None else f"step {'about ' if one['approximate'] else ''}{one['step']}"
        bad = "" if one["good"] else "  CORRUPT: not used for restarts"
        lines.append(f"  {step:<16} {words.size(one['bytes']):>9}  {words.ago(one['committed_s'], now_s)}{bad}")
    return lines


def _artifacts(job: dict[str, Any]) -> list[str]:
    kept = job["artifacts"]
    if not kept:
        return []
    lines = ["", f"Artifacts ({len(kept)})"]
    lines += [f"  {words.size(one['bytes']):>9}  {one['path']}" for one in kept[:_ARTIFACTS]]
    if len(kept) > _ARTIFACTS:
        lines.append(f"  … and {len(kept) - _ARTIFACTS} more: tm get {job['id']}")
    return lines


def _failure(job: dict[str, Any]) -> list[str]:
    failure = job["failure"]
    if not failure or job["state"] == "succeeded":
        return []
    rank = f", rank {failure['rank']}" if failure["rank"] is not None else ""
    lines = ["", f"Failure: {failure['cause'].replace('_', ' ')}{rank}", *_wrapped(failure["message"], "  ")]
    return [*lines, *(f"  | {line}" for line in failure["last_lines"])]


def _rest(job: dict[str, Any]) -> list[str]:
    lines = [line for note in job["notes"] for line in _wrapped(note, "Note: ", "      ")]
    lines += [f"Work directory: {directory}" for directory in job["work"]]
    following = job["state"] not in ("succeeded", "failed", "cancelled")
    next_command = f"tm logs {job['id']}{' -f' if following else ''}"
    if job["state"] in ("queued", "held"):
        next_command = f"tm why {job['id']}"
    return ["", *lines, f"Next: {next_command}" + (f"   tm get {job['id']}" if job["artifacts"] else "")]
