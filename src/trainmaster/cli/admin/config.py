"""`tm config`: what holds for jobs submitted from here, who says so, and how to say otherwise."""

import os
from pathlib import Path
from typing import Any

import click
import tomlkit

from trainmaster import configuration
from trainmaster.cli.session import Session, offline
from trainmaster.client.settings import DEFAULT_PROJECT, FILE, VARIABLES, Setting, default_tags, said
from trainmaster.errors import UsageError
from trainmaster.home import Home
from trainmaster.spec.faults import nearest

_MEANING = {
    "server": "the server to talk to; default: this machine's own",
    "project": "the project of jobs that name none",
    "tags.NAME": "a tag of every job that does not say otherwise",
}
_DEFAULTS = {"server": "this machine's own", "project": DEFAULT_PROJECT}


@click.group(invoke_without_command=True)
@offline
@click.pass_context
def config(context: click.Context, session: Session) -> None:
    """What holds for jobs submitted from here, and who says so.

    An option beats a TRAINMASTER_* variable, which beats the project's file (trainmaster.toml, or [tool.trainmaster] in
    pyproject.toml, up to the root of the git repository), your own file, the machine's, the default.
    """
    if context.invoked_subcommand is None:
        _list(session)


@config.command("list")
@offline
def list_settings(session: Session) -> None:
    """All of it, with where each comes from."""
    _list(session)


@config.command()
@click.argument("key")
@offline
def get(session: Session, key: str) -> None:
    """The value that holds."""
    winner = _winner(key)
    if session.out.json:
        session.out.value(winner.value)
    else:
        session.out.data(str(winner.value))


@config.command()
@click.argument("key")
@offline
def explain(session: Session, key: str) -> None:
    """Every place that says what KEY is, the one that wins first, with file and line."""
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
@click.option("--project", "shared", is_flag=True, help="In the project's trainmaster.toml, in place of your own.")
@offline
def set_value(session: Session, key: str, value: str, shared: bool) -> None:
    """Write it down; all else in the file stays as it is, comments included."""
    _known(key)
    if key == "server" and not value.startswith(("http://", "https://")):
        raise UsageError(f"the server {value!r} is no URL", "write http://HOST:PORT")
    path = _project_file() if shared else _own_file()
    document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
    section, _, name = key.rpartition(".")
    table: Any = document
    if section:
        if section not in document:
            document[section] = tomlkit.table()
        table = document[section]
    table[name] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(tomlkit.dumps(document), encoding="utf-8")
    if path.exists():
        part.chmod(path.stat().st_mode & 0o777)  # one that holds a token stays a person's own
    part.replace(path)
    session.out.note(f"written to {path}")
    winner = _winner(key)
    if winner.value != value:
        session.out.note(f"it does not win: {_where(winner)} says {winner.value}")


@config.command()
@offline
def check(session: Session) -> None:
    """Check the server's own file, server.toml, without starting anything."""
    home = Home.default()
    found = configuration.load(home)
    if session.out.json:
        session.out.value({"file": None if found.source is None else str(found.source)})
    elif found.source is None:
        session.out.data(f"there is no {home.root / 'server.toml'}; every default holds")
    else:
        session.out.data(f"{found.source} is in order; it holds from the next start of the server on")


def _list(session: Session) -> None:
    keys = ["server", "project", *sorted(f"tags.{name}" for name in default_tags(Path.cwd()))]
    places = [_winner(key) for key in keys]
    if session.out.json:
        session.out.value([_view(place) for place in places])
    else:
        session.out.table(("KEY", "VALUE", "FROM"), [[place.key, str(place.value), _where(place)] for place in places])


def _known(key: str) -> str:
    """The key, if it is one. Raises: UsageError."""
    if key in VARIABLES or (key.startswith("tags.") and key != "tags."):
        return key
    if key.startswith("token"):
        raise UsageError("a token is not set here", f"write it beside its server in {_own_file()}, chmod 600")
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


def _own_file() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "trainmaster" / FILE


def _project_file() -> Path:
    """The one that is there already, else a new one at the root of the repository, else here."""
    here = Path.cwd()
    levels = (here, *here.parents)
    root = next((level for level in levels if (level / ".git").exists()), here)
    inside = levels[: levels.index(root) + 1]
    return next((level / FILE for level in inside if (level / FILE).exists()), root / FILE)
