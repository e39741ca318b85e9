"""What `tm show --provenance` prints."""

from typing import Any

from trainmaster.agent.environment import detect, machine
from trainmaster.cli.render import human
from trainmaster.cli.render.provenance import draw, lineage


def test_where_a_job_comes_from_in_words() -> None:
    fork = {"relation": "fork", "job": "digits-3", "checkpoint": "c", "step": 450, "owner": "digits-3", "approximate": False}
    assert lineage({"lineage": fork, "children": ["digits-5"]}) == {"from": "digits-3@450", "children": "digits-5"}
    assert lineage({"lineage": {**fork, "approximate": True}, "children": []}) == {"from": "digits-3@450 (about)"}
    same = {**fork, "relation": "reproduction", "job": "digits-4"}
    assert lineage({"lineage": same, "children": []}) == {"from": "digits-4, reproduced, from digits-3@450"}
    assert lineage({"lineage": None, "children": []}) == {}


def test_provenance_is_drawn_whole_and_says_what_is_missing() -> None:
    origin: dict[str, Any] = {
        "user": "ann", "host": "box", "directory": "/w", "python": "3.11.7", "git_commit": "c" * 40, "git_dirty": True,
        "git_remote": None, "git_diff": "d" * 64, "git_diff_bytes": 2_000_000, "git_diff_cut": True,
    }  # fmt: skip
    record: dict[str, Any] = {"python": {"path": "/p", "version": "3.11"}, "packages": {"a": "1"}, "editable": ["a"], "torch": None,
              "machine": machine.describe()}  # fmt: skip
    node = {"node": "box", "devices": [0], "environment": "e" * 64}
    found = {
        "id": "a-1", "spec": {"params": {"lr": 0.1}}, "origin": origin, "code": {"in_place": False, "digest": "f" * 64},
        "data": [{"name": "train", "uri": "s3://x", "digest": None, "exact": False, "bytes": 0}], "lineage": None,
        "children": [], "attempts": [{"number": 1, "nodes": [node, {**node, "environment": None}]}],
        "environments": {"e" * 64: record},
    }  # fmt: skip
    lines = draw(found)
    assert f"  git diff     dddddddddddd, {human.size(2_000_000)}; too large to be kept whole" in lines
    assert "  data         train: s3://x (its version is unknown)" in lines
    assert "    a==1  (in place: its code may have changed since)" in lines
    assert "  Python       3.11, /p; the command may start another one, whose packages are not these" in lines
    record["built_from"] = {"a": "", "b": "commit c", "c": ""}
    record["packages"] = {"a": "1", "b": "1", "c": "1"}
    assert [line for line in draw(found) if "==" in line] == [
        "    a==1  (in place: its code may have changed since)", "    b==1  (commit c)", "    c==1  (not from an index)",
    ]  # fmt: skip
    record["unnamed"] = ["/loose"]
    record["unread"] = ["/a (Input/output error)"]
    assert {"  other code   /loose", "  not read     /a (Input/output error)"} <= set(draw(found))
    record["python"] = {"path": "/p", "version": "3.11", "certain": True}
    assert "  Python       3.11, /p" in draw(found)
    origin.update(git_diff=None)
    told = "  git diff     none is recorded, although files differ from the commit; "
    assert f"{told}the code copy has those that were copied" in draw(found)
    found["code"] = {"in_place": True, "digest": None}
    assert f"{told}nothing of them is copied" in draw(found)
    origin.update(git_dirty=False)
    assert f"  git commit   {'c' * 40}, git saw no change since" in draw(found)
    found["environments"], found["unshown"] = {"e" * 64: None}, {"e" * 64: "the record cannot be read now (Input/output error)"}
    assert "  environment  the record cannot be read now (Input/output error)" in draw(found)
    del found["unshown"]  # as an older server answers
    assert "  environment  its record is lost or damaged" in draw(found)
    assert lines[-1] == "  environment  not recorded: it had not begun, or its agent was killed"
    assert detect.wire.digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
