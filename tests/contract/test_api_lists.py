"""Lists of jobs: pages and filters, whether control has processed a submit or not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import Api, serving

from trainmaster.server.jobs import job_reads


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path / "home") as served:
        yield served


def test_pages_and_filters_hold_waiting_and_recorded_jobs_alike(api: Api) -> None:
    for name in ("a", "b"):
        api.submit(name=name)
    api.take_up()
    api.submit(name="a", project="vision")
    held = api.http.post("/jobs", json={"spec": {"command": "true", "name": "c"}, "hold": "not yet"}).json()["id"]

    def ids(**query: Any) -> list[str]:
        return [row["id"] for row in api.get("/jobs", **query)["jobs"]]

    assert ids() == ["c-1", "a-2", "b-1", "a-1"]
    assert ids(limit=1) == ["c-1"]
    assert ids(limit=2, before=3) == ["b-1", "a-1"]
    assert ids(state="held") == [held]
    assert ids(state=["held", "queued"], all=1, limit=1) == ["c-1", "a-2", "b-1", "a-1"]
    assert ids(project="vision") == ["a-2"]
    assert ids(experiment="a") == ["a-2", "a-1"]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_all_jobs_come_however_many_pages_they_are(api: Api, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(job_reads, "_PAGE", 2)
    ids = [api.submit() for _ in range(count)]
    if count > 2:
        api.take_up()
    assert [row["id"] for row in api.get("/jobs", all=1)["jobs"]] == ids[::-1]
