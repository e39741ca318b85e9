"""What `tm` says of a restart, for programs that use what they were given in different ways; and of a loss that is NaN."""

from collections.abc import Iterator

import pytest
from running import Tm, attempts, server

PROGRAM = """
import json, os, sys
kind, again, saved = sys.argv[1], os.environ["TRAINMASTER_ATTEMPT"] != "1", sys.argv[2:]
begin, loss = 1, 2.5
if saved and kind == "loads":
    step, loss = json.load(open(saved[-1]))
    begin = step + 1
elif saved and kind == "counts_from_0":
    begin, loss = 1, json.load(open(saved[-1]))[1]
elif saved and kind == "crashes":
    raise KeyError("unexpected key in state_dict: head.weight")
elif kind == "own_file" and os.path.exists("own.txt"):
    begin = int(open("own.txt").read()) + 1
os.makedirs("out", exist_ok=True)
for step in range(begin, 41):
    loss *= 0.9
    print(f"step {step} loss {loss:.4f}", flush=True)
    if step % 10 == 0:
        open("own.txt", "w").write(str(step))
        if kind != "none":
            open("out/part", "w").write(json.dumps([step, loss]))
            os.rename("out/part", f"out/{step}.json")
    if step == 25 and not again:
        os._exit(1)
"""
NAN = "for step in range(1, 9): print(f'step {step} loss {1 / step if step < 4 else float(chr(110) + chr(97) + chr(110))}', flush=True)"
ANEW = """
import os
again = os.environ["TRAINMASTER_ATTEMPT"] != "1"
for step in range(1, 4 if again else 26):
    print(f"step {step} loss {1 / step}", flush=True)
    if step == 20:
        print("step 20 accuracy 0.75", flush=True)
os._exit(0 if again else 1)
"""


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    with server(tmp_path_factory.mktemp("given")) as running:
        running.file("train.py", PROGRAM)
        yield running


SAVES = ("--checkpoint", "out/{step}.json", "--resume-arguments", "--resume {path}")


@pytest.mark.parametrize(
    ("kind", "options", "state", "second", "line"),
    [
        ("loads", SAVES, "succeeded", (20, "seen", ["its first step was 21"]), "resumed from step 20: its first step was 21"),
        (
            "ignores", SAVES, "succeeded",
            (20, "against", ["its steps began again at 1", "it saved a checkpoint of the lower step 10", "its first loss, 2.25, is as at the beginning (2.25)"]),
            "given step 20, but its steps began again at 1, and it saved a checkpoint of the lower step 10",
        ),
        (
            "counts_from_0", SAVES, "succeeded",
            (20, "unknown", ["its steps began again at 1", "it saved a checkpoint of the lower step 10", "its first loss, 0.2735, is near the 0.1795 of the checkpoint"]),
            "given step 20; not known whether it went on from there",
        ),
        ("crashes", SAVES, "failed", (20, "unknown", ["it ended before a step of it was read"]), "it ended before a step of it was read"),
        ("none", (), "succeeded", (None, None, []), "given no checkpoint; it may find files of its own"),
        ("own_file", (), "succeeded", (None, "seen", ["its first step was 21"]), "given no checkpoint, but it went on: its first step was 21"),
    ],
)  # fmt: skip
def test_what_was_given_is_told_apart_from_what_is_seen(
    tm: Tm, kind: str, options: tuple[str, ...], state: str, second: tuple[object, ...], line: str
) -> None:
    said = tm("run", "--name", kind, *options, "--", "python", "train.py", kind)
    shown = tm.json("show", kind)
    assert (shown["state"], attempts(shown, "resumed_from_step", "resumed_evidence", "resumed_because")[1]) == (state, second), said
    drawn = " ".join(tm.ok("show", kind).split())
    assert line in drawn
    announced = "restarting, given step 20" if options else "restarting, given no checkpoint: there is none"
    assert announced in said.err
    assert (line.split(",")[0].split(":")[0] in said.err) is (second[1] is not None)


def test_since_when_a_loss_is_nan_and_what_it_was_before(tm: Tm) -> None:
    tm.ok("run", "--name", "bad", "--", "python", "-c", NAN)
    said = "loss nan since step 4, last finite 0.3333 at 3"
    assert tm.json("show", "bad")["diverged"] == {"loss": {"value": "nan", "since_step": 4, "last_step": 3, "last_value": 0.3333333333333333}}
    assert "Metric loss: nan since step 4, last finite 0.3333 at 3, best 0.3333 at step 3" in tm.ok("show", "bad")
    assert any("loss nan since step 4" in row for row in tm.ok("ps").splitlines())
    tm.ok("run", "--name", "good", "--", "python", "-c", NAN.replace(" if step < 4 else float(chr(110) + chr(97) + chr(110))", ""))
    assert said.removeprefix("loss ") in tm.ok("compare", "bad", "good")


def test_the_best_value_is_not_one_of_lost_work(tm: Tm) -> None:
    tm.ok("run", "--name", "anew", "--", "python", "-c", ANEW)
    assert "best 0.3333 at step 3" in tm.ok("show", "anew")
    assert tm.json("show", "anew")["metrics"].keys() == {"loss"}  # all points stay on record
    assert "accuracy (measured by lost work only" in tm.ok("show", "anew")
    assert ",20,0.75," in tm.ok("metrics", "anew", "--metric", "accuracy", "--csv")
    assert tm("show", "anew", "--metric", "los").err == "no metric 'los' in anew-1\nthose that there are: tm metrics anew-1\n"
    said = tm("metrics", "anew")
    assert [line.split()[1:3] for line in said.out.splitlines()[1:]] == [["loss", "3"]]
    assert "values that a restart made obsolete are left out" in said.err
    rows = [line.split(",") for line in tm.ok("metrics", "anew", "--metric", "loss", "--csv").splitlines()[1:]]
    assert [(int(row[2]), int(row[-1])) for row in rows] == [*((step, 2) for step in (1, 2, 3)), *((step, 1) for step in range(4, 26))]
