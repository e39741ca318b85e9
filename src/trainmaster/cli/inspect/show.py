"""`tm show`: shows one job, readable in a plain terminal of 80 columns."""

import io
import math
import os
import re
import shlex
import textwrap
import time
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import click

from trainmaster.agent.files.new_files import without_random
from trainmaster.cli.render import curve, human, system_usage, timeline
from trainmaster.cli.render.log_stream import uncolored
from trainmaster.cli.render.progress import chosen, last_text, values_of
from trainmaster.cli.render.provenance import draw, lineage
from trainmaster.cli.session import JOB, Session, remote
from trainmaster.client.api import ENDED
from trainmaster.client.origin import wanted
from trainmaster.spec.faults import nearest
from trainmaster.wire import rest
from trainmaster.wire.names import METRICS_ARRIVING, METRICS_ELSEWHERE, METRICS_LOST, UNRECORDED

Series = tuple[str | None, list[tuple[float, float]], dict[str, Any] | None]  # the name of a metric, its points, the best one

_WIDTH, _WIDTH_MIN = 80, 40
_CHECKPOINTS = 5
_NUMBERED_MIN = 2  # names of checkpoints that differ in a number only: it may be the step
_ANEW = re.compile(  # a part of a path that has another name at each start: by a count, the date, or the time
    r"\A(?:version|run|exp|trial|try|train)[-_]?\d+\Z|(?<!\d)(?:19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d|(?<!\d)\d\d([-.:_])\d\d\1\d\d(?!\d)",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"\d+(?:[-_.: ]+\d+)*")
_CORRUPT = "CORRUPT: used only if no other is good"
_CHECKPOINT_WIDTH = 45  # columns of a checkpoint's line without its name
_ARTIFACTS = 8
_LOGGED = 12
_METRICS = 24  # listed besides the drawn one
_ITEMS = 40  # parameters, tags, data sets, roles
_MANY = 5  # points without a step, of a program that trains
_READ_BY_S = 30.0  # a run without any metric for so long gets a hint; at once if it has saved a checkpoint
_TEXT, _VALUE = 2000, 200  # characters of a command, and of a value in a list


@click.command()
@click.argument("job", type=JOB)
@click.option("--metric", help="The metric to draw; default: the primary one.")
@click.option("--provenance", is_flag=True, help="Show its code, data and environment: git, packages, machine.")
@click.option("--diff", is_flag=True, help="Print the patch from the commit to the code it ran, for git apply.")
@remote
def show(session: Session, job: str, metric: str | None, provenance: bool, diff: bool) -> None:
    """Show one job: attempts, metrics, checkpoints, failure.

    JOB is an id, a unique prefix of one, a name, @last or @last-failed.
    """
    client, out = session.client(), session.out
    if provenance or diff:
        _provenance(session, job, diff)
        return
    found = client.job(job)
    if out.json:
        out.value(found)
        return
    values = values_of(found)
    name, _ = chosen(values, metric or found["spec"]["metrics"]["primary"])
    name = name or (None if metric else chosen(values, None)[0])
    told = client.curve(found["id"], name) if name else {"series": {}}
    best = (told.get("best") or {}).get(name)  # a server of an older version does not say
    width = min(_WIDTH, max(_WIDTH_MIN, out.width or _WIDTH))
    for line in head(found, time.time(), width):
        out.data(line, found["state"])
    series = [(step, rest.number_of(value)) for step, value in told["series"].get(name, [])]
    points = [(step, math.nan if value is None else value) for step, value in series]
    for line in body(found, time.time(), (name, points, best), (width, out.unicode)):
        out.data(line)
    if metric is not None and name is None:
        out.note(f"no metric {metric!r} in {found['id']}\nthose that there are: tm metrics {found['id']}")


def _provenance(session: Session, job: str, diff: bool) -> None:
    """Show the provenance; with `diff` only the patch, or the patch as a field of the JSON."""
    client, out, patch = session.client(), session.out, io.BytesIO()
    if diff:
        client.diff(job, patch)
    if out.json:
        found = client.provenance(job)
        out.value({**found, "diff": patch.getvalue().decode(errors="replace")} if diff else found)
    elif diff:
        out.file(patch.getvalue())
        out.note("what git does not track is not in the patch, and submodules are not")
    else:
        for line in draw(client.provenance(job)):
            out.data(line)


