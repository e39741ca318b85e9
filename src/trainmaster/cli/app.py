"""The `tm` command: the table of commands, loaded on demand, and the one place that reports errors."""

import json
import os
import re
import shlex
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from trainmaster import __version__
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
    "why": ("trainmaster.cli.inspect.why:why", "Why a job waits, what would let it start, and when it will."),
    "queue": ("trainmaster.cli.inspect.queue:queue", "List waiting jobs in order, with start estimates."),
    "logs": ("trainmaster.cli.inspect.logs:logs", "Print a job's output, all attempts."),
    "artifacts": ("trainmaster.cli.inspect.artifacts:artifacts", "List a job's artifacts."),
    "get": ("trainmaster.cli.inspect.artifacts:get", "Download a job's artifacts: one, those that match, or all."),
    "metrics": ("trainmaster.cli.inspect.metrics:metrics", "Show or export the metrics of jobs."),
    "compare": ("trainmaster.cli.inspect.compare:compare", "Compare jobs: differences, metrics and curves."),
    "note": ("trainmaster.cli.inspect.note:note", "Write or read the logbook."),
    "exec": ("trainmaster.cli.jobs.exec:execute", "Run a command beside a live job, on its node."),
    "attach": ("trainmaster.cli.jobs.exec:attach", "Open a shell beside a live job, on its node."),
    "cancel": ("trainmaster.cli.jobs.cancel:cancel", "Cancel jobs."),
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
    "token": ("trainmaster.cli.admin.token:token", "Manage access tokens: create, list, revoke."),
    "rm": ("trainmaster.cli.jobs.remove:rm", "Remove stored bytes of ended jobs; their record stays."),
    "prune": ("trainmaster.cli.jobs.remove:prune", "Remove stored bytes of jobs that ended long ago."),
    "storage": ("trainmaster.cli.admin.storage:storage", "Show disk usage, and remove unneeded bytes."),
    "backup": ("trainmaster.cli.admin.backup:backup", "Back up this machine's server while it runs."),
    "restore": ("trainmaster.cli.admin.backup:restore", "Restore this machine's server from a backup."),
    "doctor": ("trainmaster.cli.admin.doctor:doctor", "Check the installation and the server."),
    "config": ("trainmaster.cli.admin.config:config", "Show and change settings, and where they come from."),
    "completion": ("trainmaster.cli.admin.completion:completion", "Print the script for shell completion."),
    "schema": ("trainmaster.cli.admin.schema:schema", "Print the JSON Schema of a spec file, or of cluster.yaml."),
}
ALIASES = {  # command names of other systems; not listed in the help
    "sbatch": ("submit", ()),
    "squeue": ("ps", ()),
    "scancel": ("cancel", ()),
    "kill": ("cancel", ()),
    "stop": ("cancel", ()),
    "requeue": ("rerun", ()),
    "tail": ("logs", ("-f",)),
}


MEANT = {  # other words for a command; used in hints only
    "list": "ps", "ls": "ps", "jobs": "ps", "status": "show", "info": "show", "describe": "show",
    "remove": "rm", "delete": "rm", "start": "run", "launch": "run", "restart": "rerun", "retry": "rerun",
    "log": "logs", "diff": "compare", "server": "up", "serve": "up", "shutdown": "down", "quit": "down", "download": "get",
    "cost": "usage", "billing": "usage", "drain": "nodes drain", "undrain": "nodes resume", "rules": "policy",
}  # fmt: skip


MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)  # raised by unexpected JSON


class LazyGroup(click.Group):
    """A command group that lists commands from the table and imports only the called one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), function)
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
            raise UsageError(f"there is no command {name!r}", _instead(name, args))
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help from the table, without imports."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _instead(name: str, words: list[str]) -> str:
    """A suggestion for an unknown command: `tm run` for a program or spec, else the most similar command."""
    if name.endswith((".yaml", ".yml")):
        return f"to run it: tm run {shlex.join(words)}"
    if name.endswith(".py") or name in ("python", "python3", "torchrun", "bash"):
        return f"to run it: tm run -- {'python ' if name.endswith('.py') else ''}{shlex.join(words)}"
    import difflib  # noqa: PLC0415  # needed for typing errors only

    near = difflib.get_close_matches(name, [*COMMANDS, *ALIASES, *MEANT], n=1, cutoff=0.6)
    meant = near[0] if near else None
    if meant in ALIASES:
        meant = ALIASES[meant][0]
    return f"did you mean: tm {MEANT.get(meant, meant)}" if meant else "all commands: tm --help"


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
