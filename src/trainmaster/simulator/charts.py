"""The data of a report's charts: curves of several replays. How they are drawn is decided elsewhere."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from trainmaster.simulator.measures import Measures, quantile, slowdown, waited_s
from trainmaster.simulator.replay import History, Replay
from trainmaster.simulator.sampling import Sample, fairness

POINTS = 200  # of a distribution
SMOOTH = 6  # samples averaged into one point of utilization and fragmentation
_DAY_S, _HOUR_S = 86_400.0, 3_600.0

Point = tuple[float, float]
Data = dict[str, list[Point]]  # points of one replay, by chart


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves in one diagram, or with `bars` one bar each. `curves` are (label, points).

    `spans`: values on the x axis are durations in seconds. `names`: labels of the x values, which are then integers from 0.
    """

    name: str
    title: str
    across: str
    up: str
    curves: tuple[tuple[str, tuple[Point, ...]], ...]
    log_across: bool = False
    log_up: bool = False
    spans: bool = False
    names: tuple[str, ...] = ()
    bars: bool = False
    percent: bool = False  # y values are shares


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a replay: its measures and chart data."""

    label: str
    measures: Measures
    data: Data


def data(replay: Replay) -> Data:
    """The chart data of one replay."""
    lives = [life for life in replay.histories.values() if life.ended_s >= 0]
    samples = replay.sampler.samples if replay.sampler is not None else []
    begin_s, width = (samples[0].at_s, replay.sampler.width) if replay.sampler is not None and samples else (0.0, 1.0)
    found: Data = {
        "wait": _distribution([waited_s(life) for life in lives]),
        "completion": _distribution([life.ended_s - life.submit_s for life in lives]),
        "queue": [(sample.at_s - begin_s, float(sample.waiting)) for sample in samples],
        "utilisation": _smooth(samples, begin_s, lambda sample: sample.busy / width),
        "slowdown": _by_size(lives),
    }
    if any(site.devices for site in replay.trace.sites):
        found["fragmentation"] = _smooth(samples, begin_s, lambda sample: sample.fragments / width)
    if replay.scorer is not None and replay.scorer.eta is not None and replay.scorer.eta.telling:
        found["eta"] = _distribution([one.off_s for one in replay.scorer.told])
    found["fairness"] = [(at_s - begin_s, value) for at_s, value in fairness(samples, replay.settings.rules)]
    return found


def _distribution(values: list[float]) -> list[Point]:
    """(value, share of values up to it), for a logarithmic axis: values below a second count as a second."""
    values.sort()
    least = bisect_right(values, 1.0) / len(values)
    more = [(quantile(values, share), share) for share in (at / POINTS for at in range(POINTS + 1)) if share > least]
    return [(1.0, least), *more]


def _smooth(samples: Sequence[Sample], begin_s: float, value: Callable[[Sample], float]) -> list[Point]:
    groups = (samples[at : at + SMOOTH] for at in range(0, len(samples), SMOOTH))
    return [(fmean(one.at_s for one in group) - begin_s, fmean(map(value, group))) for group in groups]


def _by_size(lives: Sequence[History]) -> list[Point]:
    """(power of two, mean bounded slowdown) of jobs with more than half and at most that many GPUs."""
    of: dict[int, list[float]] = {}
    for life in lives:
        of.setdefault(max(0, (max(1, round(life.width)) - 1).bit_length()), []).append(slowdown(life))
    return [(float(power), fmean(values)) for power, values in sorted(of.items())]


def charts(results: Sequence[Result], gpus: bool) -> Iterator[Chart]:
    """Every chart with data. `gpus`: sizes are in GPUs, otherwise in CPUs."""
    unit = "GPUs" if gpus else "CPUs"
    drawn = [
        _distributed(results, "wait", "How long jobs waited", "waited at most"),
        _distributed(results, "completion", "From submission to end", "took at most"),
        _timed(results, "queue", "Jobs in the queue", "jobs"),
        _timed(results, "utilisation", f"{unit} in use", f"share of all {unit}", percent=True),
        _timed(results, "fragmentation", "GPUs that are free and too few together", "share of all GPUs", percent=True),
        _timed(results, "fairness", "Fairness among projects with work", "Jain's index of use over weight"),
        _sizes(results, unit),
        _distributed(results, "eta", "How far off start estimates were", "off by at most", "share of estimates"),
        _bars(results, "held", "90 % bounds of start estimates that held", "share of estimates", _held),
        _bars(results, "preemptions", "Preemptions", "per job", lambda one: one.preemptions / one.jobs),
        _bars(results, "lost", "Done again after preemptions", f"{unit[:-1]}-hours", lambda one: one.lost_hours),
    ]
    return (chart for chart in drawn if any(points for _, points in chart.curves))


def _of(results: Sequence[Result], name: str, scale: float = 1.0) -> tuple[tuple[str, tuple[Point, ...]], ...]:
    return tuple((one.label, tuple((x / scale, y) for x, y in one.data.get(name, ()))) for one in results)


def _held(one: Measures) -> float | None:
    return one.eta.held90 if one.eta is not None and one.eta.telling else None


def _distributed(results: Sequence[Result], name: str, title: str, across: str, up: str = "share of jobs") -> Chart:
    return Chart(name, title, across, up, _of(results, name), log_across=True, spans=True, percent=True)


def _timed(results: Sequence[Result], name: str, title: str, up: str, percent: bool = False) -> Chart:
    """Over the days of the trace, or the hours of a short one."""
    last_s = max((points[-1][0] for one in results if (points := one.data.get(name))), default=0.0)
    scale, unit = (_DAY_S, "days") if last_s > 3 * _DAY_S else (_HOUR_S, "hours")
    return Chart(name, title, f"{unit} since the first submission", up, _of(results, name, scale), percent=percent)


def _sizes(results: Sequence[Result], unit: str) -> Chart:
    powers = sorted({int(power) for one in results for power, _ in one.data["slowdown"]})
    names = tuple(_size(power) for power in powers)
    placed = tuple(
        (one.label, tuple((float(powers.index(int(power))), value) for power, value in one.data["slowdown"])) for one in results
    )
    title, across, up = "Slowdown by size of job", f"{unit} of the job", "mean bounded slowdown"
    return Chart("slowdown", title, across, up, placed, log_up=True, names=names)


def _size(power: int) -> str:
    """`1`, `2`, `3–4`, `5–8`: the sizes in the class of a power of two."""
    return str(2**power) if power < 2 else f"{2 ** (power - 1) + 1}–{2**power}"


def _bars(results: Sequence[Result], name: str, title: str, up: str, value: Callable[[Measures], float | None]) -> Chart:
    """A bar for each result with a value; no bars if all values are 0."""
    values = [value(one.measures) for one in results]
    shown = [() if value is None or not any(values) else ((float(at), value),) for at, value in enumerate(values)]
    placed = tuple((one.label, bar) for one, bar in zip(results, shown, strict=True))
    return Chart(name, title, "", up, placed, names=tuple(one.label for one in results), bars=True, percent=value is _held)