def head(job: dict[str, Any], now_s: float, width: int = _WIDTH) -> list[str]:
    """A short description of the job."""
    spec, origin, code, need = job["spec"], job["origin"], job["code"], job["spec"]["resources"]
    lines = [f"{job['id']}  {job['state']}{_since(job, now_s)}"]
    if job["reason"] not in ("", job["state"]) and job["state"] not in ("running", "succeeded", "failed"):
        lines += _wrapped(str(job["reason"]), "  ", width=width)
    ways = need.get("choices") or (need,)
    gpus = " or ".join(f"{count:g} × {one['gpu_kind'] or 'GPU'}" for one in ways if (count := one["gpu_share"] or one["gpus"]))
    cpus = f"{need['cpus']:g} CPU{'s' * (need['cpus'] != 1)}"
    ranks = " or ".join(human.plural(count, "rank") for count in dict.fromkeys(one["ranks"] for one in ways))
    each = ", ".join([*([gpus] if gpus else []), cpus, *human.counted(need), ranks])
    most = need.get("nodes_max") or need["nodes"]
    nodes = f"{need['nodes']} to {most}" if most > need["nodes"] else need["nodes"]
    resources = f"{nodes} nodes, each {each}" if most > 1 else each
    limit = f", at most {human.duration(job['time_limit_s'])}" if job["time_limit_s"] else ""
    member = job.get("member") or origin["user"]
    by = f" by {member}" + (f" on {origin['host']}" if origin["host"] else "") if member else ""
    commit = f", git {origin['git_commit'][:8]}" if origin.get("git_commit") else ""
    git = commit + (" with changes" if commit and origin["git_dirty"] else "")
    size = f"{human.plural(code['files'], 'file')}, {human.size(code['bytes'])} copied"
    copied = "in place" if code["in_place"] else size
    linked = f", {code['linked']} linked" if code["linked"] else ""
    uncopied = "" if code["in_place"] else ", not from the copy"
    fields = {
        "command": _cut(job["command"], _TEXT),
        "index": "" if spec.get("index") is None else f"{spec['index']} of its array",
        "belongs to": f"project {job['project']}, experiment {job['experiment']}, {_rank(job)}",
        "urgent": "" if job.get("urgent") is None else f"{job['urgent']['by']}: {job['urgent']['reason']}",
        "needs": resources + limit,
        "beside": _some(f"{name}: {_line(role['command'])}" for name, role in (spec.get("roles") or {}).items()),
        "submitted": f"{human.ago(job['created_s'], now_s)}{by}{git}",
        "code": f"{origin['directory'] or '-'} ({copied}{linked})",
        "imports": _some(f"{name} from {place}{uncopied}" for name, place in (origin.get("editable") or {}).items()),
        **lineage(job),
        "data": _some(f"{name}={uri}" for name, uri in (spec.get("data") or {}).items()),
        "params": _some(_param(job, key, value) for key, value in spec["params"].items()),
        "lost": _lost(job.get("lost_metrics", [])),
        "runs": " ".join(job.get("runs", {}).values()),
        "tags": _some(f"{key}={value}" for key, value in job["tags"].items()),
        "logged": _logged(job.get("logged", {})),
        "uses" if job["ended_s"] is None else "used": system_usage.line(_current(job)),
    }
    told = [_wrapped(value, f"  {name:<11}", " " * 13, width) for name, value in fields.items() if value]
    return [*lines, *(line for wrapped in told for line in wrapped)]


def _current(job: dict[str, Any]) -> dict[str, Any]:
    """Its system metrics; of a job that has not ended, those of the attempt that runs."""
    if job["ended_s"] is not None:
        return job.get("system", {})  # type: ignore[no-any-return]
    begun_s = job["attempts"][-1]["started_s"] if job["attempts"] and job["state"] in ("running", "stopping") else None
    return {} if begun_s is None else {name: one for name, one in job.get("system", {}).items() if one["time_s"] >= begun_s}


def _param(job: dict[str, Any], name: str, value: Any) -> str:
    """`lr=0.5`, with a remark if the program does not read it."""
    return f"{name}={value}" + (" (not read by the program)" if name in job.get("unread_params", ()) else "")


