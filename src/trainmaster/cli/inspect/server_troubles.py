"""What is wrong with the server itself, at the end of what a command says."""

import time
from collections.abc import Sequence

from trainmaster.cli.session import Session
from trainmaster.client.api import Client, Row
from trainmaster.errors import TrainmasterError

_DAY_S = 86400.0


def tell(session: Session, client: Client) -> None:
    """One line if anything is wrong; a server that cannot say is silent here, for the command has its answer."""
    try:
        found = client.troubles()
    except TrainmasterError:
        return
    if found:
        session.out.note(line(found, time.time()))


def line(found: Sequence[Row], now_s: float) -> str:
    """`server: the disk of /home is full (since 12:03)`; what else is wrong is counted."""
    more = f"; {len(found) - 1} more: tm doctor" if len(found) > 1 else ""
    return f"server: {one(found[0], now_s)}{more}"


def one(trouble: Row, now_s: float) -> str:
    """A trouble with its beginning: a time of day, with the date once it is older than a day."""
    since_s = float(trouble["since_s"])
    form = "%H:%M" if abs(now_s - since_s) < _DAY_S else "%Y-%m-%d %H:%M"
    return f"{trouble['text']} (since {time.strftime(form, time.localtime(since_s))})"
