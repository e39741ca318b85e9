"""`tm usage`: its requests, its output, and the times that it accepts."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from contract_server import Answer, Asked, ContractServer, serving

from trainmaster.cli.app import run
from trainmaster.cli.app import run as tm
from trainmaster.cli.render import times
from trainmaster.errors import UsageError

NOW_S = datetime(2026, 11, 22, 12, 30).timestamp()
NOON_S = datetime(2026, 11, 22, 12, 30, tzinfo=UTC).timestamp()
KIRITIMATI = timezone(timedelta(hours=14))
HINT = "write how long ago (90m, 24h, 7d), a day (2026-11-30, today, yesterday), a time (2026-11-30T14:00), or all"
NOTHING = {"gpu_us": 0, "cpu_us": 0, "gpu_hours": 0.0, "cpu_hours": 0.0, "lost_gpu_hours": 0.0, "lost_cpu_hours": 0.0}
NOBODY: dict[str, Any] = {**NOTHING, "share": 0.0, "jobs": 0, "attempts": 0, "running": 0, "cost": {}}


def line(project: str, **changes: Any) -> dict[str, Any]:
    return {"project": project, **NOBODY, **changes}


def answering(lines: list[dict[str, Any]], left_out: int = 0, **total: Any) -> dict[str, Any]:
    since_s = datetime(2026, 11, 15, 9, 5, tzinfo=UTC).timestamp()
    found = {"by": ["project"], "since_s": since_s, "until_s": NOON_S, "zone": "UTC", "lines": lines, "left_out": left_out}
    return {**found, "total": {**NOBODY, **total}}


VISION = line("vision", gpu_hours=1234.56, share=0.9, jobs=12, attempts=15, running=1, lost_gpu_hours=0.0123, cost={"EUR": "3086.4"})
TEXT = line("text", cpu_hours=9.876, share=0.1, jobs=1, attempts=1, cost={"USD": "0.5"})
BOTH = answering(
    [VISION, TEXT], 3, gpu_hours=1234.56, cpu_hours=9.876, lost_gpu_hours=0.0123, share=1.0, jobs=13, attempts=16, running=1,
    cost={"EUR": "3086.4", "USD": "0.5"},
)  # fmt: skip


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `tm usage` against a server that answers so: exit code, output, other words, what was asked."""
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TZ", "UTC")

    def tell(answer: dict[str, Any], *arguments: str) -> tuple[int, str, str, list[Asked]]:
        def route(_: Asked) -> Answer:
            return 200, answer

        server: ContractServer
        with serving(route) as server:
            code = run(["usage", "--server", server.url, *arguments])
            said = capsys.readouterr()
            return code, said.out, said.err, server.asked

    return tell


def test_a_table(told: Any) -> None:
    code, out, err, asked = told(BOTH, "--since", "all")
    assert (code, out.splitlines()) == (
        0,
        [
            "PROJECT  GPU H  CPU H  SHARE %  JOBS  ATTEMPTS  LOST GPU H  COST EUR  COST USD",
            "vision   1,235      -     90.0    12        15      0.0123  3,086.40         -",
            "text         -   9.88     10.0     1         1           -         -      0.50",
            "all      1,235   9.88    100.0    13        16      0.0123  3,086.40      0.50",
        ],
    )
    assert err == (
        "and 3 lines more: --limit 5\nfrom 2026-11-15 09:05 to 2026-11-22 12:30; 1 attempt still running, charged so far\n"
    )
    assert [one.line for one in asked] == ["GET /usage?by=project&since_s=0.0&limit=1000&zone=UTC"]


def test_what_nobody_used_has_no_column(told: Any) -> None:
    only = answering([line("text", cpu_hours=9.876, share=1.0, jobs=1, attempts=1)], cpu_hours=9.876, share=1.0, jobs=1, attempts=1)
    assert told(only)[1].splitlines() == ["PROJECT  CPU H  SHARE %  JOBS  ATTEMPTS", "text      9.88    100.0     1         1"]


def test_a_small_cost_is_not_told_as_none(told: Any) -> None:
    lines = [line(name, cost={"EUR": amount} if amount else {}) for name, amount in (("a", "0.004"), ("b", "0.005"), ("c", ""))]
    out = told(answering(lines, cost={"EUR": "0.009"}))[1].splitlines()
    assert [row.split("  ")[-1].strip() for row in out] == ["COST EUR", "< 0.01", "0.01", "-", "0.01"]