def _lost(metrics: list[str]) -> str:
    return f"{_some(metrics)} (measured by lost work only; all points: tm metrics export --csv)" if metrics else ""


def _rank(job: dict[str, Any]) -> str:
    """Its class if it is not the default, and its priority."""
    usual = job.get("class", "training") == "training"
    return f"{'' if usual else 'class ' + job['class'] + ', '}priority {job['priority']}"


def _logged(logged: dict[str, dict[str, str]]) -> str:
    """Parameters and tags that the program logged to a tracker, without tags that trackers set."""
    tags = {key: value for key, value in logged.get("tags", {}).items() if not key.rpartition("/")[2].startswith("mlflow.")}
    values = [*logged.get("params", {}).items(), *tags.items()]
    told = [f"{key}={textwrap.shorten(value, 40, placeholder='…')}" for key, value in values]
    more = f", … and {len(told) - _LOGGED} more (--json)" if len(told) > _LOGGED else ""
    return ", ".join(told[:_LOGGED]) + more


def _some(texts: Iterable[str], most: int = _ITEMS) -> str:
    """The first items, and the number of further ones."""
    told = [_cut(text, _VALUE) for text in texts]
    more = f", … and {len(told) - most} more (--json)" if len(told) > most else ""
    return ", ".join(told[:most]) + more


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters: --json)"


def _line(command: str | list[str]) -> str:
    return command if isinstance(command, str) else shlex.join(command)


def _since(job: dict[str, Any], now_s: float) -> str:
    """How long it has been in its state; for an ended job how long it took, and when it ended."""
    first_s = job["started_s"] or job["created_s"]
    if job["ended_s"]:
        return f" after {human.duration(job['ended_s'] - first_s)}, {human.ago(job['ended_s'], now_s)}"
    last = job["attempts"][-1] if job["attempts"] else None
    if last is None:
        return f" for {human.duration(max(0.0, now_s - job['created_s']))}"
    since_s = last["ended_s"] or last["started_s"] or last["placed_s"]
    preposition = ", after" if job["state"] == "stopping" else " for"
    number = f" in attempt {last['number']}" if last["number"] > 1 and not last["ended_s"] else ""
    return f"{preposition} {human.duration(max(0.0, now_s - since_s))}{number}"


