"""Start estimates in a simulation: which jobs get one, and how they compare with the actual starts."""

import json
import re
from math import inf
from pathlib import Path
from random import Random

import pytest
from effort import examples, nightly
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.cli.app import run as tm
from trainmaster.scheduling.explanation.forecast import Waits
from trainmaster.scheduling.model.request import Shape, ask_of
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.simulator.cases import Case, run
from trainmaster.simulator.charts import charts
from trainmaster.simulator.forecast_scores import ForecastScorer, Told, scored
from trainmaster.simulator.measures import measure
from trainmaster.simulator.replay import Replay, Settings
from trainmaster.simulator.trace import Arrival, Trace, processors

ONE = ask_of(1, Shape())


def line(rng: Random, jobs: int = 80) -> Trace:
    """Jobs of one processor that run to their limits, more than there are processors for."""
    at_s, arrivals = 0.0, []
    for seq in range(jobs):
        run_s = rng.choice([60.0, 600.0, rng.random() * 9000.0 + 1.0])
        arrivals.append(Arrival(str(seq), at_s, run_s, ONE, member=rng.choice("xyz"), limit_s=run_s))
        at_s += rng.random() * 1000.0
    return Trace("line", tuple(arrivals), processors(rng.randint(1, 3)))


@settings(max_examples=examples(3, 60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_where_limits_are_exact_and_nobody_passes_another_every_bound_holds(seed: int) -> None:
    trace = line(Random(seed))
    scorer = ForecastScorer(POLICIES["fifo"])
    replay = Replay(trace, POLICIES["fifo"], scorer=scorer)
    lives = replay.run()
    late = {id: life.started_s - life.submit_s for id, life in lives.items() if life.started_s > life.submit_s}
    assert {one.job: one.waited_s for one in scorer.told} == pytest.approx(late), "each that waited is told, once"
    assert all(one.held for one in scorer.told)
    eta = measure(replay).eta
    assert eta == scorer.eta
    if eta is not None:
        assert (eta.waited, eta.told, eta.held90, eta.before90) == (len(late), len(late), 1.0, 0.0)
        assert all(one.off_s <= 0.1 * (one.waited_s + 600.0) for one in scorer.told)


def test_a_score_is_what_its_words_say() -> None:
    bounds = Waits(10.0, 20.0, 50.0, 60.0, 100.0)
    told = [Told("", 0.0, bounds, waited_s, 0.0) for waited_s in (5.0, 10.0, 45.0, 60.0, 101.0)]
    eta = scored(told, 9)
    assert eta is not None
    assert (eta.waited, eta.told, eta.held50, eta.held90, eta.before90) == (9, 5, 0.4, 0.6, 0.2)
    assert (eta.width90_p50, eta.error_p50_s) == (2.0, 40.0)
    assert eta.error_mean_s == pytest.approx((45 + 40 + 5 + 10 + 51) / 5)
    assert scored([], 9) is None
    endless = scored([Told("", 0.0, bounds._replace(high90_s=inf), 5.0, 0.0)], 1)
    assert endless is not None
    assert endless.width90_p50 is None


def test_so_many_are_told_as_asked_for_spread_over_the_trace() -> None:
    trace = line(Random(1), 100)
    every = run(Case("all", trace, POLICIES["fifo"], Settings(), 300)).measures.eta
    few = run(Case("few", trace, POLICIES["fifo"], Settings(), 30)).measures.eta
    assert every is not None
    assert few is not None
    assert (every.told, few.told, few.waited) == (every.waited, 30, every.waited)
    assert run(Case("none", trace, POLICIES["fifo"], Settings())).measures.eta is None
    assert run(Case("exact", trace, POLICIES["fifo"], Settings(exact=True), 300)).measures.eta is None
    assert run(Case("exact", trace, POLICIES["srtf"], Settings(), 30)).measures.eta is None


def test_the_time_of_a_replay_is_all_of_it_and_each_estimate_is_announced() -> None:
    heard: list[int] = []
    found = run(Case("some", line(Random(1)), POLICIES["fair-share"], Settings(), 5), estimating=heard.append).measures
    assert heard == [1, 2, 3, 4, 5]
    assert 0.0 < found.eta_seconds < found.seconds
    assert found.jobs_per_s == pytest.approx(found.jobs / found.seconds)


@pytest.mark.parametrize(("policy", "most"), [("fifo", 60), pytest.param("fair-share", 15, marks=nightly)])
def test_how_many_are_told_is_no_matter_of_the_machine(policy: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes no time on one machine and a thousand seconds on another: the same are told, to the end of the trace."""
    trace, said = line(Random(1), 300), []
    for second in (0.0, 1000.0):
        clock = iter(range(10_000))
        monkeypatch.setattr("trainmaster.simulator.forecast_scores.time.process_time", lambda: second * next(clock))  # noqa: B023
        scorer = ForecastScorer(POLICIES[policy], len(trace.arrivals), most)
        Replay(trace, POLICIES[policy], scorer=scorer).run()
        said.append([one._replace(seconds=0.0) for one in scorer.told])
    assert said[0] == said[1]
    assert 0.9 * most <= len(said[0]) <= most
    first_s, last_s = said[0][0].at_s, said[0][-1].at_s
    assert (first_s < 0.1 * trace.arrivals[-1].submit_s, last_s > 0.9 * trace.arrivals[-1].submit_s) == (True, True)


def test_the_report_shows_them_where_there_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{n} {n * 10} 5 {100 + n} 2 -1 -1 2 300 -1 1 7 1 3 1 1 -1 -1\n" for n in range(1, 60)]
    trace = tmp_path / "small.swf"
    trace.write_text("; MaxProcs: 4\n" + "".join(rows))
    assert tm(["simulate", str(trace), "--policy", "fifo", "--report", str(tmp_path / "told"), "--eta", "60"]) == 0
    said = capsys.readouterr()
    assert "ETA90" in said.out.splitlines()[0].split()
    assert re.search(r"^fifo: 59 jobs in \d+\.\d s, \d+\.\d s of it for start estimates$", said.err, re.MULTILINE)
    page = (tmp_path / "told" / "index.html").read_text()
    assert all(heading in page for heading in ("Start estimates", "How far off start estimates were", "90 % bounds"))
    assert tm(["simulate", str(trace), "--policy", "fifo", "--no-report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["eta"] is None, "they cost more than the replay: only where they are asked for"
    assert tm(["simulate", str(trace), "--policy", "fifo", "--no-report", "--eta", "60", "--json"]) == 0
    eta = json.loads(capsys.readouterr().out)[0]["eta"]
    assert set(eta) >= {"waited", "told", "held50", "held90", "width90_p50", "error_p50_s", "error_mean_s"}
    few = run(Case("few", line(Random(1)), POLICIES["fifo"], Settings(), 5))
    assert {chart.name for chart in charts([few], gpus=False)}.isdisjoint({"eta", "held"})