def test_nothing_is_said_in_words(told: Any) -> None:
    assert told(answering([]))[:3] == (0, "", "nothing was charged from 2026-11-15 09:05 to 2026-11-22 12:30\n")
    said = told({**answering([]), "since_s": 0.0}, "--project", "x")[2]
    assert said == "nothing was charged to project x from the beginning to 2026-11-22 12:30\n"
    assert json.loads(told(answering([]), "--json")[1])["lines"] == []


def test_csv_has_exact_amounts_and_a_column_for_each_currency(told: Any) -> None:
    out = told(BOTH, "--csv")[1].splitlines()
    assert out[0] == (
        "project,gpu_hours,cpu_hours,share,jobs,attempts,running,lost_gpu_hours,lost_cpu_hours,gpu_us,cpu_us,cost_EUR,cost_USD"
    )
    assert out[1:] == ["vision,1234.56,0.0,0.9,12,15,1,0.0123,0.0,0,0,3086.4,0", "text,0.0,9.876,0.1,1,1,0,0.0,0.0,0,0,0,0.5"]


def test_two_forms_at_once_are_refused(told: Any) -> None:
    code, out, err, asked = told(BOTH, "--csv", "--json")
    assert (code, out, json.loads(err)["error"]["message"], asked) == (2, "", "--csv and --json contradict each other", [])


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("all", 0.0),
        ("now", NOW_S),
        ("7d", NOW_S - 7 * 86_400),
        ("1h30m", NOW_S - 5400),
        ("today", datetime(2026, 11, 22).timestamp()),
        ("yesterday", datetime(2026, 11, 21).timestamp()),
        ("1700000000", 1_700_000_000.0),
        ("1700000000.25", 1_700_000_000.25),
        ("20261120", datetime(2026, 11, 20).timestamp()),
        ("2026-11-20", datetime(2026, 11, 20).timestamp()),
        ("2026-11-20T14:00", datetime(2026, 11, 20, 14).timestamp()),
        ("2026-11-20T14:00+00:00", 1_795_183_200.0),
        ("1900-01-01", 0.0),
    ],
)
def test_times_are_understood(text: str, expected_s: float) -> None:
    assert times.moment(text, "--since", NOW_S) == expected_s


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("30", "--since: 30 of what?; did you mean '30d'?"),
        ("0", "--since: 0 of what?; did you mean '0d'?"),
        ("1.5", "--since: 1.5 of what?; did you mean '1.5d'?"),
        ("", "--since: '' is neither a time nor how long ago"),
        ("tomorrow", "--since: 'tomorrow' is neither a time nor how long ago"),
        ("2026-13-01", "--since: there is no day or time '2026-13-01'"),
        ("7 days", "--since: '7 days' is neither a time nor how long ago; did you mean '7d'?"),
    ],
)
def test_times_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        times.moment(text, "--since", NOW_S)
    assert (refused.value.message, refused.value.hint) == (message, HINT)


@pytest.mark.parametrize(("variable", "expected"), [("Europe/Berlin", "Europe/Berlin"), (":Asia/Tokyo", "Asia/Tokyo"), ("UTC", "UTC")])
def test_the_zone_is_this_machine_s(variable: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", variable)
    assert times.zone() == expected


def test_an_end_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert tm(["usage", "--until", "all"]) == 2
    assert capsys.readouterr().err == (
        "error: --until all has no meaning\n  omit --until for all until now; from the beginning: --since all\n"
    )


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("today", datetime(2026, 11, 23, tzinfo=KIRITIMATI).timestamp()),
        ("yesterday", datetime(2026, 11, 22, tzinfo=KIRITIMATI).timestamp()),
        ("2026-11-20T14:00", datetime(2026, 11, 20, 14, tzinfo=KIRITIMATI).timestamp()),
        ("2026-11-20T14:00+00:00", 1_795_183_200.0),
        ("7d", NOON_S - 7 * 86_400),
    ],
)
def test_days_and_times_are_those_of_the_zone_that_is_asked_for(text: str, expected_s: float) -> None:
    assert times.moment(text, "--since", NOON_S, KIRITIMATI) == expected_s


def test_the_period_is_told_in_the_zone_of_its_days(told: Any) -> None:
    answer = {**answering([VISION]), "by": ["project"], "zone": "+14:00"}
    _, _, err, asked = told(answer, "--since", "2026-11-20", "--zone", "+14:00")
    day_s = datetime(2026, 11, 20, tzinfo=KIRITIMATI).timestamp()
    assert [one.line for one in asked] == [f"GET /usage?by=project&since_s={day_s}&limit=1000&zone=%2B14%3A00"]
    assert err == "from 2026-11-15 23:05 to 2026-11-23 02:30\n"