def _wrapped(text: str, first: str, rest: str = "", width: int = _WIDTH) -> list[str]:
    """`text` wrapped to `width` columns; longer words (paths) stay whole, so that they can be copied."""
    return textwrap.wrap(
        " ".join(text.split()), width, initial_indent=first, subsequent_indent=rest or first, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def body(job: dict[str, Any], now_s: float, series: Series, screen: tuple[int, bool]) -> list[str]:
    """Attempts, metric, checkpoints, artifacts, failure, notes and the next commands; `screen`: columns, whether Unicode."""
    width, unicode = screen
    lines: list[str] = []
    if job["attempts"]:
        glyphs = timeline.UNICODE if unicode else timeline.ASCII
        lines += ["", "Attempts (time since it was submitted)", *timeline.draw(job, now_s, width, glyphs)]
    name, points, best = series
    if name is not None and points:
        axis = "step" if _is_stepped(job, name) else "point"
        lines += ["", *_metric(job, (name, points, best), width), *curve.draw(points, width, ascii_only=not unicode, axis=axis)]
        if axis == "point" and job["step"] is None and len(points) >= _MANY:
            how = f"tm logs {job['id']} --rank 0 | tm metrics try -"
            lines += _wrapped(f"Its values have no step. To see whether one can be read: {how}", "", "  ", width)
    beside = {key: value for key, value in values_of(job).items() if key != name}
    others = [f"{human.middle(key, width)} {last_text(job, key, value)}" for key, value in beside.items()]
    if others:
        hint = f"{len(others) - _METRICS} more: tm show {job['id']} --json, or --metric NAME"
        more = f", … and {hint}" if len(others) > _METRICS else ""
        lines += ["", *_wrapped(f"Other metrics: {', '.join(others[:_METRICS])}{more}", "", "  ", width)]
    unread = _unread_primary(job)
    lines += ["", *_wrapped(unread, "", "  ", width)] if unread else []
    trained = job["ended_s"] is not None and job["step"] is not None
    none = not job["metrics"] and not job.get("lost_metrics")
    if none and (trained or job["checkpoints"] or _ran_s(job, now_s) >= _READ_BY_S):
        how = f"to see what is read from its output, and get a pattern that reads more: tm logs {job['id']} --rank 0"
        lines += ["", *_wrapped(f"Metrics: none is recorded; {how} | tm metrics try -", "", "  ", width)]
    return [*lines, *_checkpoints(job, now_s, width), *_artifacts(job), *_failure(job, width), *_rest(job, width)]


def _unread_primary(job: dict[str, Any]) -> str:
    """That the metric which was named as the primary one was not among those that were read; "" if it was, or may still be."""
    primary, read = job["spec"]["metrics"]["primary"], {*job["metrics"], *job.get("lost_metrics", ())}
    if primary is None or primary in read or not read or job["ended_s"] is None:
        return ""
    near = nearest(primary, sorted(read))
    return f"The primary metric {primary!r} was never read" + (f"; did you mean {near!r}?" if near else "")


def _ran_s(job: dict[str, Any], now_s: float) -> float:
    """For how long its ranks have run, in all attempts."""
    started = [one for one in job["attempts"] if one.get("started_s") is not None]
    return float(sum((one.get("ended_s") or now_s) - one["started_s"] for one in started))


def _is_stepped(job: dict[str, Any], name: str) -> bool:
    """Whether its last point has a step: those of a metric without steps are only numbered."""
    last = job["metrics"].get(name)
    return last is None or last["step"] is not None


def _metric(job: dict[str, Any], series: Series, width: int) -> list[str]:
    """The current value (a restart may have set it back) and the best one."""
    name, points, best = series
    assert name is not None
    step, value = points[-1]
    last = job["metrics"].get(name)
    if last is not None and last["step"] is not None and (now := rest.number_of(last["value"])) is not None:
        step, value = last["step"], now
    diverged = name in (job.get("diverged") or {})
    stepped = _is_stepped(job, name)
    told = last_text(job, name, value) if diverged else f"{human.number(value)}{f' at step {int(step)}' if stepped else ''}"
    if best is not None and best["value"] is not None:
        at = f" at step {int(best['step'])}" if stepped and best["step"] is not None else ""
        at = " before the first step" if best["step"] is None else at
        told += f", {_best_word(job)} {human.number(rest.number_of(best['value']))}{at}"
    return _wrapped(f"Metric {human.middle(name, width)}: {told}", "", "  ", width)


def _best_word(job: dict[str, Any]) -> str:
    """What is not on record may have been better."""
    warned = any(one["topic"] in UNRECORDED for one in job.get("troubles", ()))
    noted = any(note.startswith((METRICS_LOST, METRICS_ELSEWHERE, METRICS_ARRIVING)) for note in job.get("notes", ()))
    return "best on record" if warned or noted else "best"


def _checkpoints(job: dict[str, Any], now_s: float, width: int) -> list[str]:
    kept = job["checkpoints"]
    if not kept:
        return []
    lines = ["", f"Checkpoints ({len(kept)} kept)"]
    steps = [one["step"] for one in kept]
    for one in kept[-_CHECKPOINTS:]:
        step = "step ?" if one["step"] is None else f"step {'about ' if one['approximate'] else ''}{one['step']}"
        own = f"@{one['id']}" if steps.count(one["step"]) > 1 else ""  # what `--from JOB@ID` takes where a step names several
        name, room = one.get("name", ""), width - _CHECKPOINT_WIDTH - len(own)
        name = name if len(name) <= room else f"…{name[1 - room :]}"  # names differ at their end
        told = [human.ago(one["committed_s"], now_s), name, own, "" if one["good"] else _CORRUPT]
        lines.append(f"  {step:<18} {human.size(one['bytes']):>9}  {'  '.join(filter(None, told))}")
        if one["step"] is None and one.get("after_s") is not None:  # a server of an older version does not say when
            lines.append(f"    {timeline.saved_after(one['at_least'], one)}")
    pattern = _with_step(kept)
    if pattern:
        lines.append(f"  their names have a number; if it is the step: --checkpoint {shlex.quote(pattern)}")
    return lines


def _with_step(kept: list[dict[str, Any]]) -> str:
    """A pattern with `{step}` for the number in which the names of checkpoints without an exact step differ, or ""."""
    numbered = [one for one in kept if one["step"] is None or one["approximate"]]
    names = [one.get("name", "") for one in numbered]
    pieces = [re.split(r"(\d+)", name) for name in names]
    if len(set(names)) < _NUMBERED_MIN or len({tuple(one[::2]) for one in pieces}) > 1:
        return ""
    changed = [at for at, column in enumerate(zip(*pieces, strict=True)) if len(set(column)) > 1]
    if len(changed) > 1 or not _grow(numbered, [int(one[changed[0]]) for one in pieces]):
        return ""
    return _for_each_start("".join("{step}" if at in changed else part for at, part in enumerate(pieces[0])))


def _for_each_start(pattern: str) -> str:
    """The pattern with `*` for what is another at the next start: a time, the process id beside it, a random number."""
    stem, suffix = os.path.splitext(without_random(pattern))
    return "/".join(_NUMBERS.sub("*", part) if _ANEW.search(part) else part for part in stem.split("/")) + suffix


def _grow(kept: list[dict[str, Any]], numbers: list[int]) -> bool:
    """Whether the numbers in the names of checkpoints grow as steps do: those of copies in rotation do not."""
    for (one, number), (later, following) in pairwise(zip(kept, numbers, strict=True)):
        known = one["step"] is not None and later["step"] is not None
        further = later["step"] - one["step"] if known else 0
        if one["attempt"] == later["attempt"]:
            if following < number or (following == number and further):
                return False
        elif further * (following - number) < 0:  # a restart may save again what was there
            return False
    return True


def _artifacts(job: dict[str, Any]) -> list[str]:
    kept = job["artifacts"]
    if not kept:
        return []
    total = job["artifacts_total"]
    lines = ["", f"Artifacts ({total})"]
    lines += [f"  {human.size(one['bytes']):>9}  {' '.join(one['path'].split())}" for one in kept[:_ARTIFACTS]]
    if total > _ARTIFACTS:
        lines.append(f"  … and {total - _ARTIFACTS} more: tm artifacts {job['id']}")
    return lines


def _failure(job: dict[str, Any], width: int) -> list[str]:
    failure = job["failure"]
    if not failure or job["state"] != "failed":
        return []
    rank = f", rank {failure['rank']}" if failure["rank"] is not None else ""
    lines = ["", f"Failure: {failure['cause'].replace('_', ' ')}{rank}", *_wrapped(failure["message"], "  ", width=width)]
    variables = wanted(job["spec"], [failure["message"], *failure["last_lines"]])
    more = ["", *_wrapped(variables, "", "  ", width)] if variables else []
    return [*lines, *(f"  | {uncolored(line)}" for line in failure["last_lines"]), *more]


def _rest(job: dict[str, Any], width: int) -> list[str]:
    """Notes, the location of its files, and the next commands."""
    id, work = job["id"], job["work"]
    told = (human.trouble(one) for one in job.get("troubles", ()))  # a server of an older version has none
    troubles = [line for text in told for line in _wrapped(text, "Warning: ", "         ", width)]
    notes = [line for note in job["notes"] for line in _wrapped(note, "Note: ", "      ", width)]
    lines: list[str] = []
    if len(work) > 1:
        lines += ["Work directories", *(f"  {directory}" for directory in work)]
    else:
        lines += [f"Work directory: {directory}" for directory in work]
    removed = job.get("removed", ())  # a server of an older version has none
    commands = [f"tm logs {id}" + ("" if job["state"] in ENDED else " -f")] if job["attempts"] and "logs" not in removed else []
    if job["state"] in ("queued", "held"):
        commands = [f"tm why {id}", *([f"tm release {id}"] if job["state"] == "held" else [])]
    typed = next((one["path"] for one in job["artifacts"] if one["path"].isprintable()), None)
    commands += [f"tm get {id} {shlex.quote(typed)}"] if typed is not None and "artifacts" not in removed else []
    lines += [f"Next: {'   '.join(commands)}"] if commands else []
    return [line for part in (troubles, notes, lines) if part for line in ("", *part)]
