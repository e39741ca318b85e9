"""The notes of `tm show`: what a person should know of a job besides its state and its warnings, and advice. Pure."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from trainmaster.lifecycle.effects import grace_s
from trainmaster.model import redaction
from trainmaster.model.job import Attempt, Cause, Job, State, StopFor
from trainmaster.model.storage_kinds import StorageKind
from trainmaster.recovery import resumption
from trainmaster.scheduling.model.words import length
from trainmaster.wire.names import ENV_TRACKER, METRICS_LOST, METRICS_THINNED, METRICS_UNREAD

_TELLING = {  # known last lines of a failure -> advice; `python` is the interpreter that ran
    re.compile(r"ModuleNotFoundError: No module named '(?P<name>[^']+)'"): (
        "{python} has no module {name!r}: install it there, or name another Python (--python); "
        "for a file of your own, tm plan lists what goes along"
    ),
    re.compile(
        r"bash: line \d+: (?P<name>\S+\.py): command not found"
    ): "a script is started by its interpreter: python {name}",
    re.compile(r"bash: line \d+: (?P<name>\S+): command not found"): (
        "{name!r} is not on the job's PATH: install it, or submit from where it is on the PATH"
    ),
    re.compile(r"bash: line \d+: (?P<name>\S+): Permission denied"): (
        "{name} is not executable: run `chmod +x {name}`, or start it with its interpreter, such as `python {name}`"
    ),
    re.compile(r"(?:\S*/)?python[^\s/:]*: can't open file '(?P<name>[^']+)': \[Errno 2\]"): (
        "there is no {name}: check the name; tm plan lists what goes along"
    ),
}

_UNREAD = (Cause.AGENT_LOST, Cause.NODE_LOST)


def all_of(job: Job, attempts: Sequence[Attempt], seen: Mapping[int, resumption.Evidence]) -> list[str]:
    """All notes of a job. `attempts`: all, in order. `seen`: what is known of how they resumed, by their numbers."""
    began = [*notes(job, seen), *not_loaded(job, attempts), *without_steps(job, attempts), *counted_anew(attempts)]
    return [*began, *unread(job, attempts), *removed(job), *job.not_kept, *own_tracker(job), *advice(job)]


def notes(job: Job, seen: Mapping[int, resumption.Evidence]) -> list[str]:
    """What to do about an attempt that began again although it was given a checkpoint. One note: a restart repeats it."""
    again = [(number, found) for number, found in seen.items() if found.word is resumption.Word.AGAINST]
    return [
        f"attempt {number} was given a checkpoint, but {', and '.join(found.because)}; {_begun_again(job, found)}"
        for number, found in again[-1:]
    ]


def _begun_again(job: Job, found: resumption.Evidence) -> str:
    if not job.spec.checkpoint.resume_arguments:
        return "if the program takes the checkpoint as an argument, name it in checkpoint.resume_arguments (--resume-arguments)"
    loaded = "it may count its steps from the beginning with the checkpoint loaded"
    why = "the program may not have used them" if found.loss_anew else loaded
    return f"checkpoint.resume_arguments were added to its command: {why}"


def not_loaded(job: Job, attempts: Sequence[Attempt]) -> list[str]:
    """A note if the program failed with its checkpoint before its first step, and another one may do."""
    ids = [one.id for one in job.checkpoints]
    last = attempts[-1] if attempts else None
    if job.state is not State.FAILED or job.failure is None or job.failure.cause not in (Cause.PROGRAM, Cause.CRASH):
        return []
    if last is None or last.restored not in ids or any(one.attempt == last.number for one in job.checkpoints):
        return []
    shown = resumption.progress_of(last)
    if shown.steps or shown.first or shown.sdk == "loaded":
        return []
    others = _instead(job, ids.index(last.restored))
    given = job.checkpoints[ids.index(last.restored)]
    what = f"{given.name} ({given.label})" if given.name else given.label
    told = f"attempt {last.number} was given {what} and ended before a step of it was read"
    return ["; ".join([told, *others])] if others else []


def _instead(job: Job, index: int) -> list[str]:
    """What to try in place of a checkpoint: the one before it of such a name, and one of another name."""
    kind = _without_digits(job.checkpoints[index].name)
    before = [one for one in job.checkpoints[:index] if one.good and _without_digits(one.name) == kind]
    told = []
    if before:
        step = before[-1].step
        alone = step is not None and [one.step for one in job.checkpoints].count(step) == 1
        source = step if alone else before[-1].id  # one of another name may have its step
        told.append(f"if it cannot be loaded, go on from the one before: tm rerun {job.id}@{source}")
    apart = [one.name for one in job.checkpoints if one.good and one.name and _without_digits(one.name) != kind]
    if kind and apart and "{path}" not in (job.spec.checkpoint.resume_arguments or ""):
        told.append(f"if the program looks for another name, such as {apart[-1]}, write that as --checkpoint")
    return told


def _without_digits(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def without_steps(job: Job, attempts: Sequence[Attempt]) -> list[str]:
    """A note if a restarted job succeeded and shows no work after the restart: some programs find their directory and end."""
    if job.state is not State.SUCCEEDED or len(attempts) < 2:
        return []
    last, before = attempts[-1], [one for one in attempts[:-1] if resumption.progress_of(one).last_step is not None]
    if not before or resumption.progress_of(last).steps or any(one.attempt == last.number for one in job.checkpoints):
        return []
    ran = "" if last.ran_s is None else f" after {length(last.ran_s)}"
    reached = resumption.progress_of(before[-1]).last_step
    return [
        f"attempt {last.number} ended with exit code 0{ran}; no step was read of it and no checkpoint of it is stored, "
        f"and attempt {before[-1].number} had come to step {reached}: see in tm logs whether the work was done"
    ]


def counted_anew(attempts: Sequence[Attempt]) -> list[str]:
    """A note if the steps began again within an attempt, as those of folds or of several models do. A restart repeats it."""
    fell = [(one.number, fell_to) for one in attempts if (fell_to := resumption.progress_of(one).fell_to) is not None]
    return [
        f"its steps fell back to {fell_to} within attempt {number}: the later value of a metric at a step replaces the "
        "earlier one; what it printed is whole in tm logs"
        for number, fell_to in fell[-1:]
    ]


def unread(job: Job, attempts: Sequence[Attempt]) -> list[str]:
    """A note if agents are gone that had not read all that their ranks printed."""
    gone = [str(one.number) for one in attempts if one.failure is not None and one.failure.cause in _UNREAD]
    which = f"attempts {', '.join(gone)}, whose agents are" if len(gone) > 1 else f"attempt {''.join(gone)}, whose agent is"
    return [f"{METRICS_UNREAD} by {which} gone: tm logs {job.id} has it"] if gone else []


def own_tracker(job: Job) -> list[str]:
    """A note if the program's tracking calls go elsewhere, because of its environment variables."""
    place = job.spec.environment.variables.get(ENV_TRACKER)
    if not place:
        return []
    shown = redaction.text(place)
    return [f"what the program logs through mlflow goes to {shown}, as environment.variables says, and is not in this record"]


