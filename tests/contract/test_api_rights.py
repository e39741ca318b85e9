"""Who may give a job a class, and which projects there are: every request that can name one passes the same check."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from api_server import Api, Http, serving

from trainmaster.home import account_name
from trainmaster.model import events as ev
from trainmaster.server.process.app import create_app
from trainmaster.wire import rest

ME = account_name()
OPEN: dict[str, Any] = {"projects": {"vision": {}, "speech": {}, "lab": {}, "deep": {"parent": "lab"}, "default": {}}}
CLOSED = {
    **OPEN,
    "classes": {
        "production": {"projects": ["vision"], "members": ["ann"]},
        "interactive": {"members": []},
        "evaluation": {"projects": ["lab"]},
    },
}
ONLY_ANN = "only ann may use it, in project vision"
INSTEAD = "use --class training or trial   an administrator changes who may: classes.production of cluster.yaml"
Client = httpx.Client


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("rights") / "home") as served:
        yield served


def member(api: Api, name: str) -> Client:
    token = api.http.post("/tokens", json={"name": name, "role": "member"}).json()["token"]
    return Http(base_url=api.http.base_url, headers={"Authorization": f"Bearer {token}"}, timeout=20.0)


@pytest.fixture(scope="module")
def ann(api: Api) -> Iterator[Client]:
    with member(api, "ann") as client:
        yield client


@pytest.fixture(scope="module")
def bob(api: Api) -> Iterator[Client]:
    with member(api, "bob") as client:
        yield client


def configure(api: Api, rules: dict[str, Any]) -> list[str]:
    """Apply a configuration; its warnings."""
    answer = api.http.put("/cluster", json={"cluster": rules})
    assert answer.status_code == 202, answer.text
    return list(answer.json()["words"])


def made(client: Client, **spec: Any) -> httpx.Response:
    return client.post("/jobs", json={"spec": {"command": "true", "name": "job", "project": "vision", **spec}})


def ended(api: Api, client: Client, **spec: Any) -> str:
    """A job of the client's that is over."""
    id = str(made(client, **spec).json()["id"])
    api.take_up()
    api.control.record(id, ev.CancelRequested("bob"))
    assert api.control.jobs[id].state.ended
    return id


PRODUCTION = {"spec": {"command": "true", "project": "vision", "class": "production"}}
DOORS: dict[str, dict[str, Any]] = {  # every operation whose request can name a class, or makes a job that has one
    "post /jobs": PRODUCTION,
    "post /jobs/batch": {"jobs": [PRODUCTION]},
    "post /plan": PRODUCTION,
    "patch /jobs/{ref}": {"class": "production"},
    "post /jobs/{ref}/requeue": {"changes": {"class": "production"}},
    "post /jobs/{ref}/fork": {"changes": {"class": "production"}},
    "post /jobs/{ref}/reproduce": {},
}


