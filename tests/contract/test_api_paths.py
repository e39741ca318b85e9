"""Where the paths of the server are: the REST interface below its version, the rest where those who ask for it expect it."""

import json
from collections.abc import Iterator

import httpx
import pytest
from api_server import Api, agent_headers, serving

from trainmaster import __version__
from trainmaster.server.http.permissions import REQUIRED, Need

KEY = "train-1.1/n0"
UNVERSIONED = ("/healthz", "/metrics", "/authority")
MOVED = sorted(route for route, need in REQUIRED.items() if need is not Need.AGENT and not route.endswith(UNVERSIONED))
AGENTS = (  # of the agents that run; an older version's, too
    ("POST", "/agent/sync"), ("POST", "/agent/store"), ("PUT", "/agent/blob"), ("GET", "/agent/blob"),
    ("PUT", "/agent/file"),
    ("POST", "/agent/exec/output"), ("POST", "/agent/exec/input"),
)  # fmt: skip


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("api") / "home") as served:
        yield served


@pytest.fixture(scope="module")
def plain(api: Api) -> Iterator[httpx.Client]:
    """Asks for paths as they are written."""
    with httpx.Client(base_url=api.http.base_url, headers=api.http.headers) as http:
        yield http


@pytest.mark.parametrize("route", MOVED)
def test_a_path_from_before_the_version_says_where_it_is(plain: httpx.Client, route: str) -> None:
    method, path = route.replace("{path:anyname}", "x").split()
    answer = plain.request(method, path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (410, "usage")
    assert f"Trainmaster {__version__}, has its REST interface below /api/v1" in error["message"]
    assert f"asks for /api/v1{path}" in error["hint"]


@pytest.mark.parametrize("path", ["/", "/job", "/api", "/api/v1", "/api/v1/", "/api/v2/jobs", "/api/v1/healthz", "/api/v1/agent/sync"])
def test_a_path_that_never_was_is_not_found(plain: httpx.Client, path: str) -> None:
    answer = plain.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert "/api/v1/openapi.json" in answer.json()["error"]["hint"]


def test_what_knows_no_version_is_asked_without_one(plain: httpx.Client) -> None:
    assert plain.get("/healthz").json()["api"] is True
    assert "trainmaster_info" in plain.get("/metrics").text
    assert plain.get("/api/v1/jobs").json() == {"jobs": []}
    assert plain.get("/api/v1/openapi.json").json()["info"]["title"] == "Trainmaster"


@pytest.mark.parametrize(("method", "path"), AGENTS)
def test_an_agent_of_an_earlier_version_finds_its_paths(plain: httpx.Client, method: str, path: str) -> None:
    """It outlives its server: what it asks for stays where it was, and is not found alone where the route itself says so."""
    answer = plain.request(method, path, content=json.dumps({"key": KEY, "wait_s": 0}), headers=agent_headers(KEY))
    assert answer.status_code != 410
    assert answer.status_code != 404 or f"there is no {path}" not in answer.text
    assert {f"{method} {path}" for method, path in AGENTS} == {route for route, need in REQUIRED.items() if need is Need.AGENT}
