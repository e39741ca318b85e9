"""The output of a simulation: samples over time, charts, the page, and the effect of a change."""

import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.cli.app import run as tm
from trainmaster.cli.render.html_figure import Powers
from trainmaster.cli.simulate import report, report_plots
from trainmaster.cli.simulate.differences import differences
from trainmaster.cli.simulate.report_page import bar_label, html, keyed, scales
from trainmaster.errors import UsageError
from trainmaster.model.cluster import Cluster, Project, Quota
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.simulator.cases import Case, quotas, run, with_quotas
from trainmaster.simulator.charts import Chart, Result, charts
from trainmaster.simulator.measures import measure
from trainmaster.simulator.replay import Replay, Settings
from trainmaster.simulator.sampling import SAMPLES, Sample, Sampler, fairness, jain, mean
from trainmaster.simulator.trace import Arrival, Trace, gang, gpu_nodes


def trace(*jobs: tuple[float, float, int, str], nodes: int = 1) -> Trace:
    """Of (submitted, runs, GPUs, project), on nodes of 8 GPUs."""
    arrivals = tuple(Arrival(str(n), at_s, run_s, gang(gpus, 8), whose) for n, (at_s, run_s, gpus, whose) in enumerate(jobs))
    return Trace("made-up", arrivals, gpu_nodes(nodes, 8))


@cache
def crowd(nodes: int = 1) -> Trace:
    """Two projects that want more than there is, one of them three times as often."""
    return trace(*((float(n), 600.0, 4, "vision" if n % 4 else "speech") for n in range(80)), nodes=nodes)


@cache  # a crowd's takes seconds, most of them for what everybody would be told of his wait; no test changes one
def result(of: Trace, policy: str = "fifo") -> Result:
    return run(Case(policy, of, POLICIES[policy], Settings(), 15))


def test_samples_say_what_was_between_events() -> None:
    made = trace((0.0, 480.0, 8, "a"), (0.0, 240.0, 4, "b"), (0.0, 240.0, 4, "b"))
    sampler = Sampler(made.arrivals, made.sites)
    replay = Replay(made, POLICIES["fifo"], sampler=sampler)
    replay.run()
    assert sampler.step_s == 1.0  # the trace is as long as its longest job
    at = {sample.at_s: sample for sample in sampler.samples}
    assert (at[100.0].waiting, at[100.0].busy, at[100.0].served, at[100.0].eager) == (2, 8.0, {"a": 800.0}, {"b"})
    assert (at[500.0].waiting, at[500.0].busy) == (0, 8.0)
    assert at[500.0].served == {"a": 3840.0, "b": 160.0}
    assert measure(replay).utilisation == 1.0


def test_samples_are_never_many_and_even() -> None:
    made = trace((0.0, 1.0, 8, "a"), *((1.0, 500.0, 8, "a") for _ in range(50)))  # runs on long after the last arrival
    sampler = Sampler(made.arrivals, made.sites)
    Replay(made, POLICIES["fifo"], sampler=sampler).run()
    gaps = {round(later.at_s - now.at_s, 6) for now, later in zip(sampler.samples, sampler.samples[1:], strict=False)}
    assert (SAMPLES // 2 < len(sampler.samples) < 2 * SAMPLES, len(gaps)) == (True, 1)
    assert sampler.samples[-1].at_s > 24_000


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=20))
def test_jain_is_between_one_of_n_and_one(shares: list[float]) -> None:
    assert 1 / len(shares) - 1e-9 <= jain(shares) <= 1 + 1e-9
    assert jain([2.0] * len(shares)) == pytest.approx(1.0)


def test_fairness_looks_at_who_always_has_work_and_at_weights() -> None:
    both, one = frozenset({"a", "b"}), frozenset({"a"})
    samples = [Sample(float(n), 1, 8.0, 0.0, {"a": 30.0 * n, "b": 10.0 * n}, both if n < 30 else one) for n in range(60)]
    found = fairness(samples, Cluster())
    assert [value for _, value in found] == [pytest.approx(0.8)] * 18  # of 12 … 29: there both have work throughout
    weighted = fairness(samples, Cluster(projects=(Project("a", weight=3.0),)))
    assert [value for _, value in weighted] == [pytest.approx(1.0)] * 18


def test_a_mean_over_time_weighs_by_how_long() -> None:
    assert mean([(0.0, 1.0), (9.0, 11.0), (10.0, 5.0)]) == 2.0
    assert mean([(0.0, 1.0)]) is None


def test_charts_are_of_what_there_is_to_show() -> None:
    def names(of: Trace, *policies: str) -> list[str]:
        return [chart.name for chart in charts([result(of, policy) for policy in policies], True)]

    always = ["wait", "completion", "queue", "utilisation", "fragmentation"]
    assert names(crowd(), "fifo") == [*always, "fairness", "slowdown", "eta", "held"]
    alone = trace((0.0, 5000.0, 8, "a"), (600.0, 10.0, 8, "a"))
    assert names(alone, "fifo", "srtf") == [*always, "slowdown", "preemptions", "lost"]


