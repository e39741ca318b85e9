"""The `tm` command: the table of commands, loaded on demand, and the one place that reports errors."""

import json
import os
import re
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from trainmaster import __version__
from trainmaster.cli.examples import add_examples
from trainmaster.cli.help import write_groups
from trainmaster.cli.render.output import tell
from trainmaster.cli.session import JOB, Session, json_option, no_such_option, server_option
from trainmaster.errors import INTERRUPTED_EXIT, OperationError, TrainmasterError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "init": ("trainmaster.cli.admin.init:init", "Start with example files that run as they are."),
    "run": ("trainmaster.cli.jobs.run:run", "Submit a job and follow it to its end."),
    "submit": ("trainmaster.cli.jobs.submit:submit", "Submit a job and print its id."),
    "plan": ("trainmaster.cli.jobs.plan:plan", "Show what a submit would do, without submitting."),
    "render": ("trainmaster.cli.jobs.plan:render", "Print exactly what an engine would run."),
    "wait": ("trainmaster.cli.jobs.wait:wait", "Wait until jobs have ended."),
    "ps": ("trainmaster.cli.inspect.ps:ps", "List jobs, newest first."),
    "top": ("trainmaster.cli.inspect.top:top", "Watch nodes and jobs live."),
    "show": ("trainmaster.cli.inspect.show:show", "Show one job: attempts, metrics, checkpoints, failure."),
    "get-spec": ("trainmaster.cli.jobs.get_spec:get_spec", "Print the spec file that would submit a job again."),
    "why": ("trainmaster.cli.inspect.why:why", "Why a job waits, what would let it start, and when it will."),
    "queue": ("trainmaster.cli.inspect.queue:queue", "List waiting jobs in order, with start estimates."),
    "logs": ("trainmaster.cli.inspect.logs:logs", "Print a job's output, all attempts."),
    "metrics": ("trainmaster.cli.metrics.group:metrics", "Show or export the metrics of jobs; try what is read from a log."),
    "artifacts": ("trainmaster.cli.inspect.artifacts:artifacts", "List a job's artifacts."),
    "get": ("trainmaster.cli.inspect.artifacts:get", "Download a job's artifacts: one, those that match, or all."),
    "compare": ("trainmaster.cli.inspect.compare:compare", "Compare jobs: differences, metrics and curves."),
    "note": ("trainmaster.cli.inspect.note:note", "Write or read the logbook."),
    "exec": ("trainmaster.cli.jobs.exec:execute", "Run a command beside a live job, on its node."),
    "attach": ("trainmaster.cli.jobs.exec:attach", "Open a shell beside a live job, on its node."),
    "cancel": ("trainmaster.cli.jobs.cancel:cancel", "Cancel jobs."),
    "update": ("trainmaster.cli.jobs.update:update", "Change jobs: priority, time limit, class, tags."),
    "rerun": ("trainmaster.cli.jobs.resubmit:rerun", "Run a job again: as it was, with changes, or from a checkpoint."),
    "reproduce": ("trainmaster.cli.jobs.resubmit:reproduce", "Run a job again and compare the results."),
    "hold": ("trainmaster.cli.jobs.hold:hold", "Keep waiting jobs from starting."),
    "release": ("trainmaster.cli.jobs.hold:release", "Release held jobs."),
    "nodes": ("trainmaster.cli.inspect.nodes:nodes", "Manage nodes: list, drain, resume, declare lost."),
    "gpus": ("trainmaster.cli.inspect.nodes:gpus", "List GPUs: who uses them, and how much."),
    "usage": ("trainmaster.cli.inspect.usage:usage", "GPU-hours and cost, by project, member, day."),
    "apply": ("trainmaster.cli.admin.cluster:apply", "Apply a cluster configuration: pools, projects, quotas, classes."),
    "policy": ("trainmaster.cli.admin.cluster:policy", "Explain the cluster configuration."),
    "simulate": ("trainmaster.cli.simulate.group:simulations", "Replay a cluster trace through the real scheduler."),
    "export": ("trainmaster.cli.inspect.export:export", "Export the history of all jobs, for tm simulate."),
    "up": ("trainmaster.cli.admin.server:up", "Start this machine's server, or restart its dead processes."),
    "down": ("trainmaster.cli.admin.server:down", "Stop this machine's server; jobs keep running."),
    "login": ("trainmaster.cli.admin.login:login", "Use the server of another machine."),
    "logout": ("trainmaster.cli.admin.login:logout", "Forget that server and its token."),
    "token": ("trainmaster.cli.admin.token:token", "Manage access tokens: create, list, revoke."),
    "rm": ("trainmaster.cli.jobs.remove:rm", "Remove stored bytes of ended jobs; their record stays."),
    "prune": ("trainmaster.cli.jobs.remove:prune", "Remove stored bytes of jobs that ended long ago."),
    "storage": ("trainmaster.cli.admin.storage:storage", "Show disk usage, and remove unneeded bytes."),
    "backup": ("trainmaster.cli.admin.backup:backup", "Back up this machine's server while it runs."),
    "restore": ("trainmaster.cli.admin.backup:restore", "Restore this machine's server from a backup."),
    "doctor": ("trainmaster.cli.admin.doctor:doctor", "Check the installation and the server."),
    "help": ("trainmaster.cli.help:help_command", "Show the help of a command."),
    "version": ("trainmaster.cli.help:version", "Print the version."),
    "config": ("trainmaster.cli.admin.config:config", "Show and change settings, and where they come from."),
    "completion": ("trainmaster.cli.admin.completion:completion", "Print the script for shell completion."),
    "schema": ("trainmaster.cli.admin.schema:schema", "Print the JSON Schema of a spec file, or of cluster.yaml."),
}
ALIASES = {  # command names of other systems; not listed in the help
    "sbatch": ("submit", ()),
    "squeue": ("ps", tuple(f"--state={one}" for one in ("held", "queued", "starting", "running", "stopping"))),
    "scancel": ("cancel", ()),
    "kill": ("cancel", ()),
    "stop": ("cancel", ()),
    "requeue": ("rerun", ()),
    "tail": ("logs", ("-f",)),
}


MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)  # raised by unexpected JSON


class LazyGroup(click.Group):
    """A command group that lists commands from the table and imports only the called one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Check the whole line for repeated options first, but not while a shell completes it."""
        if not ctx.resilient_parsing:
            reject_repeated(self, args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), function)
        add_examples(cmd_name, command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete from the table, without imports."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415  # used by shell completion only

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve aliases; for an unknown command, raise an error with a suggestion."""
        name, rest = args[0], args[1:]
        if name in ALIASES:
            name, more = ALIASES[name]
            rest = [*more, *rest]
        command = self.get_command(ctx, name)
        if command is None:
            from trainmaster.cli.suggestions import instead  # noqa: PLC0415  # needed for typing errors only

            known = {**{one: one for one in COMMANDS}, **{alias: target for alias, (target, _) in ALIASES.items()}}
            raise UsageError(f"there is no command {name!r}", instead(name, args, known))
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help from the table, without imports."""
        write_groups(formatter, {name: line for name, (_, line) in COMMANDS.items()})


def reject_repeated(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Reject an option that is given twice but has one value; click takes the last one. Raises: UsageError."""
    words = words[: words.index("--")] if "--" in words else words
    context = click.Context(command, parent=parent, resilient_parsing=True, **command.context_settings)
    try:
        _, rest, order = command.make_parser(context).parse_args(list(words))
    except click.UsageError:
        return  # the command itself reports it
    for param in order:
        single = isinstance(param, click.Option) and not (param.multiple or param.is_flag or param.count)
        if single and order.count(param) > 1:
            raise UsageError(f"{param.opts[0]} is given more than once", "it has one value: give it once")
    if isinstance(command, click.Group) and rest:
        inner, left = command.get_command(context, ALIASES.get(rest[0], rest)[0]), rest[1:]
        otherwise = getattr(command, "otherwise", None)
        if inner is None and otherwise is not None:
            inner, left = command.get_command(context, otherwise), rest
        if inner is not None:
            reject_repeated(inner, left, context)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="trainmaster %(version)s")
@json_option
@server_option
def tm() -> None:
    """Run training programs as jobs: queued, monitored, resumed from checkpoints, and accounted for.

    \b
    Start with:  tm run -- python train.py
    """


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed: its descriptor must not become that of another file
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = "--json" in before
    session = Session()
    try:
        code = tm.main(arguments or ["--help"], prog_name="tm", standalone_mode=False, obj=session)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except TrainmasterError as error:
        return tell_error(error, as_json)
    except click.ClickException as error:
        return tell_error(_usage(error, arguments), as_json)
    except (KeyboardInterrupt, click.Abort):
        tell("interrupted; jobs go on without this command", sys.stderr)
        return INTERRUPTED_EXIT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit does not fail
        return 128 + signal.SIGPIPE
    except OSError as error:
        told = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return tell_error(OperationError(told, "check that file, its rights and its disk" if error.filename else ""), as_json)
    except MISREAD as error:
        if session.asked is None or os.environ.get("TRAINMASTER_DEBUG"):
            raise  # no server was involved, or a developer asked for the traceback
        from trainmaster.cli.unreadable import misread  # noqa: PLC0415  # rarely needed

        return tell_error(misread(session.asked, error), as_json)


def _usage(error: click.ClickException, arguments: list[str]) -> UsageError:
    """Convert click's own errors to ours."""
    context: Any = getattr(error, "ctx", None)
    called = next((f"tm {word}" for word in arguments if word in COMMANDS), "tm")  # the parser's errors lack the context
    path = context.command_path if context is not None else called
    message = no_such_option(error) if isinstance(error, click.NoSuchOption) else error.format_message().rstrip(".")
    message = re.sub(r"is not a valid (float|integer)( range)?$", "is not a number", message)
    missing = error.param if isinstance(error, click.MissingParameter) else None
    newest = missing is not None and missing.type is JOB
    hint = f"the newest job: {path} @last   all of them: tm ps --all" if newest else f"its options: {path} --help"
    return UsageError(message[0].lower() + message[1:], hint)


def tell_error(error: TrainmasterError, as_json: bool) -> int:
    """Print an error and its hint to standard error; returns the exit code."""
    if as_json:
        body = error.as_dict()
        body["error"]["request_id"] = error.request_id
        tell(json.dumps(body), sys.stderr)
        return error.exit_code
    placed = any(detail.get("file") for detail in error.details)
    tell(error.message if placed else f"error: {error.message}", sys.stderr)
    if error.hint:
        tell(f"  {error.hint}", sys.stderr)
    if error.request_id and error.http_status >= 500:
        tell(f"  (in the server's log: {error.request_id})", sys.stderr)
    return error.exit_code
