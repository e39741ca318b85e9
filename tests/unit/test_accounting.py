"""Sums of charges are exact to the microsecond, for any division into periods."""

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.errors import UsageError
from trainmaster.model.ledger import US_PER_HOUR, Charge, Payer, Rate
from trainmaster.server.cluster import accounting
from trainmaster.server.cluster.accounting import BY, Calendar, Line, Period, tally

HOUR_MS = 3_600_000
UTC = Calendar(UTC)
ANN, BOB = Payer("vision", "ann", "training", "digits"), Payer("text", "bob", "trial", "books")
names = st.sampled_from(("a", "b", "c"))
payers = st.builds(Payer, names, names, names, names)
rates = st.builds(
    Rate, names, st.integers(0, 8000), st.just(0), st.sampled_from((0.0, 0.1, 2.5, 1 / 3)), st.sampled_from(("USD", "EUR"))
)
moments = st.integers(0, 40 * 24 * HOUR_MS)
periods = st.tuples(moments, moments).map(lambda ends: Period(min(ends), max(ends) + 1))


@st.composite
def charges(draw: st.DrawFn) -> list[Charge]:
    found = []
    for attempt in range(draw(st.integers(0, 8))):
        begin_ms, end_ms = sorted((draw(moments), draw(moments)))
        lost_ms = draw(st.none() | st.integers(begin_ms, end_ms))
        until_ms = draw(st.sampled_from((end_ms, None)))
        found.append(Charge(draw(names), attempt, draw(payers), draw(rates), begin_ms, until_ms, lost_ms))
    return found


def amounts(line: Line) -> tuple[int, ...]:
    return line.gpu_us, line.cpu_us, line.lost_gpu_us, line.lost_cpu_us


@given(charges(), periods, st.lists(st.sampled_from(BY), min_size=1, unique=True), st.sampled_from(("UTC", "Europe/Berlin")))
def test_whatever_it_is_told_by_the_sum_is_the_same(found: list[Charge], period: Period, by: list[str], zone: str) -> None:
    usage = tally(found, period, by, Calendar(ZoneInfo(zone)))
    assert tuple(map(sum, zip((0, 0, 0, 0), *(amounts(line) for line in usage.lines.values()), strict=True))) == amounts(
        usage.total
    )
    exactly = sum(
        one.rate.gpu_milli * max(0, min(period.until_ms if one.until_ms is None else one.until_ms, period.until_ms) - max(one.from_ms, period.from_ms))
        for one in found
    )
    assert usage.total.gpu_us == exactly
    assert usage.total.lost_gpu_us <= usage.total.gpu_us


@given(charges(), periods, moments)
def test_a_period_is_the_sum_of_its_parts(found: list[Charge], period: Period, cut_ms: int) -> None:
    cut_ms = min(max(cut_ms, period.from_ms), period.until_ms)
    parts = [
        tally(found, part, ["job"], UTC).total for part in (Period(period.from_ms, cut_ms), Period(cut_ms, period.until_ms))
    ]
    whole = tally(found, period, ["job"], UTC).total
    assert tuple(map(sum, zip(*map(amounts, parts), strict=True))) == amounts(whole)


@given(charges(), periods)
def test_money_is_worked_out_at_the_end(found: list[Charge], period: Period) -> None:
    total = tally(found, period, ["project"], UTC).total
    for currency in ("USD", "EUR"):
        mine = [one for one in found if one.rate.currency == currency]
        exactly = sum(Fraction(repr(one.rate.price)) * one.us(*period)[0] / US_PER_HOUR for one in mine)
        assert abs(Fraction(total.cost().get(currency, Decimal(0))) - exactly) <= Fraction(1, 2_000_000)


def test_days_are_as_long_as_they_are_somewhere() -> None:
    """The night of 30 March 2025 has an hour less in Berlin, that of 26 October one more."""
    berlin = ZoneInfo("Europe/Berlin")
    for day, hours in (((2025, 3, 30), 23), ((2025, 10, 26), 25), ((2025, 7, 1), 24)):
        begin_ms = round(datetime(*day, tzinfo=berlin).timestamp() * 1000)
        (first, whole), (_, after) = Calendar(berlin).parts(Period(begin_ms, begin_ms + hours * HOUR_MS + 1))
        assert first == datetime(*day).date().isoformat()
        assert (whole.until_ms - whole.from_ms, after.until_ms - after.from_ms) == (hours * HOUR_MS, 1)


@given(
    periods,
    st.sampled_from(("America/Sao_Paulo", "Asia/Beirut", "Pacific/Apia", "Australia/Lord_Howe", "UTC")),
    st.integers(0, 60),
)
def test_days_follow_each_other_without_a_gap(period: Period, zone: str, years: int) -> None:
    """Where midnights are missing, and where a whole day was."""
    shift_ms = round(years * 365.25 * 24) * HOUR_MS
    moved = Period(period.from_ms + shift_ms, period.until_ms + shift_ms)
    parts = list(Calendar(ZoneInfo(zone)).parts(moved))
    assert [part.from_ms for _, part in parts] == [moved.from_ms, *(part.until_ms for _, part in parts[:-1])]
    assert parts[-1][1].until_ms == moved.until_ms
    days = [day for day, _ in parts]
    assert days == sorted(set(days))


def test_an_attempt_counts_wherever_it_has_a_part() -> None:
    day_ms = 24 * HOUR_MS
    found = [
        Charge("digits-1", 1, ANN, Rate("gpu", 2000), day_ms - HOUR_MS, day_ms + HOUR_MS, day_ms),
        Charge("digits-1", 2, ANN, Rate("gpu", 2000, 0, 1.5), day_ms + HOUR_MS),
        Charge("books-1", 1, BOB, Rate("cpu", 0, 4000, 0.25), 0, day_ms),
    ]
    usage = tally(found, Period(0, 2 * day_ms), ["project", "day"], UTC)
    told = [
        (*key, line.gpu_us / US_PER_HOUR, line.cpu_us / US_PER_HOUR, line.lost_gpu_us / US_PER_HOUR, len(line.attempts), len(line.running))
        for key, line in usage.ordered(["project", "day"])
    ]  # fmt: skip
    assert told == [
        ("text", "1970-01-01", 0, 96, 0, 1, 0),
        ("vision", "1970-01-01", 2, 0, 0, 1, 0),
        ("vision", "1970-01-02", 2 + 46, 0, 2, 2, 1),
    ]
    assert usage.total.cost() == {"USD": Decimal("93.000000")}  # 46 × 1.5 and 96 × 0.25
    by_size = tally(found, Period(0, 2 * day_ms), ["project"], UTC).ordered(["project"])
    assert [(key, len(line.jobs)) for key, line in by_size] == [(("vision",), 1), (("text",), 1)]


@pytest.mark.parametrize("empty", [Period(0, 1000), Period(5000, 5001)])
def test_what_has_no_part_in_a_period_does_not_count(empty: Period) -> None:
    found = [Charge("digits-1", 1, ANN, Rate("gpu", 1000), 1000, 5000)]
    assert tally(found, empty, ["day"], UTC).lines == {}


def test_more_lines_than_anybody_reads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "LINES_MAX", 3)
    found = [Charge(f"digits-{number}", 1, ANN, Rate("gpu", 1000), 0, 10) for number in range(4)]
    assert len(tally(found[:3], Period(0, 10), ["job"], UTC).lines) == 3
    with pytest.raises(UsageError, match="more than 3 lines"):
        tally(found, Period(0, 10), ["job"], UTC)