def test_who_made_no_estimates_has_no_bar_of_those_that_held() -> None:
    held = next(chart for chart in charts([result(crowd(), policy) for policy in ("srtf", "fifo")], True) if chart.name == "held")
    assert [(label, len(points)) for label, points in held.curves] == [("srtf", 0), ("fifo", 1)]
    assert scales(held)[1].ticks[-1] == 1.0, "shares are shown beside the whole"
    assert [bar_label(held, value) for value in (0.765, 1.0)] == ["76%", "100%"]
    assert [bar_label(replace(held, percent=False), value) for value in (0.8765, 12.0, 1234.5)] == ["0.876", "12", "1,234"]


def test_a_curve_that_lies_behind_another_is_said_to_be_the_same() -> None:
    points, others = ((0.0, 1.0), (1.0, 2.0)), ((0.0, 1.0),)
    chart = Chart("queue", "", "", "", (("fifo", others), ("easy", points), ("fair-share", points)))
    assert keyed(chart) == ["fifo", "easy (the same as fair-share)", "fair-share"]


def test_distributions_rise_to_one_and_begin_at_a_second() -> None:
    found = result(crowd()).data
    for name in ("wait", "completion"):
        xs, ys = zip(*found[name], strict=True)
        assert (xs[0], ys[-1], sorted(xs), sorted(ys)) == (1.0, 1.0, list(xs), list(ys))


