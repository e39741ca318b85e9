"""`tm run` and `tm submit`: from a file, or from a command behind `--` and options."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trainmaster.cli.session import Session, no_such_option, quiet_option, remote
from trainmaster.client.api import server_known
from trainmaster.client.submission import Draft, Options, draft_command, send
from trainmaster.errors import INTERRUPTED_EXIT, UsageError

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SPEC_SUFFIXES = (".yaml", ".yml", ".json")
_AFTER_DASHES = "trainmaster.command"  # in the context: what stood behind `--`


class _Submitting(click.Command):
    """Takes the command behind `--` aside before anything reads it as options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split at the first `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_AFTER_DASHES], args = args[at + 1 :], args[:at]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = f"options of your program go behind --: tm {ctx.info_name} -- python train.py {error.option_name}"
            raise UsageError(no_such_option(error), hint) from error


_JOB_OPTIONS = (
    click.option("--name", help="Default: the script's name."),
    click.option("--project", help="Who the job belongs to."),
    click.option("--experiment", help="Collection of jobs; default: the name."),
    click.option("--priority", type=int, help="-100 to 100, higher goes first."),
    click.option("--nodes", type=int, help="Number of nodes."),
    click.option("--gpus", help="GPUs per node: 2, or h100:8."),
    click.option("--cpus", type=float, help="CPU cores per node."),
    click.option("--memory", help="Memory limit per node: 64GiB."),
    click.option("--ranks", type=int, help="Training processes per node; default: its GPUs, else 1."),
    click.option("--time-limit", help="Longest time it may run: 12h, 1h30m."),
    click.option("--checkpoint", metavar="GLOB", help="Where checkpoints appear: 'out/ckpt*.pt'."),
    click.option("--keep", type=int, help="How many checkpoints are kept."),
    click.option("--resume-arguments", metavar="TEXT", help="Added to the command on a restart: '--resume {path}'."),
    click.option("--restarts", type=int, help="How many failures of the program are paid for."),
    click.option("--python", metavar="PATH", help="Interpreter in place of the one on PATH."),
    click.option("--env", multiple=True, metavar="K=V", help="A variable for the program."),
    click.option("--param", "--set", "params", multiple=True, metavar="K=V", help="A parameter; wins over the file's."),
    click.option("--metrics-pattern", metavar="REGEX", help="Finds metrics in the output, by named groups."),
    click.option("--primary", metavar="NAME", help="The metric that matters."),
    click.option("--tag", "tags", multiple=True, metavar="K=V", help="A text to find the job by."),
    click.option("--artifact", "artifacts", multiple=True, metavar="GLOB", help="Files to keep."),
    click.option("--workdir", metavar="DIR", help="Directory that is copied; default: this one, or the file's."),
)


def _described(command: _Command) -> _Command:
    """All options that say what the job is, and how it is handed in."""
    own = (
        click.argument("words", nargs=-1, metavar="[FILE | -- COMMAND...]"),
        *_JOB_OPTIONS,
        click.option("--in-place", is_flag=True, help="Run in the directory itself: no copy of the code, nothing set aside."),
        click.option("--hold", is_flag=True, help="Submit it held; start it with: tm release."),
        quiet_option,
    )
    for decorate in reversed(own):
        command = decorate(command)
    return command


@click.command(cls=_Submitting)
@_described
@remote
@click.pass_context
def submit(context: click.Context, /, session: Session, words: tuple[str, ...], **options: Any) -> None:
    """Submit a job and print its id.

    \b
    tm submit train.yaml
    tm submit --gpus 2 -- python train.py --epochs 20
    """
    draft = _draft(context, words, options)
    _told(session, draft, _send(session, draft))


@click.command(cls=_Submitting)
@_described
@click.option("--detach", "-d", is_flag=True, help="Do not follow it.")
@click.option("--all-ranks", is_flag=True, help="Show what all ranks print, not rank 0 alone.")
@remote
@click.pass_context
def run(
    context: click.Context, /, session: Session, words: tuple[str, ...], detach: bool, all_ranks: bool, **options: Any
) -> None:
    """Submit a job and follow it to its end.

    Exit code: 0 it succeeded, 10 it did not, 130 after Ctrl-C (the job goes on).

    \b
    tm run train.yaml --set lr=1e-4
    tm run --gpus 2 --checkpoint 'out/*.pt' -- python train.py
    """
    draft = _draft(context, words, options)
    id = _send(session, draft)
    from trainmaster.cli.follow import Follower, detached  # noqa: PLC0415  # `tm submit` does without

    follower = Follower(session, id, rank=None if all_ranks else 0)
    try:
        _told(session, draft, id, following=not detach)
        code = 0 if detach else follower.follow()
    except KeyboardInterrupt:
        follower.close()
        detached(session, id)
        code = INTERRUPTED_EXIT
    context.exit(code)


def _send(session: Session, draft: Draft) -> str:
    """Submit; the job's id."""
    if not server_known(session.server):  # better to hear of a mistake before a server is started for it
        from trainmaster.client.files import check  # noqa: PLC0415  # a server that runs does it

        check(draft)
    client = session.client()
    try:
        return send(client, draft, session.out.note, os.urandom(16).hex())
    except KeyboardInterrupt:
        session.out.note("interrupted while it was handed in; whether it was accepted: tm ps")
        raise


def _told(session: Session, draft: Draft, id: str, following: bool = False) -> None:
    """Say that the job was accepted."""
    out = session.out
    if out.json:
        out.stream({"id": id})
    elif out.quiet or not following:
        out.data(id)
    if out.quiet or out.json:
        return
    if draft.in_place:
        out.note(f"it runs in {draft.directory} itself: what changes there changes under it")
    if following:
        out.note(f"submitted {id}; Ctrl-C detaches and leaves it running")
    else:
        out.note(f"next: tm release {id}" if draft.hold else f"next: tm logs -f {id}   tm show {id}")


def _draft(context: click.Context, words: tuple[str, ...], options: dict[str, Any]) -> Draft:
    """The job that is meant; one from a file is valid. Raises: UsageError, SpecError."""
    in_place, hold = options.pop("in_place"), "held at submit" if options.pop("hold") else None
    said = Options(**{name: value for name, value in options.items() if value is not None and value != ()})  # type: ignore[typeddict-item]
    command: list[str] | None = context.meta.get(_AFTER_DASHES)
    verb = context.info_name
    if command is not None:
        if words:
            raise UsageError(f"{words[0]!r} stands before -- and a command behind it", "give a FILE, or a COMMAND behind --")
        if not command:
            raise UsageError("there is no command behind --", f"tm {verb} -- python train.py")
        return draft_command(command[0] if len(command) == 1 else command, said, in_place, hold)
    if not words:
        raise UsageError("nothing to run", f"tm {verb} train.yaml   or   tm {verb} -- python train.py")
    if len(words) > 1 or not _is_spec(words[0]):
        raise _no_dashes(str(verb), words)
    from trainmaster.client.files import draft_file  # noqa: PLC0415  # a command does without the validator

    return draft_file(Path(words[0]), said, in_place, hold)


def _is_spec(word: str) -> bool:
    """A file by its suffix, or one without any that cannot be executed."""
    path = Path(word)
    return word.endswith(_SPEC_SUFFIXES) or (not path.suffix and path.is_file() and not os.access(word, os.X_OK))


def _no_dashes(verb: str, words: tuple[str, ...]) -> UsageError:
    """What is right in place of a command without `--`."""
    if words[0].endswith(_SPEC_SUFFIXES):
        hint = f"one file: tm {verb} {words[0]}   with parameters: tm {verb} {words[0]} --set lr=1e-4"
        return UsageError(f"{' '.join(words[1:])!r} behind the file {words[0]} means nothing", hint)
    line = " ".join(words)
    command = f"python {line}" if line.split()[0].endswith(".py") else line
    message = f"{words[0]!r} is no spec file"
    return UsageError(message, f"a command goes behind --: tm {verb} -- {command}   a spec file: tm {verb} train.yaml")
