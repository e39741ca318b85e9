"""Traces: how they are read, the measures of a replay, and a comparison with published results."""

import contextlib
import gzip
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from effort import nightly

from trainmaster.cli.app import run as tm
from trainmaster.errors import UsageError
from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.simulator.formats import load
from trainmaster.simulator.measures import measure
from trainmaster.simulator.replay import Replay, Settings
from trainmaster.simulator.trace import Arrival, Trace, gang, processors

SWF = """; Version: 2.2
; MaxProcs: 4
1 0 -1 100 4 -1 -1 4 120 -1 1 7 1 3 1 1 -1 -1
2 10 -1 50 2 -1 -1 2 30 -1 1 8 1 3 1 1 -1 -1
3 20 -1 0 2 -1 -1 2 30 -1 0 8 1 3 1 1 -1 -1
4 30 -1 10 -1 -1 -1 1 60 -1 1 7 1 4 1 1 -1 -1
"""
TRACES = Path(os.environ.get("TRAINMASTER_TRACES", Path(__file__).parents[2].parent / "shared" / "traces"))


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_swf_is_read_as_it_is_published(tmp_path: Path) -> None:
    trace = load(write(tmp_path / "small.swf.gz", SWF))
    assert (trace.name, len(trace.sites)) == ("small", 4)
    assert [(one.id, one.submit_s, one.run_s, one.ask.nodes, one.limit_s, one.member) for one in trace.arrivals] == [
        ("1", 0.0, 100.0, 4, 120.0, "u7"),
        ("2", 10.0, 50.0, 2, 50.0, "u8"),  # its limit is raised to what it ran
        ("4", 30.0, 10.0, 1, 60.0, "u7"),  # its allocation was not recorded: its request is used
    ]


