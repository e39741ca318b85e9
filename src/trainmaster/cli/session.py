"""State that all commands share: common options (`--json`, `-q`, `--server`), output and client."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trainmaster.cli.render.output import Output
from trainmaster.client.api import Client
from trainmaster.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Session:
    """One invocation. The client is created on first use."""

    def __init__(self) -> None:
        self.out = Output()
        self.server: str | None = None
        self._client: Client | None = None

    @property
    def asked(self) -> Client | None:
        """The client, if it was created."""
        return self._client

    def client(self, start: bool = False) -> Client:
        """The client. With `start`, start this machine's own server if no other is configured: for commands that
        change jobs. Commands that read or administer start none: that of another home would obey without effect."""
        if self._client is None:
            self._client = Client(self.server, start=start, say=self.out.note)
            if (context := click.get_current_context(silent=True)) is not None:
                context.call_on_close(self._client.close)
            if self._client.warning:
                self.out.warn(self._client.warning)
        return self._client


class _CompletedName(click.types.StringParamType):
    """A name with shell completion: `completion.jobs` or `completion.nodes`, called only by a shell."""

    def __init__(self, what: str) -> None:
        self._what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name unchanged. Raises: UsageError if it is empty, as from an unset shell variable, or cannot be a job's name."""
        hint = "name an id, a unique prefix of one, a name, @last or @last-failed"
        if value == "" and self._what == "jobs":
            raise UsageError("the job's name is empty", hint)
        if self._what == "jobs" and ("/" in value or not value.isprintable()):
            raise UsageError(f"{value!r} is not the name of a job", hint)
        return super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """Names with this prefix."""
        found: list[CompletionItem] = getattr(import_module("trainmaster.cli.admin.completion"), self._what)(ctx, incomplete)
        return found


JOB, NODE = _CompletedName("jobs"), _CompletedName("nodes")


class Noun(click.Group):
    """A group of verbs. `also`: the verb that is meant by a word of other programs."""

    def __init__(self, *arguments: Any, also: Mapping[str, str] = MappingProxyType({}), **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._also = also

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb. Raises: UsageError with the verb for a word of other programs."""
        if args[0] in self._also:
            path = ctx.command_path
            raise UsageError(f"there is no command '{path} {args[0]}'", f"use: {path} {self._also[args[0]]}")
        return super().resolve_command(ctx, args)


def _json(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        context.find_object(Session).out.json = True  # type: ignore[union-attr]


def _quiet(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        context.find_object(Session).out.quiet = True  # type: ignore[union-attr]


def _server(context: click.Context, _: click.Parameter, url: str | None) -> None:
    if url:
        context.find_object(Session).server = url  # type: ignore[union-attr]


json_option = click.option("--json", is_flag=True, expose_value=False, callback=_json, help="Print JSON.")
server_option = click.option("--server", metavar="URL", expose_value=False, callback=_server, help="The server to use.")


def quiet_option(prints: str = "Print ids only.") -> Callable[[_Command], _Command]:
    """Add `-q`. `prints`: what is left of the output."""
    return click.option("-q", "--quiet", is_flag=True, expose_value=False, callback=_quiet, help=prints)


def no_such_option(error: click.NoSuchOption) -> str:
    """`there is no option '--gpu'; did you mean '--gpus'?`."""
    import difflib  # noqa: PLC0415  # needed for typing errors only

    near = difflib.get_close_matches(error.option_name, error.possibilities or (), n=1)
    return f"there is no option {error.option_name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def remote(command: _Command) -> _Command:
    """Add the options of a command that needs a server. The command gets the `Session` first."""
    return json_option(server_option(click.pass_obj(command)))  # type: ignore[return-value]


def offline(command: _Command) -> _Command:
    """Add the options of a command that needs no server. The command gets the `Session` first."""
    return json_option(click.pass_obj(command))  # type: ignore[return-value]
