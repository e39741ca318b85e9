"""Options that describe a job, from a file or after `--`; shared by `tm run`, `submit`, `plan` and `render`."""

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trainmaster.cli.render import times
from trainmaster.cli.session import no_such_option
from trainmaster.client.start_options import array_of, overridden, start_of
from trainmaster.client.submission import Draft, Options, draft_command
from trainmaster.errors import UsageError

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SPEC_SUFFIXES = (".yaml", ".yml", ".json")
_SCRIPT_MAX_BYTES = 1024 * 1024
_SPAN = re.compile(r"([0-9]{1,5}) ?(?:\.\.\.?|-|:) ?([0-9]{1,5})")
_NODES_MIN, _SIZES = "--nodes-min", "the smallest and the largest number: --nodes {} --nodes-max {}"
_AFTER_DASHES = "trainmaster.command"  # key in the context: the words after `--`


class JobCommand(click.Command):
    """A click command that takes the words after `--` out of the arguments before options are parsed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split at the first `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_AFTER_DASHES], args = args[at + 1 :], args[:at]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name == _NODES_MIN:
                raise UsageError(f"there is no option {_NODES_MIN!r}: it is --nodes", _SIZES.format("2", "8")) from error
            hint = f"put options of your program after --: tm {ctx.info_name} -- python train.py {error.option_name}"
            raise UsageError(no_such_option(error), hint) from error


class _Nodes(click.types.IntParamType):
    """A number of nodes. A range is rejected with the two options that it is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Raises: UsageError for a range, click's errors for anything else."""
        found = _SPAN.fullmatch(value) if isinstance(value, str) else None
        if found is not None:
            raise UsageError(f"--nodes {value}: a range of nodes is two options", _SIZES.format(*found.groups()))
        return super().convert(value, param, ctx)


