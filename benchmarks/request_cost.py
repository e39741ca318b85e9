"""The processor time of the api for `GET /jobs` and `GET /queue`, with 1,600 ended jobs. Goals: 3 ms; 5 and 30 ms (50 waiting).

Processor time of all threads of the api process, one client, so that a loaded machine can measure it too.
"""

import itertools
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing

import common
import seeding
import serving

from trainmaster.client.api import Client
from trainmaster.client.connection import Call, Connection
from trainmaster.client.servers.settings import embedded_token
from trainmaster.home import Home

JOBS, WAITING = 1600, 50


def listings(client: Client, connection: Connection, metrics: sqlite3.Connection) -> dict[str, Callable[[], object]]:
    """Ways to ask for 50 jobs."""
    list_50 = Call("GET", "/jobs", {"limit": 50})
    numbers = itertools.count(1)

    def after_a_write() -> None:
        metrics.execute(f"PRAGMA user_version = {next(numbers)}")  # a commit of another process, which costs the api nothing
        connection.json(list_50)

    return {
        "GET /jobs of 50": lambda: connection.json(list_50),
        "GET /jobs of 50, after a write": after_a_write,
        "GET /jobs of 50, asked again (304)": lambda: client.jobs(limit=50),
    }


def wait_in_the_queue(home: Home, client: Client) -> None:
    """50 jobs that wait for a drained node."""
    client.set_node(client.nodes()[0]["name"], "drain", "so that they wait")
    job = serving.submission("sleep 600", name="waits", params={"lr": 0.1}, resources={"cpus": 0.5})
    client.submit_batch([job] * WAITING)
    serving.wait_for("the queue", lambda: client.queue()["total"] == WAITING)
    time.sleep(1.0)


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=50, quick_n=2)
    report = common.Report("request_cost", f"Processor time of a request, {JOBS:,} ended jobs", options)
    found: dict[str, list[float]] = {}
    with serving.fresh_home() as home:
        seeding.seed(home, JOBS)
        with (
            serving.start(home) as client,
            closing(Connection(client.url, embedded_token(home))) as connection,
            closing(sqlite3.connect(home.root / "metrics.db", isolation_level=None)) as metrics,
        ):
            pid = serving.server_pids(home)["api"]
            for words, ask in listings(client, connection, metrics).items():
                found[words] = serving.cost_s(pid, ask, options.n)
            found["GET /queue, empty"] = serving.cost_s(pid, client.queue, options.n)
            wait_in_the_queue(home, client)
            found[f"GET /queue, {WAITING} waiting"] = serving.cost_s(pid, client.queue, options.n)
            pages = itertools.count(WAITING)
            anew = serving.cost_s(pid, lambda: client.queue(limit=next(pages)), 2)
    for words, costs in found.items():
        report.keep(f"{words}: seconds", costs)
    rows = [[words, common.ms(common.median(costs)), common.ms(max(costs))] for words, costs in found.items()]
    rows.append([f"GET /queue, {WAITING} waiting, made anew", common.ms(common.median(anew)), common.ms(max(anew))])
    report.table(["request", "median of rounds", "worst"], rows)
    for words, limit_s in zip(found, (0.003, 0.003, 0.003, 0.005, 0.03), strict=True):
        report.goal(words, common.median(found[words]), limit_s)
    report.finish()


if __name__ == "__main__":
    main()
