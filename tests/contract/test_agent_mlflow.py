"""The listener for a script's own tracking calls: real processes, plain HTTP, no `mlflow`."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from agents import agent
from sync_server import sync_server

RUN = {"id": "a" * 32, "experiment_id": "7", "experiment": "digits", "name": "digits-1", "params": {}, "tags": {}}
CALLS = """
import json, os, urllib.error, urllib.request
URI, RUN = os.environ["MLFLOW_TRACKING_URI"], os.environ["MLFLOW_RUN_ID"]
def call(method, path, data=None, token=os.environ["MLFLOW_TRACKING_TOKEN"], **headers):
    body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
    request = urllib.request.Request(f"{URI}/api/2.0/{path}", body, {"Authorization": f"Bearer {token}", **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
FILES = f"mlflow-artifacts/artifacts/7/{RUN}/artifacts"
"""


def script(text: str) -> list[str]:
    return [sys.executable, "-c", CALLS + text]


def said(log: str) -> list[Any]:
    return [json.loads(line) for line in log.splitlines()]


def test_what_a_script_logs_arrives_and_is_reported(tmp_path: Path) -> None:
    text = """
for step in range(1, 4):
    metric = {"run_id": RUN, "key": "loss", "value": 1 / step, "timestamp": 1, "step": step}
    assert call("POST", "mlflow/runs/log-metric", metric)[0] == 200
call("POST", "mlflow/runs/log-parameter", {"run_id": RUN, "key": "lr", "value": "0.1"})
call("POST", "mlflow/runs/set-tag", {"run_id": RUN, "key": "who", "value": "me"})
call("PUT", f"{FILES}/dir/f.txt", b"hello")
print(json.dumps(call("GET", f"{FILES}/dir/f.txt")[1] == b"hello"))
print("step 3: loss 0.3")
"""
    api = tmp_path / "api"
    with sync_server(api) as server, agent(tmp_path / "n0", script(text), run=RUN, server_socket=str(api)) as it:
        record = it.ended()
        points = server.points("digits-1.1/n0")
        reports = server.reports("digits-1.1/n0")
    assert record["ranks"][0]["exit_code"] == 0, it.log()
    assert it.log().startswith("true\n")
    assert points == [(0, 1, {"loss": 1.0}), (0, 2, {"loss": 0.5}), (0, 3, {"loss": 1 / 3})]
    assert [(r["params"], r["tags"]) for r in reports if r["kind"] == "run"] == [({"lr": "0.1"}, {"who": "me"})]
    assert [r["path"] for r in reports if r["kind"] == "kept"] == ["dir/f.txt"]
    assert (record["last_step"], record["first_step"]) == (3, 1)
    assert [(one["params"], one["tags"]) for one in record["run"]] == [({"lr": "0.1"}, {"who": "me"})]
    assert it.words() == ""


def test_who_has_no_token_and_what_leads_out_is_turned_away(tmp_path: Path) -> None:
    text = """
print(json.dumps([
    call("GET", "mlflow/runs/get?run_id=" + RUN, token="guess")[0],
    call("PUT", f"{FILES}/../../../../escaped", b"x")[0],
    call("PUT", f"{FILES}/%2e%2e/%2e%2e/escaped", b"x")[0],
    call("PUT", "mlflow-artifacts/artifacts/7/other/artifacts/f", b"x")[0],
    call("PUT", f"{FILES}/f", b"x", **{"Transfer-Encoding": "chunked"})[0],
    call("POST", "mlflow/runs/log-metric", b"no json")[0],
    call("GET", "mlflow/runs/get?run_id=" + RUN)[0],
]))
"""
    with agent(tmp_path, script(text), run=RUN) as it:
        assert it.ended()["ranks"][0]["exit_code"] == 0, it.log()
    assert said(it.log()) == [[401, 400, 400, 400, 200, 400, 200]]
    assert not list(tmp_path.rglob("*escaped*"))
    assert it.words() == ""


def test_only_rank_0_has_a_listener_and_none_if_the_job_names_its_own_tracker(tmp_path: Path) -> None:
    show = [sys.executable, "-c", "import os; print(sorted(name for name in os.environ if name.startswith('MLFLOW')))"]
    with agent(tmp_path / "two", show, run=RUN, ranks=2) as it:
        it.ended()
    assert "MLFLOW_RUN_ID" in it.log(0)
    assert it.log(1) == "[]\n"
    own = {"environment": {"MLFLOW_TRACKING_URI": "http://tracker:5000"}, "run": None}
    with agent(tmp_path / "own", show, **own) as it:
        it.ended()
    assert it.log() == "['MLFLOW_TRACKING_URI']\n"


def test_a_password_for_another_tracker_does_not_get_in_the_way(tmp_path: Path) -> None:
    text = "print(json.dumps([os.environ['MLFLOW_TRACKING_PASSWORD'], call('GET', 'mlflow/runs/get?run_id=' + RUN)[0]]))"
    with agent(tmp_path, script(text), run=RUN, environment={"MLFLOW_TRACKING_PASSWORD": "x", "HOME": os.environ["HOME"]}) as it:
        it.ended()
    assert said(it.log()) == [["", 200]]
