"""Shell completion: the script for a shell, and live job and node names from a two-second cache."""

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from trainmaster.cli.session import Session, offline
from trainmaster.client.api import Client, Row
from trainmaster.errors import TrainmasterError

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_TM_COMPLETE"
_FRESH_S = 2.0
_PATIENCE_S = 0.7  # for an answer: the user is waiting for a key press
_OFFERED = 200


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@offline
@click.pass_context
def completion(context: click.Context, session: Session, shell: str) -> None:
    """Print a script that completes commands, options, files and job ids in your shell.

    \b
    bash  eval "$(tm completion bash)"      in ~/.bashrc
    zsh   eval "$(tm completion zsh)"       in ~/.zshrc, below compinit
    fish  tm completion fish | source       in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root().command
    session.out.raw(kind(root, {}, "tm", _VARIABLE).source() + "\n")


def jobs(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """The newest jobs whose id has this prefix, with their states."""
    if incomplete.startswith("@"):
        return _those([["@last", "the newest job"], ["@last-failed", "the newest that failed"]], incomplete)
    return _those(_recent("jobs", context, lambda client: client.jobs(limit=_OFFERED), "id"), incomplete)


def nodes(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """The nodes whose name has this prefix."""
    return _those(_recent("nodes", context, lambda client: client.nodes(), "name"), incomplete)


def _those(words: list[list[str]], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word, help=text) for word, text in words if word.startswith(incomplete)]


def _recent(what: str, context: click.Context, ask: Callable[[Client], list[Row]], key: str) -> list[list[str]]:
    """Cached names up to two seconds old, else from the server; on a timeout, older cached names."""
    session = context.find_object(Session) or Session()
    path = _cache(what, session.server)
    age_s, known = _read(path)
    if known is not None and age_s < _FRESH_S:
        return list(known)
    session.out.json = True  # suppresses notes, which would appear in the line that is being typed
    try:
        with _at_most(_PATIENCE_S):
            found = [[str(row[key]), str(row["state"])] for row in ask(session.client())]
    except (TrainmasterError, TimeoutError, OSError, KeyError):
        return list(known or [])
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_text(json.dumps(found))
        part.replace(path)
    return found


def _cache(what: str, server: str | None) -> Path:
    """The cache file for a server and a user."""
    named = [server or "", *(os.environ.get(name, "") for name in ("TRAINMASTER_SERVER", "TRAINMASTER_HOME")), os.getcwd()]
    digest = hashlib.sha256("\0".join(named).encode()).hexdigest()[:16]
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) / "trainmaster" / f"completion-{what}-{digest}.json"


def _read(path: Path) -> tuple[float, Any]:
    """The cache's age in seconds, and its content."""
    try:
        return time.time() - path.stat().st_mtime, json.loads(path.read_text())
    except (OSError, ValueError):
        return 0.0, None


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises: TimeoutError when the block takes longer."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
