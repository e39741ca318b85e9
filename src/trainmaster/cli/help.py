"""`tm help` and `tm version`, and the groups of commands in `tm --help`."""

from collections.abc import Mapping

import click

from trainmaster import __version__
from trainmaster.cli.session import Session, offline

GROUPS = {
    "Start": ("init", "run", "submit", "plan", "render"),
    "Look": ("ps", "show", "logs", "metrics", "why", "queue", "top", "wait", "compare", "artifacts", "get", "note", "get-spec"),
    "Change": ("cancel", "update", "hold", "release", "rerun", "reproduce", "exec", "attach"),
    "The cluster": ("nodes", "gpus", "usage", "policy", "apply", "simulate", "export"),
    "The server and its disk": ("up", "down", "token", "storage", "rm", "prune", "backup", "restore", "doctor"),
    "The command line": ("login", "logout", "help", "version", "config", "completion", "schema"),
}
_OTHERS = "More"


def write_groups(formatter: click.HelpFormatter, lines: Mapping[str, str]) -> None:
    """Write the commands with their lines, group by group; those of no group at the end."""
    grouped = {name for names in GROUPS.values() for name in names}
    width = max(map(len, lines))
    for title, names in {**GROUPS, _OTHERS: tuple(name for name in lines if name not in grouped)}.items():
        known = [(name.ljust(width), lines[name]) for name in names if name in lines]
        if known:
            with formatter.section(title):
                formatter.write_dl(known)


@click.command(name="help")
@click.argument("words", nargs=-1, metavar="[COMMAND...]")
@offline
def help_command(session: Session, words: tuple[str, ...]) -> None:
    """Show the help of a command."""
    context = click.get_current_context().find_root()
    command = context.command
    for word in words:
        if not isinstance(command, click.Group):
            break
        name, found, _ = command.resolve_command(context, [word])
        assert found is not None  # for an unknown command it raises
        command, context = found, click.Context(found, info_name=name, parent=context)
    text = command.get_help(context)
    session.out.value({"help": text}) if session.out.json else session.out.data(text)


@click.command()
@offline
def version(session: Session) -> None:
    """Print the version."""
    session.out.value({"version": __version__}) if session.out.json else session.out.data(f"trainmaster {__version__}")
