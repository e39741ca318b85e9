"""A restart in the user's own directory moves away what the job wrote, and nothing that was there before the job."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from launches import launch, resume_point, tree, write

from trainmaster.agent.checkpoints import set_aside
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.agent.checkpoints.restore import restore
from trainmaster.wire.launch import Launch

OLD = {"out/pretrained.pt": "the base model", "out/run_0/weights.pt": "an earlier run", "out/ckpt_20.pt": "that run's"}


def begun(root: Path) -> tuple[Launch, list[Any]]:
    """The first attempt, which commits step 10 and is killed when it writes step 20; the checkpoints on record."""
    orders = launch(root, checkpoint_path="out/*", in_place=True)
    for name, text in OLD.items():
        write(root / "work" / name, text)
    made = Collector(orders)
    made.prime()
    os.utime(write(root / "work" / "out" / "ckpt_10.pt", pickle.dumps(10)), (1000, 1000))
    (staged,) = made.scan(lambda _: None, True, frozenset())
    write(root / "work" / "out" / "ckpt_20.pt", "torn")
    write(root / "work" / "out" / "ckpt_30.pt", "torn, too")
    return {**orders, "attempt": 2}, [resume_point(orders["checkpoint_store"], staged)]


def test_what_was_there_before_the_job_stays(tmp_path: Path) -> None:
    second, points = begun(tmp_path)
    assert restore({**second, "resume": points}).step == 10
    kept = {"out/ckpt_10.pt": tree(tmp_path / "work")["out/ckpt_10.pt"], **OLD}
    del kept["out/ckpt_20.pt"]  # the job wrote over it
    assert tree(tmp_path / "work") == kept
    assert tree(tmp_path / "work.aside") == {"2/out/ckpt_20.pt": "torn", "2/out/ckpt_30.pt": "torn, too"}
    Collector({**second, "resume": points}).prime()
    write(tmp_path / "work" / "out" / "ckpt_40.pt", "torn again")
    assert restore({**second, "attempt": 3, "resume": points}).step == 10  # the list is that of the first attempt
    assert tree(tmp_path / "work") == kept


def test_a_file_that_cannot_be_examined_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second, points = begun(tmp_path)
    real = os.lstat

    def failing(path: Any, *rest: Any, **more: Any) -> os.stat_result:
        if str(path).endswith("pretrained.pt"):
            raise OSError(5, "Input/output error")
        return real(path, *rest, **more)

    monkeypatch.setattr(set_aside.os, "lstat", failing)
    restore({**second, "resume": points})
    assert (tmp_path / "work" / "out" / "pretrained.pt").read_text() == OLD["out/pretrained.pt"]


@pytest.mark.parametrize("why", ["of an older version", "lost", "damaged", "of another pattern"])
def test_where_nobody_knows_what_was_there_everything_stays(tmp_path: Path, why: str) -> None:
    second, points = begun(tmp_path)
    before = tmp_path / "before.json"
    if why == "of an older version":
        del second["before"]  # type: ignore[misc]
    elif why == "lost":
        before.unlink()
    elif why == "damaged":
        before.write_text("[]")
    else:
        before.write_text(json.dumps({**json.loads(before.read_text()), "pattern": "other/*"}))
    there = tree(tmp_path / "work")
    assert restore({**second, "resume": points}).step == 10
    assert tree(tmp_path / "work") == there
