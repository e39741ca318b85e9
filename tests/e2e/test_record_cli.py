"""The record of runs, as a person keeps it: artifacts by kind, a pickle refused as a model, a comparison, a note."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Tm, server

PROGRAM = """\
import json, os, pickle
from trainmaster import sdk
lr = json.loads(os.environ["TRAINMASTER_PARAMS"])["lr"]
os.makedirs("out", exist_ok=True)
for step in range(1, 21):
    sdk.report(step=step, loss=1 / (1 + lr * step))
json.dump({"accuracy": lr}, open("out/scores.json", "w"))
pickle.dump({"weights": [lr]}, open("out/model.pt", "wb"))
open("curve.svg", "w").write("<svg/>")
sdk.artifact("curve.svg", kind="plot", name="plots/curve")
sdk.artifact("out/model.pt", kind="model", name="final")
"""


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    directory = tmp_path_factory.mktemp("record")
    with server(directory) as tm:
        tm.file("train.py", PROGRAM)
        for lr in ("0.5", "0.9"):
            job = tm.submit("--name", "digits", "--param", f"lr={lr}", "--artifact", "out/*", "--", "python", "train.py")
            assert tm.ended(job, 120.0)["state"] == "succeeded"
        yield tm


def test_artifacts_have_kinds_and_a_pickle_is_no_model(tm: Tm, tmp_path: Path) -> None:
    assert [(one["path"], one["kind"]) for one in tm.json("artifacts", "digits-1")] == [
        ("final", "pickle"), ("out/model.pt", "pickle"), ("out/scores.json", "metrics"), ("plots/curve", "plot"),
    ]  # fmt: skip
    assert tm.ok("artifacts", "digits-1", "--kind", "plot", "-q") == "plots/curve\n"
    (note,) = [note for note in tm.show("digits-1")["notes"] if "pickle" in note]
    assert "final, out/model.pt are pickles: kept as files, not as a model" in note
    place = str(tmp_path / "fetched")
    tm.ok("get", "digits-1", "--all", "-o", place)
    assert (tmp_path / "fetched" / "plots" / "curve").read_text() == "<svg/>"
    (tmp_path / "fetched" / "final").write_text("mine")
    said = tm("get", "digits-1", "*", "-o", place)
    assert (said.code, "final exists already with other contents" in said.err) == (5, True)
    assert (tmp_path / "fetched" / "final").read_text() == "mine"
    assert tm("get", "digits-1", "*.gif").refusal[0] == 3


def test_a_comparison_names_what_differs_and_nothing_else(tm: Tm, tmp_path: Path) -> None:
    found = tm.json("compare", "digits-1", "@last")
    assert [(one["section"], one["field"], one["values"]) for one in found["differences"]] == [("params", "lr", [0.5, 0.9])]
    assert [one["winner"] for one in found["metrics"]] == [1]
    shown = tm.ok("compare", "digits-1", "digits-2")
    assert "lr  0.5       0.9" in shown
    page = tmp_path / "page.html"
    tm.ok("compare", "digits-1", "digits-2", "--html", str(page))
    text = page.read_text()
    assert "<polyline" in text
    assert not any(word in text for word in ("<script", "src=", "href=", "@import", "url("))
    assert tm("compare", "digits-1", "digits-2", "--metric", "los").refusal == (
        3, "error: no run here has a metric 'los'\n  did you mean loss?\n",
    )  # fmt: skip


def test_a_note_and_the_logbook(tm: Tm) -> None:
    tm.ok("note", "digits-2", "better than digits-1 \x1b[31m")
    entries = tm.json("note", "--list", "--experiment", "digits")
    assert [entry["kind"] for entry in entries if entry["job"] == "digits-2"][-1] == "note"
    assert entries[-1]["links"] == ["digits-1"]
    assert [entry["job"] for entry in entries if entry["kind"] == "best"] == ["digits-1", "digits-2"]
    assert "\x1b" not in tm.ok("note", "--list")
    begin = "noted about digts, of which there is no job yet; read it: tm note --list"
    assert tm("note", "--experiment", "digts", "misspelled").err.startswith(begin)
    assert tm("note", "--experiment", "digits", "for all").err.startswith("noted about digits; read it")
    replayed = [check for check in tm.json("doctor", "--replay") if check["name"] == "replay"]
    assert [check["ok"] for check in replayed] == [True]
