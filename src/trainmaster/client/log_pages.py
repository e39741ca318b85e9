"""Pages of a job's log: those that there are, or all until its end."""

from collections.abc import Iterator
from typing import Unpack

from trainmaster.client.api import Client, Row
from trainmaster.client.filters import LogFilter


def follow(client: Client, ref: str, **query: Unpack[LogFilter]) -> Iterator[Row]:
    """Yield pages of a job's log until it has ended, also across restarts of the server; an empty page if nothing is new."""
    while True:
        page = client.persistently(lambda: client.logs(ref, **query))
        query["after"], query["tail"] = page["cursor"], None
        yield page
        if page["ended"] and not page["chunks"]:
            return


def pages(client: Client, ref: str, rank: int | None = None) -> Iterator[Row]:
    """Pages of a log, up to its present end."""
    after: str | None = None
    while True:
        page = client.logs(ref, rank=rank, after=after)
        if not page["chunks"]:
            return
        yield page
        after = page["cursor"]
