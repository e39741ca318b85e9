"""The server of this machine: finding it, starting it where nobody runs one, reviving it when it died."""

from collections.abc import Callable

from trainmaster import daemons
from trainmaster.client.settings import Target, embedded_token
from trainmaster.errors import UnreachableError
from trainmaster.home import Home

SOURCE = "embedded"


def attach(home: Home) -> Target:
    """The server that runs here, or is being brought back. Raises: UnreachableError when none is."""
    info = daemons.running(home)
    if info is None:
        raise UnreachableError("no server is running", "start one: tm up")
    return Target(info.url, embedded_token(home), SOURCE)


def ensure(home: Home, say: Callable[[str], None]) -> Target:
    """The server that runs here, started if there is none; `say` is told of a start."""
    info = daemons.running(home)
    if info is None:
        info = daemons.start(home, daemons.Options())
        say(f"started a server on this machine: {info.url} (its files: {home.root}; it stays until: tm down)")
    return Target(info.url, embedded_token(home), SOURCE)