class Checked(HTMLParser):
    """Counts tags, and sees that they are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(*results: Result, of: Trace) -> str:
    cases = [Case(one.label, of, POLICIES[one.measures.policy], Settings()) for one in results]
    return html(report.story(cases, results, ["waits <fall>"]))


def test_the_page_is_whole_and_fetches_nothing() -> None:
    text = page(result(crowd()), result(crowd(), "srtf"), of=crowd())
    parsed = Checked(text)
    assert (parsed.open, parsed.seen.count("script"), parsed.seen.count("img"), "://" in text) == ([], 0, 0, False)
    assert parsed.seen.count("section") == 9
    assert "waits &lt;fall&gt;" in text
    assert "80 jobs, submitted over 1.3 min" in text
    assert [cell for cell in ("vision", "speech") if f"<td>{cell}</td>" in text] == ["vision", "speech"]
    assert "nan" not in text


def test_every_point_is_on_the_picture() -> None:
    text = page(result(crowd()), result(crowd(), "srtf"), of=crowd())
    points = [tuple(map(float, point.split(","))) for path in re.findall(r'points="([^"]+)"', text) for point in path.split()]
    assert len(points) > 1000
    assert all(62 <= x <= 472 and 10 <= y <= 228 for x, y in points)


@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=5), st.booleans())
def test_a_logarithmic_scale_keeps_every_value_within_and_in_order(values: list[float], spans: bool) -> None:
    scale = Powers(values, (0.0, 100.0), spans)
    placed = [scale(value) for value in sorted(values)]
    assert placed == sorted(placed)
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in [*placed, *map(scale, scale.ticks)])


SWF = "".join(f"{n} {n * 10} 5 {100 + n} 2 -1 -1 2 300 -1 1 7 1 3 1 1 -1 -1\n" for n in range(1, 13))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.swf").write_text("; MaxProcs: 4\n" + SWF)
    return tmp_path


def test_a_report_of_ours_is_replaced_and_nothing_else_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tm(["simulate", "small.swf", "--compare", "fifo,srtf"]) == 0
    assert "report: simulation-small/index.html" in capsys.readouterr().err
    before = {path.name for path in (here / "simulation-small").iterdir()}
    assert tm(["simulate", "small.swf"]) == 0
    after = {path.name for path in (here / "simulation-small").iterdir()}
    assert ("index.html" in after, after - before) == (True, set())
    (here / "mine").mkdir()
    (here / "mine" / "index.html").write_text("my own page")
    capsys.readouterr()
    assert tm(["simulate", "small.swf", "--report", "mine"]) == 2
    told = capsys.readouterr()
    assert (told.out, "mine has files that are no report of tm simulate" in told.err) == ("", True)  # said before the work
    assert (here / "mine" / "index.html").read_text() == "my own page"
    assert tm(["simulate", "small.swf", "--report", "small.swf"]) == 2
    assert tm(["simulate", "small.swf", "--json", "--no-report"]) == 0


def test_without_matplotlib_the_page_is_there_and_a_word_on_the_pictures(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report_plots, "available", lambda: False)
    assert tm(["simulate", "small.swf"]) == 0
    assert [path.name for path in (here / "simulation-small").iterdir()] == ["index.html"]
    assert "for PNG files too, in the environment of tm: pip install matplotlib" in capsys.readouterr().err


def test_a_what_if_shows_both_and_says_the_difference(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tm(["simulate", "small.swf", "--add", "cpu: 4 nodes", "--no-report"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["CASE", "now", "then"]
    assert re.match(r"waits fall from [\d.]+ min to \d+ s|waits fall from", lines[3])
    assert tm(["simulate", "small.swf", "--cluster", "1", "--no-report"]) == 2
    assert "no job could start on 1 node of 1 CPU: job 1 (line 2) asks for 2 nodes" in capsys.readouterr().err
    assert tm(["simulate", "small.swf", "--cluster", "", "--no-report"]) == 2
    assert "--cluster: '' is not a group of nodes" in capsys.readouterr().err


def test_differences_are_told_where_there_are_any() -> None:
    now, then = result(crowd()).measures, result(crowd(nodes=40)).measures
    told = differences(now, then)
    assert told[0].startswith("waits fall from ")
    assert any(re.fullmatch(r"waits of vision fall from .+ to .+", line) for line in told)
    assert "use of the cluster falls from 100% to 88%" in told
    assert differences(now, now) == [f"waits stay at {told[0].split(' from ')[1].split(' to ')[0]}"]


def test_a_quota_bounds_a_project_by_name() -> None:
    with_a100 = replace(crowd(), sites=(*crowd().sites, *gpu_nodes(1, 8, "a100")))
    bounds = quotas(("vision=32", "speech=A100:8"), with_a100)
    assert bounds == {("vision", "gpus"): 32.0, ("speech", "a100"): 8.0}
    rules = with_quotas(Cluster(projects=(Project("vision", weight=2.0, quotas=(("gpus", Quota(4.0)),)),)), bounds)
    assert rules.project("vision") == Project("vision", weight=2.0, quotas=(("gpus", Quota(0.0, 32.0, 32.0)),))
    assert rules.project("speech").quotas == (("a100", Quota(0.0, 8.0, 8.0)),)
    for text in ("vision", "vision=", "vision=many", "vision=-1", "=3", "nobody=3"):
        with pytest.raises(UsageError, match="--quota"):
            quotas((text,), crowd())
    with pytest.raises(UsageError) as refused:
        quotas(("speech=a100:8",), crowd())
    assert (refused.value.message, refused.value.hint) == ("--quota 'speech=a100:8': no node has any a100", "here are cpus, gpu, gpus")


def test_that_some_never_start_is_said_before_what_it_flatters() -> None:
    rules = with_quotas(Cluster(), {("vision", "gpus"): 0.0})
    then = run(Case("then", crowd(), POLICIES["fifo"], Settings(rules=rules), 0)).measures
    told = differences(result(crowd()).measures, then)
    assert told[0] == "60 jobs never start, where it was 0: the other figures leave them out"
    assert told[1].startswith("waits fall from ")


def test_a_what_if_is_of_the_same_jobs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{n} {n} -1 100 1 -1 -1 1 -1 -1 1 1 1 -1 -1 -1 -1 -1" for n in range(3)]
    lines.append("3 3 -1 9000 4 -1 -1 4 -1 -1 1 1 1 -1 -1 -1 -1 -1")
    Path("wide.swf").write_text("; MaxProcs: 2\n" + "\n".join(lines) + "\n")
    assert tm(["simulate", "wide.swf", "--add", "cpu: 4 nodes", "--no-report"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[3] == (
        "1 job could start then, and not now: left out of both, so that the figures describe the same jobs"
    )
    assert said.out.splitlines()[4] == "waits fall from 33 s to 0 s"
    assert said.err.startswith("now: 1 job left out, which could never start here; ")
    assert "then: 1 job left out" not in said.err
    assert [line.partition(" in ")[0] for line in said.err.splitlines()[1:]] == ["now: 3 jobs", "then: 3 jobs"]
    assert tm(["simulate", "wide.swf", "--add", "cpu: 4 nodes", "--quota", "g1=3", "--json"]) == 0
    assert [one["jobs"] for one in json.loads(capsys.readouterr().out)] == [3, 3]


def test_a_quota_that_no_job_of_some_fits_into_leaves_them_out_of_both(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{n} {n} -1 100 {1 + n % 2} -1 -1 {1 + n % 2} -1 -1 1 1 1 -1 -1 -1 -1 -1" for n in range(4)]
    Path("two.swf").write_text("; MaxProcs: 2\n" + "\n".join(lines) + "\n")
    assert tm(["simulate", "two.swf", "--quota", "g1=1", "--no-report"]) == 0
    said = capsys.readouterr()
    told = said.out.splitlines()[3]
    assert told == "2 jobs could start now, and not then: left out of both, so that the figures describe the same jobs"
    assert said.err.startswith("then: 2 jobs left out, which could never start here; the first: job 1 (line 3) asks for 2 CPUs; ")


def test_who_may_never_start_is_not_waited_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = with_quotas(Cluster(), {("vision", "gpus"): 0.0})
    for policy in ("fifo", "least-attained", "fair-share"):  # the second looks again every now and then, whatever happens
        found = run(Case(policy, crowd(), POLICIES[policy], Settings(rules=rules), 0)).measures
        assert (found.never, found.jobs, list(found.projects)) == (60, 20, ["speech"])
    assert tm(["simulate", "small.swf", "--quota", "g3=0"]) == 2
    assert "projects here: g1" in capsys.readouterr().err
    assert tm(["simulate", "small.swf", "--quota", "g1=0", "--no-report"]) == 2
    assert "no job could start on 4 nodes of 1 CPU: job " in capsys.readouterr().err
