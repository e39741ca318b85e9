"""How far MLflow is behind our log while a job reports 200 points a second, and how fast it catches up after an outage.

The MLflow server is the one of `tm up --mlflow`. Points are written into the metric store as the api writes them; a
point counts as mirrored once the mirror's own cursor has durably passed it, which is after MLflow acknowledged it.
During the outage MLflow is stopped (SIGSTOP), so that requests hang rather than fail; the clock of the catching up
starts when it runs again, and what the mirror still waits before it asks again is counted.
"""

import os
import signal
import socket
import time
from urllib.parse import urlsplit

import common
import serving
from mlflow import MlflowClient

from trainmaster import daemons
from trainmaster.client.api import Client
from trainmaster.home import Home
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.store.metrics.feed import SqlFeed
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.store.mirror_state import MirrorFile

RATE, GROUPS_PER_S, SERIES = 200, 10, 10
OUTAGE, QUICK_OUTAGE = 720_000, 5_000  # points: an hour of them
_BULK = 5_000


class Bench:
    """A server with a mirror, one job, and its points."""

    def __init__(self, home: Home, client: Client) -> None:
        self.home = home
        self.job = client.submit(serving.submission("sleep 100000", name="reporting"))
        serving.wait_for("the job to run", lambda: client.job(self.job)["state"] == "running")
        self.metrics, self.feed = SqlMetricStore(home.metrics_db), SqlFeed(home.metrics_db)
        self.state = MirrorFile(home.mirror_db, read_only=True).of("mlflow")
        self.step = 0

    def write(self, count: int) -> int:
        """So many points, each step of ten metrics at once; the number of the last one."""
        now_s, points = time.time(), []
        for _ in range(count // SERIES):
            self.step += 1
            points += [MetricPoint(self.job, 1, 0, self.step, f"metric{i}", 1.0 / self.step, now_s) for i in range(SERIES)]
        self.metrics.write(points, [])
        return self.feed.last_seq()

    def mirrored(self) -> int:
        """The number of the last point that MLflow is known to have."""
        cursor = self.state.cursor()
        return 0 if cursor is None else cursor.points_seq

    def lags(self, seconds: int) -> list[float]:
        """Of each group of points: from its commit until it is mirrored."""
        waiting: list[tuple[int, float]] = []
        found: list[float] = []
        begun_s = time.monotonic()
        sent = 0
        while sent < seconds * GROUPS_PER_S or waiting:
            now_s = time.monotonic()
            if sent < seconds * GROUPS_PER_S and now_s >= begun_s + sent / GROUPS_PER_S:
                waiting.append((self.write(RATE // GROUPS_PER_S), time.monotonic()))
                sent += 1
            upto = self.mirrored()
            found += [time.monotonic() - at_s for seq, at_s in waiting if seq <= upto]
            waiting = [one for one in waiting if one[0] > upto]
            time.sleep(0.01)
        return found

    def catch_up(self, count: int) -> float:
        """Seconds that an outage's points take once MLflow runs again."""
        group = int((self.home.read_json(self.home.server_json) or {})["pids"]["mlflow"])
        os.killpg(group, signal.SIGSTOP)
        try:
            for _ in range(count // _BULK):
                last = self.write(_BULK)
        finally:
            os.killpg(group, signal.SIGCONT)
        begun_s = time.monotonic()
        serving.wait_for("the mirror to catch up", lambda: self.mirrored() >= last, 1800.0)
        return time.monotonic() - begun_s


def answers(url: str) -> bool:
    """Whether the MLflow server serves."""
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname or "", address.port or 0), 2.0) as connection:
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            return b"200" in connection.recv(64)
    except OSError:
        return False


def seconds(value: float) -> str:
    """To read."""
    return f"{value:.2f} s"


def main() -> None:
    """Measure and print."""
    options = common.options(__doc__.partition("\n")[0], n=60, quick_n=3)
    report = common.Report("mirror_lag", "How far MLflow is behind our log", options)
    outage = QUICK_OUTAGE if options.quick else OUTAGE
    with serving.fresh_home() as home:
        info = daemons.start(home, daemons.Options(mlflow=True))
        assert info.mlflow, info.trouble
        with Client(start=False) as client:
            bench = Bench(home, client)
            serving.wait_for("MLflow to answer", lambda: answers(info.mlflow or ""), 180.0, 0.5)
            first = bench.write(SERIES)
            serving.wait_for("the first point to be mirrored", lambda: bench.mirrored() >= first, 180.0)
            lags = bench.lags(options.n)
            took_s = bench.catch_up(outage)
            run = MlflowClient(info.mlflow).search_runs(["1"])[0]
            held = len(MlflowClient(info.mlflow).get_metric_history(run.info.run_id, "metric0"))
            client.cancel(bench.job)
            client.wait(bench.job, 120.0)
    report.keep("seconds from a group's commit until it is mirrored", lags)
    report.keep("seconds to catch up", [took_s])
    worst = common.percentile(lags, 0.99)
    report.table(
        ["figure", "median", "p99", "highest"],
        [[f"lag at {RATE} points/s, {options.n} s", seconds(common.median(lags)), seconds(worst), seconds(max(lags))]],
    )
    report.say(f"Outage of {outage:,} points: caught up in {took_s:.1f} s, {outage / took_s:,.0f} points/s.")
    report.say(f"Steps that the job reported: {bench.step:,}; that MLflow holds of its first metric: {held:,}.")
    report.goal("lag, p99", worst, 5.0, show=seconds)
    report.goal("catching up", outage / took_s, 3_000.0, at_least=True, show=lambda value: f"{value:,.0f} points/s")
    report.finish()


if __name__ == "__main__":
    main()