def _with_unit(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A duration as it is written. Raises: UsageError for a bare number: Slurm means minutes, a spec file means seconds."""
    if value is None or not times.is_bare(value):
        return value
    number, flag = value.strip(), option.opts[0]
    raise UsageError(f"{flag} {number}: {number} of what?", f"minutes: {flag} {number}m  hours: {number}h  seconds: {number}s")


def time_limit_option(text: str) -> Callable[[_Command], _Command]:
    """The option `--time-limit`, which needs a unit."""
    return click.option("--time-limit", metavar="TIME", callback=_with_unit, help=text)


added_option = click.option(
    "--add-param", "new_params", multiple=True, metavar="K=V", help="A parameter that the file or parent does not have."
)
_JOB_OPTIONS = (
    click.option("--name", help="Default: the script's name."),
    click.option("--project", help="The project of the job."),
    click.option("--experiment", help="A collection of jobs; default: the name."),
    click.option("--class", "work", metavar="NAME", help="Workload class: interactive, training, …; tm policy lists them."),
    click.option("--priority", type=int, help="-100 to 100, higher goes first within its class."),
    click.option("--pool", metavar="NAME", help="The pool to take nodes from; default: any."),
    click.option("--choose", type=click.Choice(["finish", "cost"]), help="Between kinds of GPU, choose by end time or cost."),
    click.option("--nodes", type=_Nodes(), help="Number of nodes."),
    click.option("--nodes-max", type=int, help="More nodes, if free at its start and not needed by other jobs."),
    click.option("--gpus", help="GPUs per node: 2, or h100:8; h100:4,a100:8 means any of these."),
    click.option("--cpus", type=float, help="CPU cores per node; the ranks share them as threads."),
    click.option("--memory", help="Memory limit per node: 64GiB."),
    click.option("--disk", help="Scratch space per node: 200GiB."),
    click.option("--network", help="Network bandwidth per node: 100Gbps."),
    click.option("--accelerator", "accelerators", multiple=True, metavar="KIND=N", help="Accelerators other than GPUs."),
    click.option("--custom", multiple=True, metavar="NAME=N", help="Resources that your administrator defines: license=1."),
    click.option("--ranks", type=int, help="Training processes per node; default: its GPUs, else 1."),
    time_limit_option("Maximum run time: 12h, 1h30m."),
    click.option("--checkpoint", metavar="GLOB", help="Where the program saves checkpoints: 'out/ckpt*.pt'."),
    click.option("--keep", type=int, help="How many checkpoints to keep."),
    click.option(
        "--checkpoint-interval", metavar="TIME", callback=_with_unit, help="How often sdk.should_checkpoint() says yes: 10m."
    ),
    click.option("--resume-arguments", metavar="TEXT", help="Added to the command on a restart: '--resume {path}'."),
    click.option("--restarts", type=int, help="How many restarts after failures of the program."),
    click.option("--python", metavar="PATH", help="Interpreter to use instead of the one on PATH."),
    click.option("--requirements", metavar="FILE", help="Packages to install into an environment for the job."),
    click.option("--function", metavar="MODULE:NAME", help="A function to call with the parameters, instead of a command."),
    click.option("--data", multiple=True, metavar="NAME=PATH", help="Passed to the program as TRAINMASTER_DATA_NAME."),
    click.option("--env", multiple=True, metavar="K[=V]", help="A variable for the program; K alone passes your value on."),
    click.option("--env-file", multiple=True, metavar="FILE", help="Variables from a file of K=V lines, as docker reads it."),
    click.option("--param", "--set", "params", multiple=True, metavar="K=V", help="A parameter; overrides the file's."),
    click.option("--metrics-pattern", metavar="REGEX", help="Finds metrics in the output by named groups."),
    click.option(
        "--metrics-file", "metrics_files", multiple=True, metavar="GLOB", help="Reads metrics from the rows of files, too."
    ),
    click.option("--primary", metavar="NAME", help="The primary metric."),
    click.option("--tag", "tags", multiple=True, metavar="K=V", help="A tag to find the job by."),
    click.option("--artifact", "artifacts", multiple=True, metavar="GLOB", help="Files to store as artifacts."),
    click.option("--notify", multiple=True, metavar="TO", help="Told of its end: https://…, an e-mail address, run:COMMAND."),
    click.option("--notify-on", type=click.Choice(["end", "failure"]), help="Of every end (default), or of failures only."),
    click.option("--workdir", metavar="DIR", help="Directory to copy; default: this one, or the file's."),
)


_URGENT_OPTIONS = (
    click.option("--urgent", is_flag=True, help="Schedule before all other jobs; needs permission and --reason."),
    click.option("--reason", metavar="TEXT", help="Why it is urgent: recorded, and shown to delayed jobs."),
)


_START_OPTIONS = (
    click.option("--after", multiple=True, metavar="JOB[:ok|any|failed]", help="Start once JOB has ended so; default: ok."),
    click.option("--begin", metavar="TIME", help="Not before 22:00, '2026-12-24 08:00', or +2h from now."),
    click.option("--max-running", type=click.IntRange(1, 10_000), help="Start only while fewer of your jobs run."),
    click.option("--array", metavar="0-9[%N]", help="A job per index ({index} in the command), at most N at once."),
)


def with_job_options(command: _Command) -> _Command:
    """Add all options that describe the job and how it is submitted."""
    own = (
        click.argument("words", nargs=-1, type=click.Path(), metavar="[FILE | -- COMMAND...]"),
        *_JOB_OPTIONS,
        added_option,
        click.option("--in-place", is_flag=True, help="Run in the directory itself: do not copy the code."),
        click.option("--hold", is_flag=True, help="Submit it held; start it with: tm release."),
        *_START_OPTIONS,
        *_URGENT_OPTIONS,
    )
    for decorate in reversed(own):
        command = decorate(command)
    return command


explained = click.option(
    "-v", "--verbose", is_flag=True, help="Show what is copied, linked and left out, and which variables go along."
)
keyed = click.option("--key", metavar="TEXT", help="Idempotency key: a retry with the same key makes no second job.")


def with_source_option(command: _Command) -> _Command:
    """Add the options of a command that may start from another job's checkpoint."""
    source = click.option("--from", "source", metavar="JOB[@STEP]", help="Start from a job's checkpoint; default: its newest.")
    return source(command)


def urgent_of(options: dict[str, Any]) -> str | None:
    """Pop the options about urgency; returns the reason, or None if the job is not urgent. Raises: UsageError."""
    urgent, reason = options.pop("urgent"), options.pop("reason")
    if urgent and not (reason or "").strip():
        raise UsageError("--urgent needs a reason, for those who wait instead", "--urgent --reason 'the demo is at three'")
    if reason is not None and not urgent:
        raise UsageError("--reason has no effect without --urgent", "make it urgent: --urgent --reason TEXT")
    return reason if urgent else None


def command_of(context: click.Context) -> str | list[str] | None:
    """The command after `--`; a single word is a line for bash. Raises: UsageError if there is none."""
    command: list[str] | None = context.meta.get(_AFTER_DASHES)
    if command is None:
        return None
    if not command:
        raise UsageError("there is no command after --", f"tm {context.info_name} -- python train.py")
    return command[0] if len(command) == 1 else command


def draft_of(context: click.Context, words: tuple[str, ...], options: dict[str, Any]) -> Draft:
    """The described job; a job from a file is validated. Raises: UsageError, SpecError."""
    urgent, key = urgent_of(options), options.pop("key", None)
    start = start_of(options.pop("after"), options.pop("begin"))
    written = options.pop("array")
    names = tuple(one.partition("=")[0] for one in options.get("params") or ())
    draft = _draft_of(context, words, options)
    array = draft.array if written is None else array_of(written)
    spec = draft.spec if array is None else {**draft.spec, "index": array.indices[0]}
    start = overridden(draft.start, start)
    return draft._replace(spec=spec, urgent=urgent, key=key, set_params=names, start=start, array=array)


def _draft_of(context: click.Context, words: tuple[str, ...], options: dict[str, Any]) -> Draft:
    in_place, hold = options.pop("in_place"), "held at submit" if options.pop("hold") else None
    new_params: tuple[str, ...] = options.pop("new_params", ())
    said = Options(**{name: value for name, value in options.items() if value is not None and value != ()})  # type: ignore[typeddict-item]
    set_params = said.get("params", ())
    if new_params:
        said["params"] = (*set_params, *new_params)
    script = _script_of(words[0]) if words else None
    if script is not None:
        from trainmaster.client.files import draft_script  # noqa: PLC0415  # few jobs are scripts of Slurm

        arguments = (*words[1:], *context.meta.get(_AFTER_DASHES, ()))
        draft = draft_script(Path(words[0]), script, arguments, said, in_place)
        return draft._replace(hold=hold) if hold else draft
    command, verb = command_of(context), context.info_name
    if command is not None:
        if words:
            raise UsageError(f"both {words[0]!r} and a command after -- are given", "give a FILE, or a COMMAND after --")
        draft = draft_command(command, said, in_place, hold)
        return draft._replace(notes=left_behind(command, draft.directory)) if "workdir" in said else draft
    if "function" in said and not words:
        return draft_command(None, said, in_place, hold)
    if not words:
        raise UsageError("nothing to run", f"tm {verb} train.yaml   or   tm {verb} -- python train.py")
    if len(words) > 1 or not _is_spec(words[0]):
        raise _no_dashes(str(verb), words)
    from trainmaster.client.files import check_params, draft_file  # noqa: PLC0415  # a command needs no validator

    check_params(Path(words[0]), set_params)
    return draft_file(Path(words[0]), said, in_place, hold)


def left_behind(command: str | list[str], directory: Path) -> tuple[str, ...]:
    """A note if the script is here, and not where the command starts: in the work `directory`, which is above this one."""
    line = command if isinstance(command, str) else shlex.join(command)
    words = line.split()
    script = next((word for word in words if word.endswith((".py", ".sh"))), "")
    if "cd" in words or not os.path.isfile(script) or os.path.exists(directory / script):
        return ()
    here, top = Path.cwd(), directory.resolve()
    if here == top or not here.is_relative_to(top):
        return ()
    inside = shlex.quote(str(here.relative_to(top)))
    started = shlex.quote(f"cd {inside} && {line}")
    return (f"the command starts in {top}, and {script} is in {inside}: give it as {inside}/{script}, or as {started}",)


def _script_of(word: str) -> str | None:
    """The text of a batch script of Slurm; None if the word names none."""
    if word.endswith(_SPEC_SUFFIXES) or not Path(word).is_file():
        return None
    try:
        with open(word, "rb") as file:
            text = file.read(_SCRIPT_MAX_BYTES).decode(errors="replace") if file.read(2) == b"#!" else ""
    except OSError as error:
        raise UsageError(f"{word} cannot be read: {error.strerror}", "check its permissions") from error
    return f"#!{text}" if any(line.startswith("#SBATCH") for line in text.splitlines()) else None


def _is_spec(word: str) -> bool:
    """Whether a word names a spec file: by its suffix, or a file without suffix that is not executable."""
    path = Path(word)
    return word.endswith(_SPEC_SUFFIXES) or (not path.suffix and path.is_file() and not os.access(word, os.X_OK))


def _no_dashes(verb: str, words: tuple[str, ...]) -> UsageError:
    """What is right in place of a command without `--`."""
    if words[0].endswith(_SPEC_SUFFIXES):
        hint = f"one file: tm {verb} {words[0]}   with parameters: tm {verb} {words[0]} --set lr=1e-4"
        return UsageError(f"{' '.join(words[1:])!r} after the file {words[0]} has no meaning", hint)
    if Path(words[0]).is_dir():
        inside = next(iter(sorted(path.name for path in Path(words[0]).glob("*.y*ml"))), "train.yaml")
        hint = f"name the spec file in it: tm {verb} {Path(words[0]) / inside}"
        return UsageError(f"{words[0]!r} is a directory", hint)
    line = " ".join(words)
    command = f"python {line}" if line.split()[0].endswith(".py") else line
    message = f"{words[0]!r} is not a spec file"
    return UsageError(message, f"a command goes after --: tm {verb} -- {command}   a spec file: tm {verb} train.yaml")
