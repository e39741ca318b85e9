"""`tm config`: show, explain and change the settings for jobs submitted from here."""

from importlib import import_module
from pathlib import Path
from typing import Any

import click
import tomlkit

from trainmaster import configuration
from trainmaster.cli.session import Session, offline
from trainmaster.client.servers import settings_file
from trainmaster.client.servers.settings import DEFAULT_PROJECT, FILE, OWN, VARIABLES, Setting, default_tags, own_file, said
from trainmaster.errors import UsageError
from trainmaster.home import Home
from trainmaster.spec.faults import nearest

_MEANING = {
    "server": "the server to use; default: this machine's own",
    "project": "the project of jobs that name none",
    "tags.NAME": "a default tag of every job",
}
_DEFAULTS = {"server": OWN, "project": DEFAULT_PROJECT}


@click.group(invoke_without_command=True)
@offline
@click.pass_context
def config(context: click.Context, session: Session) -> None:
    """Show the settings for jobs submitted from here, and where each comes from.
    Precedence: an option, a TRAINMASTER_* variable, the project's file (trainmaster.toml, or [tool.trainmaster] in
    pyproject.toml, up to the root of the git repository), your own file, the machine's file, the default.
    """
    if context.invoked_subcommand is None:
        _list(session)


@config.command("list")
@offline
def list_settings(session: Session) -> None:
    """List all settings, and where each comes from."""
    _list(session)


@config.command()
@click.argument("key")
@offline
def get(session: Session, key: str) -> None:
    """Print the value in effect."""
    winner = _winner(key)
    if session.out.json:
        session.out.value(winner.value)
    else:
        session.out.data(str(winner.value))


@config.command()
@click.argument("key")
@offline
def explain(session: Session, key: str) -> None:
    """List every place that sets KEY, in order of precedence, with file and line."""
    places = [*said(_known(key), Path.cwd()), *_default(key)]
    if session.out.json:
        session.out.value([_view(place) for place in places])
        return
    if not places:
        session.out.data(f"{key} is not set anywhere")
    for n, place in enumerate(places):
        session.out.data(f"{'wins' if n == 0 else '    '}  {_where(place)}: {place.value}")


@config.command("set")
@click.argument("key")
@click.argument("value")
@click.option("--project", "shared", is_flag=True, help="In the project's trainmaster.toml instead of your own file.")
@offline
def set_value(session: Session, key: str, value: str, shared: bool) -> None:
    """Write a setting; the rest of the file, including comments, stays as it is."""
    _known(key)
    if key == "server" and not value.startswith(("http://", "https://")):
        raise UsageError(f"the server {value!r} is not a URL", "write http://HOST:PORT")
    path = _project_file() if shared else own_file()
    document = settings_file.read(path)
    section, _, name = key.rpartition(".")
    table: Any = document
    if section:
        if section not in document:
            document[section] = tomlkit.table()
        table = document[section]
    table[name] = value
    settings_file.write(path, document)
    session.out.note(f"written to {path}")
    winner = _winner(key)
    if winner.value != value:
        session.out.note(f"it has no effect: {_where(winner)} says {winner.value}")


@config.command()
@offline
def check(session: Session) -> None:
    """Check the server's own file, server.toml, without starting the server."""
    home = Home.default()
    found = configuration.load(home)
    import_module("trainmaster.blobs.factory").open_blobs(found.storage, home)  # imported here: it takes a while
    if session.out.json:
        session.out.value({"file": None if found.source is None else str(found.source)})
    elif found.source is None:
        session.out.data(f"there is no {home.root / 'server.toml'}; all settings have their defaults")
    else:
        session.out.data(f"{found.source} is valid; it takes effect at the next start of the server")


def _list(session: Session) -> None:
    keys = ["server", "project", *sorted(f"tags.{name}" for name in default_tags(Path.cwd()))]
    places = [_winner(key) for key in keys]
    if session.out.json:
        session.out.value([_view(place) for place in places])
    else:
        session.out.table(("KEY", "VALUE", "FROM"), [[place.key, str(place.value), _where(place)] for place in places])


def _known(key: str) -> str:
    """`key`, if there is such a setting. Raises: UsageError."""
    if key in VARIABLES or (key.startswith("tags.") and key != "tags."):
        return key
    if key.startswith("token"):
        raise UsageError("tokens are not set here", "log in to its server: tm login URL")
    near = nearest(key, tuple(VARIABLES))
    hint = f"did you mean {near}?" if near else "known: " + "; ".join(f"{name}: {line}" for name, line in _MEANING.items())
    raise UsageError(f"there is no setting {key!r}", hint)


def _winner(key: str) -> Setting:
    places = [*said(_known(key), Path.cwd()), *_default(key)]
    return places[0] if places else Setting(key, "", "not set")


def _default(key: str) -> list[Setting]:
    return [Setting(key, _DEFAULTS[key], "default")] if key in _DEFAULTS else []


def _where(place: Setting) -> str:
    return place.source if place.line is None else f"{place.source}:{place.line}"


def _view(place: Setting) -> dict[str, Any]:
    return {"key": place.key, "value": place.value, "source": place.source, "line": place.line}


def _project_file() -> Path:
    """The project's file if it exists, else a new one at the root of the repository, else in this directory."""
    here = Path.cwd()
    levels = (here, *here.parents)
    root = next((level for level in levels if (level / ".git").exists()), here)
    inside = levels[: levels.index(root) + 1]
    return next((level / FILE for level in inside if (level / FILE).exists()), root / FILE)