def test_csv_is_known_by_its_columns(tmp_path: Path) -> None:
    muri = load(write(tmp_path / "m.csv", "job_id,num_gpu,submit_time,iterations,iteration_time\na,16,5000,10,2000\n"))
    (job,) = muri.arrivals
    assert (job.submit_s, job.run_s, job.ask.nodes, job.ask.each.gpus, len(muri.sites)) == (5.0, 20.0, 2, 8, 8)
    rows = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,12,66.0,vc\n2017-10-09 07:00:55,6.0,1,6.0,vc\n"
    )
    philly = load(write(tmp_path / "p.csv", rows))
    assert [(one.submit_s, one.ask.nodes, one.ask.each.gpus) for one in philly.arrivals] == [(0.0, 1, 1), (60.0, 2, 6)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: the file is empty"),
        ("a,b\n1,2\n", ":1: unknown trace format: 'a,b'"),
        (SWF + "5 x\n", ":7: expected 18 numbers, got '5 x'"),
        ("; MaxProcs: 4\n", "it has no job that ran"),
        ("job_id,num_gpu,submit_time,iterations,iteration_time\na,many,5,1,1\n", ":2: not a job"),
        ("job_id,num_gpu,submit_time,iterations,iteration_time\na,0,5,1,1\n", ":2: not a job"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(write(tmp_path / "t.csv", text))
    assert said in str(caught.value)


def test_a_cut_archive_and_a_missing_file_are_told(tmp_path: Path) -> None:
    whole = gzip.compress(SWF.encode())
    (tmp_path / "cut.swf.gz").write_bytes(whole[:-9])
    for name in ("cut.swf.gz", "missing.swf"):
        with pytest.raises(UsageError, match="cannot be read"):
            load(tmp_path / name)


def small(*jobs: tuple[float, float, int]) -> Trace:
    """Of (submitted, runs, processors), on four processors; everybody says how long it needs."""
    from trainmaster.scheduling.model.request import Shape, ask_of  # noqa: PLC0415

    arrivals = tuple(
        Arrival(str(i), submit_s, run_s, ask_of(width, Shape()), limit_s=run_s)
        for i, (submit_s, run_s, width) in enumerate(jobs)
    )
    return Trace("small", arrivals, processors(4))


def starts(trace: Trace, policy: str, **settings: float) -> list[float]:
    replay = Replay(trace, POLICIES[policy], Settings(**settings))  # type: ignore[arg-type]
    return [life.started_s for life in replay.run().values()]


def test_backfill_lets_in_who_delays_nobody() -> None:
    trace = small((0, 100, 3), (1, 50, 4), (2, 90, 1), (3, 200, 1))
    assert starts(trace, "easy") == [0, 100, 2, 150]  # the last would delay the second
    assert starts(trace, "fifo") == [0, 292, 2, 92]  # without a reservation the large one is passed by for ever


def test_what_a_preemption_costs_is_done_again() -> None:
    trace = small((0, 100, 4), (10, 20, 4))
    replay = Replay(trace, POLICIES["srtf"], Settings(preemption_cost_s=5.0, exact=True, rules=Cluster(min_run_s=0.0)))
    first, second = replay.run().values()
    assert (first.preemptions, first.ended_s, first.ran_s, second.ended_s) == (1, 125.0, 105.0, 30.0)
    found = measure(replay)
    assert (found.preemptions, round(found.lost_hours * 3600), found.utilisation) == (1, 20, 1.0)


def test_gangs_take_as_few_nodes_as_have_equal_parts() -> None:
    assert [(gang(gpus, 8).nodes, gang(gpus, 8).each.gpus) for gpus in (1, 8, 12, 16, 11, 32)] == [
        (1, 1), (1, 8), (2, 6), (2, 8), (11, 1), (4, 8),
    ]  # fmt: skip


def test_the_command_prints_a_table_or_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = str(write(tmp_path / "small.swf", SWF))
    assert tm(["simulate", trace, "--compare", "fifo,easy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["policy"] for one in found] == ["fifo", "easy"]
    assert list(tmp_path.iterdir()) == [Path(trace)]  # with --json there is no report unless one is asked for
    asked = {"policy", "jobs", "completion_mean_s", "wait_mean_s", "wait_max_s", "bounded_slowdown_mean", "utilisation"}
    assert asked | {"preemptions", "seconds", "fragmentation", "fairness", "lost_hours", "projects"} <= set(found[0])
    assert tm(["simulate", trace]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("fair-share")
    assert tm(["simulate", trace, "--policy", "fiffo"]) == 2
    assert "there is no policy 'fiffo'" in capsys.readouterr().err
    for empty in ("--policy", "--compare"):
        assert tm(["simulate", trace, empty, ""]) == 2
        assert "there is no policy ''\n  known: fifo, " in capsys.readouterr().err


def test_one_job_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = SWF.splitlines()
    alone = [line for line in lines if line.startswith(";")] + [line for line in lines if not line.startswith(";")][:1]
    trace = write(tmp_path / "one.swf", "\n".join(alone) + "\n")
    assert tm(["simulate", str(trace), "--policy", "fifo", "--report", str(tmp_path / "r")]) == 0
    assert "fifo: 1 job in " in capsys.readouterr().err
    assert "1 job, submitted over 0 s" in (tmp_path / "r" / "index.html").read_text()


def test_a_terminal_sees_how_far_it_is(tmp_path: Path) -> None:
    """One line: jobs that are over, of all, and the day; nothing where standard error goes elsewhere."""
    trace = write(tmp_path / "small.swf", SWF)
    command = [sys.executable, "-m", "trainmaster", "simulate", str(trace), "--policy", "fifo", "--no-report"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal is gone with the process
            while data := os.read(ours, 4096):
                shown += data
    os.close(ours)
    assert process.returncode == 0
    assert re.search(rb"fifo .*[1-3]/3 .*day 1", shown), shown
    assert subprocess.run(command, capture_output=True, check=True).stderr.splitlines()[1:] == [b"fifo: 3 jobs in 0.0 s"]


@pytest.mark.skipif(not TRACES.is_dir(), reason="the published traces are not here (TRAINMASTER_TRACES names their directory)")
@pytest.mark.parametrize(
    ("policy", "published_s"), [("srtf", 193_082), ("srsf", 185_022)]
)  # Muri's simulator, average completion on trace3
def test_orders_that_know_durations_stand_where_others_found_them(policy: str, published_s: float) -> None:
    replay = Replay(load(TRACES / "muri" / "trace3.csv.gz"), POLICIES[policy], Settings(preemption_cost_s=0.0, exact=True))
    replay.run()
    assert abs(measure(replay).completion_mean_s / published_s - 1) <= 0.08


@pytest.mark.skipif(not TRACES.is_dir(), reason="the published traces are not here (TRAINMASTER_TRACES names their directory)")
@nightly
def test_the_learned_order_beats_published_ones_that_know_nothing() -> None:
    replay = Replay(load(TRACES / "muri" / "trace3.csv.gz"), POLICIES["learned"], Settings(preemption_cost_s=30.0))
    replay.run()
    assert measure(replay).completion_mean_s <= 0.83 * 347_213  # Tiresias-L, the better one of those published