def names_a_class(schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Whether a request of this schema can name a class, or say what only a new job is told."""
    if "$ref" in schema:
        return names_a_class(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    below = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *filter(None, [schema.get("items")])]
    named = {"spec", "class", "changes", "urgent"} & schema.get("properties", {}).keys()
    return bool(named) or any(names_a_class(one, schemas) for one in below)


def test_no_other_request_can_name_a_class(api: Api) -> None:
    """A new door has to be tried below."""
    described = create_app(api.services, lambda: True).openapi()
    found = {
        f"{method} {rest.within(path)}"
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        if names_a_class(content["schema"], described["components"]["schemas"])
    }
    assert found == set(DOORS)


@pytest.mark.parametrize("door", DOORS)
def test_who_may_not_use_a_class_is_refused_at_every_door(api: Api, ann: Client, bob: Client, door: str) -> None:
    configure(api, OPEN)
    method, path = door.split(" ")
    own = ended(api, bob, **{"class": "production"} if "reproduce" in path else {})
    if method == "patch":
        own = str(made(bob).json()["id"])
    configure(api, CLOSED)  # control has not taken it up: it counts from the answer on
    answer = bob.request(method, path.replace("{ref}", own), json=DOORS[door])
    error = answer.json()["error"]
    prefix = "jobs[0]: " if "batch" in path else ""
    assert (answer.status_code, error["code"]) == (403, "permission")
    assert error["message"] == f"{prefix}bob may not use class production in project vision: {ONLY_ANN}"
    assert error["hint"] == INSTEAD
    if method == "patch":  # what belongs to her: an administrator's word is no member's
        assert api.http.patch(f"/jobs/{own}", json=DOORS[door]).status_code == 403
    elif "{ref}" not in path:
        assert ann.request(method, path, json=DOORS[door]).status_code in (200, 201)


def test_a_class_is_for_the_projects_named_and_those_inside(api: Api, ann: Client, bob: Client) -> None:
    configure(api, CLOSED)
    told = [made(bob, project=name, **{"class": "evaluation"}).status_code for name in ("lab", "deep", "vision", "default")]
    assert told == [201, 201, 403, 403]
    assert [made(ann, project=name, **{"class": "production"}).status_code for name in ("vision", "speech")] == [201, 403]
    nobody = made(ann, **{"class": "interactive"}).json()["error"]["message"]
    assert nobody == "ann may not use class interactive in project vision: nobody may use it"


def test_what_is_usual_can_be_closed_too(api: Api, ann: Client, bob: Client) -> None:
    names = ("production", "interactive", "evaluation", "training", "trial")
    configure(api, {"classes": {name: {"members": ["ann"]} for name in names}})
    error = made(bob).json()["error"]
    assert error["message"] == "bob may not use class training in project vision: only ann may use it"
    assert error["hint"].startswith("no other class is open to you in this project   an administrator")
    assert made(ann).status_code == 201


def test_what_waits_or_runs_keeps_its_class_and_that_is_told(api: Api, bob: Client) -> None:
    configure(api, OPEN)
    keeps = [str(made(bob, **{"class": "production"}).json()["id"]) for _ in range(2)]
    told = [word for word in configure(api, CLOSED) if word.startswith("class production")]
    assert len(told) == 1
    assert f"{keeps[0]}, {keeps[1]} keep it, and new jobs like that are refused" in told[0]
    assert bob.get(f"/jobs/{keeps[0]}").json()["class"] == "production"
    assert bob.patch(f"/jobs/{keeps[0]}", json={"priority": 3}).status_code == 202  # what it keeps is not asked for again
    assert bob.patch(f"/jobs/{keeps[0]}", json={"class": "training"}).status_code == 202


def test_a_project_that_is_not_declared_is_refused_where_any_is(api: Api, bob: Client) -> None:
    configure(api, {})
    waits = str(made(bob, project="visoin").json()["id"])
    words = configure(api, {"projects": {"vision": {}, "speech": {}}})
    assert [word for word in words if word.startswith("project visoin")] == [
        f"project visoin is not declared: {waits} goes on without a quota, and new jobs are refused; "
        "to declare it, add under projects: visoin: {}"
    ]
    error = made(bob, project="visoin").json()["error"]
    assert (error["code"], error["message"]) == (
        "usage", "there is no project 'visoin' here; did you mean 'vision'? declared: vision, speech",
    )  # fmt: skip
    assert error["hint"] == (
        "name yours: --project vision   or for good: tm config set project vision   "
        "an administrator declares it with a line under projects of cluster.yaml: `visoin: {}`"
    )
    unnamed = bob.post("/jobs", json={"spec": {"command": "true"}}).json()["error"]
    assert unnamed["message"] == "there is no project 'default' here (the job names no other); declared: vision, speech"
    api.take_up()
    api.control.record(waits, ev.CancelRequested("bob"))
    for how in ("requeue", "reproduce", "fork"):
        assert bob.post(f"/jobs/{waits}/{how}", json={}).json()["error"]["message"].startswith("there is no project 'visoin'")
    configure(api, {"projects": {"vision": {}, "default": {}}})
    assert bob.post("/jobs", json={"spec": {"command": "true"}}).status_code == 201


def test_a_change_counts_from_its_answer_on_and_after_control_took_it_up(api: Api, bob: Client) -> None:
    for taken in (False, True):
        for rules, status in ((CLOSED, 403), (OPEN, 201)):
            configure(api, rules)
            if taken:
                api.take_up()
            assert made(bob, **{"class": "production"}).status_code == status, (taken, rules)
            commands = api.runtime.commands  # only what is on its way makes a submit read the inbox
            assert (commands.configurations_taken_up == commands.configurations) is taken


def test_who_may_call_a_job_urgent_is_refused_alike(api: Api, bob: Client) -> None:
    configure(api, {"projects": {"vision": {"urgent": ["ann"]}}})
    answer = bob.post("/jobs", json={"spec": {"command": "true", "project": "vision"}, "urgent": "a demo"})
    error = answer.json()["error"]
    assert (answer.status_code, error["message"]) == (403, "bob may not call a job of vision urgent; ann may")
    assert error["hint"] == "submit it without --urgent   see the cluster configuration: tm policy"
