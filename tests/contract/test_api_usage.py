"""`GET /usage`: the ledger added up, and every question that makes no sense refused in words."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import Api, serving

from trainmaster.model.events import Waited
from trainmaster.model.ledger import Balance, Charge, Closed, Entry, Payer, Rate, Repeated
from trainmaster.ports.store import NewEvent

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ANN, BOB = Payer("vision", "ann", "training", "digits"), Payer("text", "bob", "trial", "books")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path / "home") as served:
        yield served


def enter(api: Api, *entries: Entry) -> None:
    api.control.commit([NewEvent("digits-1", 1, Waited(""), None, entries)], {})


@pytest.fixture
def used(api: Api) -> Api:
    """Two days: ann twice with 2 GPUs for an hour about midnight, the second half in vain; bob with 4 CPUs for a day, 16 of which count as a GPU."""
    gpus = Rate("a100", 2000, 0, 2.5, "EUR")
    enter(
        api,
        Charge("digits-1", 1, ANN, gpus, DAY_MS - HOUR_MS), Closed("digits-1", 1, DAY_MS + HOUR_MS),
        Charge("digits-1", 2, ANN, gpus, DAY_MS + HOUR_MS), Repeated("digits-1", 2, 1, DAY_MS),
        Closed("digits-1", 2, DAY_MS + 2 * HOUR_MS),
        Charge("books-1", 1, BOB, Rate("cpu", 0, 4000, 0.25, "USD"), 0), Closed("books-1", 1, DAY_MS),
    )  # fmt: skip
    return api


def told(api: Api, *fields: str, **query: Any) -> list[tuple[Any, ...]]:
    return [tuple(line[field] for field in fields) for line in api.get("/usage", **query)["lines"]]


def test_by_project(used: Api) -> None:
    answer = used.get("/usage")
    assert (answer["by"], answer["since_s"], answer["zone"], answer["left_out"]) == (["project"], 0, "UTC", 0)
    assert abs(answer["until_s"] - time.time()) < 10
    vision = {
        "project": "vision", "gpu_us": 6 * 3_600_000_000, "cpu_us": 0, "gpu_hours": 6.0, "cpu_hours": 0.0,
        "lost_gpu_hours": 2.0, "lost_cpu_hours": 0.0, "share": 0.5, "jobs": 1, "attempts": 2, "running": 0,
        "cost": {"EUR": "15.000000"},
    }  # fmt: skip
    text = {
        "project": "text", "gpu_us": 0, "cpu_us": 96 * 3_600_000_000, "gpu_hours": 0.0, "cpu_hours": 96.0,
        "lost_gpu_hours": 0.0, "lost_cpu_hours": 0.0, "share": 0.5, "jobs": 1, "attempts": 1, "running": 0,
        "cost": {"USD": "24.000000"},
    }  # fmt: skip
    assert answer["lines"] == [vision, text]
    assert answer["total"]["cost"] == {"EUR": "15.000000", "USD": "24.000000"}
    assert (answer["total"]["jobs"], answer["total"]["attempts"], answer["total"]["gpu_hours"]) == (2, 3, 6.0)


def test_by_day_of_a_zone(used: Api) -> None:
    assert told(used, "member", "day", "gpu_hours", "cpu_hours", by="member, day") == [
        ("ann", "1970-01-01", 2.0, 0.0), ("ann", "1970-01-02", 4.0, 0.0), ("bob", "1970-01-01", 0.0, 96.0),
    ]  # fmt: skip
    assert told(used, "day", "gpu_hours", "cpu_hours", by="day", zone="+01:00") == [
        ("1970-01-01", 0.0, 92.0), ("1970-01-02", 6.0, 4.0),
    ]  # fmt: skip
    assert told(used, "day", "gpu_hours", by="day", zone="Asia/Tokyo", project="vision") == [("1970-01-02", 6.0)]


def test_all_headings_and_a_limit(used: Api) -> None:
    by = "project,member,class,experiment,pool,day,job"
    assert told(used, *by.split(","), by=by)[0] == ("text", "bob", "trial", "books", "cpu", "1970-01-01", "books-1")
    first = used.get("/usage", limit=1)
    assert ([line["project"] for line in first["lines"]], first["left_out"], first["total"]["jobs"]) == (["vision"], 1, 2)


def test_a_period_and_what_runs(used: Api) -> None:
    day_s = DAY_MS / 1000
    assert told(used, "project", "gpu_hours", "attempts", since_s=day_s, until_s=day_s + 1800) == [("vision", 1.0, 1)]
    assert told(used, "project", project="nobody") == []
    began_ms = round(time.time() * 1000) - HOUR_MS
    enter(used, Charge("digits-2", 1, ANN, Rate("a100", 1000), began_ms))
    ((hours, running),) = told(used, "gpu_hours", "running", by="job", since_s=began_ms / 1000 - 1, until_s=4e9)
    assert (hours, running) == (pytest.approx(1.0, abs=0.01), 1)


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ({"by": "projct"}, "there is no heading 'projct'", "did you mean project?"),
        ({"by": "project,user"}, "there is no heading 'user'", "did you mean member?"),
        ({"by": "account"}, "there is no heading 'account'", "did you mean project?"),
        ({"by": "xyzzy"}, "there is no heading 'xyzzy'", "one or more of project, member, class, experiment, pool, day, job"),
        ({"by": ""}, "by is empty", "one or more of project, member, class, experiment, pool, day, job"),
        ({"zone": "Mars"}, "there is no time zone 'Mars'", "write UTC, a name such as Europe/Berlin, or +02:00"),
        ({"zone": "../../etc"}, "there is no time zone '../../etc'", "write UTC, a name such as Europe/Berlin, or +02:00"),
        ({"zone": "+99:00"}, "there is no time zone '+99:00'", "write UTC, a name such as Europe/Berlin, or +02:00"),
        ({"since_s": "5", "until_s": "5"}, "the period ends before it begins", "let since be earlier than until"),
        ({"since_s": "9e9"}, "the period is in the future", "let since be earlier than now"),
        ({"since_s": "nan"}, "query.since_s: Input should be less than or equal to 253402300799", "see /api/v1/openapi.json for the parameters"),
        ({"until_s": "inf"}, "query.until_s: Input should be less than or equal to 253402300799", "see /api/v1/openapi.json for the parameters"),
        ({"since_s": "-1"}, "query.since_s: Input should be greater than or equal to 0", "see /api/v1/openapi.json for the parameters"),
        ({"limit": "0"}, "query.limit: Input should be greater than or equal to 1", "see /api/v1/openapi.json for the parameters"),
    ],
)
def test_what_makes_no_sense_is_refused(api: Api, query: dict[str, str], message: str, hint: str) -> None:
    answer = api.http.get("/usage", params=query)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["message"], error["hint"]) == (400, "usage", message, hint)


def test_the_queue_goes_by_what_is_left_of_it(api: Api) -> None:
    api.control.now_s = time.time()
    ids = [api.submit(resources={"cpus": 4}, project=project) for project in ("vision", "text")]
    api.take_up()
    assert [job["id"] for job in api.get("/queue")["jobs"]] == ids
    enter(api, Balance("vision", "somebody", 1e6, api.control.now_s))
    assert [job["id"] for job in api.get("/queue")["jobs"]] == ids[::-1]
    assert api.get(f"/jobs/{ids[1]}/why")["position"] == 1
