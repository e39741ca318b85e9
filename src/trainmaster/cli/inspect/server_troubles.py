"""Prints problems of the server after a command's own output."""

import time
from collections.abc import Sequence

from trainmaster.cli.session import Session
from trainmaster.client.api import Client, Row
from trainmaster.errors import TrainmasterError

_DAY_S = 86400.0


def tell(session: Session, client: Client) -> None:
    """Print one line if there is a problem. If the server cannot be asked, print nothing: the command has its answer."""
    try:
        found = client.troubles()
    except TrainmasterError:
        return
    if found:
        session.out.note(line(found, time.time()))


def line(found: Sequence[Row], now_s: float) -> str:
    """`server: the disk of /home is full (since 12:03)`; further problems are only counted."""
    more = f"; {len(found) - 1} more: tm doctor" if len(found) > 1 else ""
    return f"server: {one(found[0], now_s)}{more}"


def one(trouble: Row, now_s: float) -> str:
    """One problem and the time it began, with the date if that is more than a day ago."""
    since_s = float(trouble["since_s"])
    form = "%H:%M" if abs(now_s - since_s) < _DAY_S else "%Y-%m-%d %H:%M"
    return f"{trouble['text']} (since {time.strftime(form, time.localtime(since_s))})"