def removed(job: Job) -> list[str]:
    """Which of the job's data was removed, or is being removed."""
    if not job.removed:
        return []
    going = still_going(job)
    gone = ", ".join(kind for kind in job.removed if kind not in going)
    told = [f"removed to make room: its {gone}"] if gone else []
    told += [f"being removed to make room: its {', '.join(going)}"] if going else []
    return [f"{'; '.join(told)}; last ordered by {job.removed_by}"]


def metrics_lost(job: Job, replaced_s: float | None) -> list[str]:
    """A note if the job began before the metrics file was replaced. `replaced_s`: when that was; None: never."""
    if replaced_s is None or job.started_s is None or job.started_s >= replaced_s:
        return []
    when = datetime.fromtimestamp(replaced_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [f"{METRICS_LOST} {when} are missing, all or some: metrics.db was damaged, lost or replaced by an older copy"]


def metrics_thinned(job: Job, points: int) -> list[str]:
    """A note if points of its curves were removed, and others stay."""
    if not points or StorageKind.METRICS in job.removed:
        return []
    return [f"{METRICS_THINNED}: {points:,} points are gone; of each curve, the first, the best and the last stay"]


def still_going(job: Job) -> tuple[str, ...]:
    """The kinds of its data that were given up and of which bytes still exist, as far as control knows."""
    there = {*job.clearing, *([StorageKind.CHECKPOINTS.value] if job.deleting else [])}
    return tuple(kind for kind in job.removed if kind in there)


def advice(job: Job) -> list[str]:
    """What to expect of a stop, or advice for a failure with known last lines."""
    if job.state is State.STOPPING and job.stopping_for not in (StopFor.FAILURE, StopFor.START):
        allowed_s = grace_s(job)
        return [f"it was told to save and end; what still runs {allowed_s:g} s after that is killed"] if allowed_s else []
    lines = job.failure.last_lines if job.failure is not None else ()
    python = job.spec.environment.python or "the Python that ran it"
    for line in reversed(lines):
        for telling, told in _TELLING.items():
            if found := telling.match(line):
                return [told.format(python=python, name=found["name"])]
    return []
