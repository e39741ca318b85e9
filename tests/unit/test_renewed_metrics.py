"""A new metrics file in the place of a damaged or lost one: its numbers go on, and the mirror turns to it."""

import os
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from control_server import Server
from waiting import deadline

from trainmaster import troubles
from trainmaster.home import Home
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.server.views.job_notes import metrics_lost
from trainmaster.store.identity import count_start
from trainmaster.store.metrics.feed import SqlFeed
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.store.migrate import migrate
from trainmaster.testing.builders import job

MIRROR = """
import sys
from pathlib import Path
from trainmaster.compose_mirror import mirror_main
from trainmaster.home import Home
sys.exit(mirror_main(Home(Path(sys.argv[1])), lambda: print("started", flush=True)))
"""


def report(home: Home, steps: range) -> None:
    with closing(SqlMetricStore(home.metrics_db)) as metrics:
        metrics.write([MetricPoint("train-1", 1, 0, step, "loss", 0.5, 1000.0 + step) for step in steps], [])


@pytest.mark.parametrize("lost", [True, False])
def test_a_reader_of_the_old_file_misses_no_point_of_the_new_one(tmp_path: Path, lost: bool) -> None:
    server = Server(Home(tmp_path / "home"))
    server.running()
    home = server.home
    report(home, range(100))
    with closing(SqlFeed(home.metrics_db)) as feed:
        cursor = feed.last_seq()
    for path in home.root.glob("metrics.db*"):
        path.unlink()
    if not lost:
        home.metrics_db.write_bytes(b"no database" * 1000)
    migrate(home)
    troubles.own.forget()
    report(home, range(100, 103))
    with closing(SqlFeed(home.metrics_db)) as feed:
        assert [point.step for point in feed.since(cursor, 1000).points] == [100, 101, 102]


def test_a_job_says_that_the_points_of_the_old_file_are_missing(tmp_path: Path) -> None:
    """Only a trouble of the server said it, until its next start: the best of 100 lost steps was that of the 3 after them."""
    home = Server(Home(tmp_path / "home")).home
    report(home, range(2))
    with closing(SqlMetricStore(home.metrics_db)) as metrics:
        metrics.thin("train-1", 0)
        assert metrics.replaced_s() is None
    for path in home.root.glob("metrics.db*"):
        path.unlink()
    home.metrics_db.write_bytes(b"no database" * 1000)
    migrate(home)
    troubles.own.forget()
    report(home, range(100, 103))
    with closing(SqlMetricStore(home.metrics_db)) as metrics:
        replaced_s = metrics.replaced_s()
    assert replaced_s is not None
    assert abs(replaced_s - time.time()) < 100.0
    text = "metric values that were stored before 1970-01-01 00:01 UTC are missing, all or some: metrics.db was damaged, lost or"
    assert metrics_lost(replace(job(), started_s=50.0), 60.0) == [f"{text} replaced by an older copy"]
    assert metrics_lost(replace(job(), started_s=61.0), 60.0) == metrics_lost(replace(job(), started_s=50.0), None) == []


def test_an_older_metrics_file_that_was_put_back_is_told(tmp_path: Path) -> None:
    """No metric was recorded, said `tm show` of a job with 50 steps; and trackers got no point until the numbers were reached."""
    home = Server(Home(tmp_path / "home")).home
    report(home, range(2))
    older = home.metrics_db.read_bytes()
    for wanted in (None, None, "older metrics", None):
        if wanted:
            report(home, range(2, 100))
            with closing(SqlFeed(home.metrics_db)) as feed:
                cursor = feed.last_seq()
            home.metrics_db.write_bytes(older)
        migrate(home)
        count_start(home)
        assert {one.topic for one in troubles.own.said()} == ({wanted} if wanted else set())
        troubles.own.forget()
    report(home, range(100, 103))
    with closing(SqlMetricStore(home.metrics_db)) as metrics, closing(SqlFeed(home.metrics_db)) as feed:
        assert metrics.replaced_s() is not None
        assert [point.step for point in feed.since(cursor, 1000).points] == [100, 101, 102]


def test_a_mirror_whose_metrics_file_is_another_one_now_ends_so_that_it_is_started_on_the_new_one(tmp_path: Path) -> None:
    home = Server(Home(tmp_path / "home")).home
    report(home, range(3))
    with subprocess.Popen([sys.executable, "-c", MIRROR, str(home.root)], stdout=subprocess.PIPE, text=True) as mirror:
        try:
            assert mirror.stdout is not None
            assert mirror.stdout.readline() == "started\n"
            (tmp_path / "new.db").write_bytes(home.metrics_db.read_bytes())
            os.replace(tmp_path / "new.db", home.metrics_db)
            deadline(lambda: mirror.poll() is not None, "the end of the mirror", 30.0)
            assert mirror.returncode == 0
        finally:
            mirror.kill()
