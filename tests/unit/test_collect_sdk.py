"""Checkpoints that ranks write with the SDK: what each rank wrote becomes one, or it is told why not."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from launches import launch, manifest, write

from trainmaster.agent.checkpoints.collect import Collector


def brief(staged: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one["id"], one["step"], one["approximate"], one["files"], one["bytes"]) for one in staged]


@pytest.mark.parametrize("ranks", ["one", "all"])
def test_an_sdk_checkpoint_without_a_byte_is_none(tmp_path: Path, ranks: str) -> None:
    """A job resumed from it would start over; as with files found by a pattern, the previous one stays the last good one."""
    lost = list[str]()
    made = Collector(launch(tmp_path))
    made.unstored.lost = lambda name, why: lost.append(f"{name}: {why}")
    place = tmp_path / "staging" / "one"
    place.mkdir(parents=True)
    (place / "empty").touch()
    (place / "link").symlink_to("/nowhere")
    os.mkfifo(place / "pipe")
    assert made.sdk_checkpoint(0, 5, str(place), ranks) == []
    assert lost == ["of step 5: nothing was written into it: it holds no file with a byte in it"]
    assert list((tmp_path / "staging").iterdir()) == []


def test_an_sdk_checkpoint_that_not_every_rank_writes_is_told(tmp_path: Path) -> None:
    """Rank 1 calls it with another step, or ranks="one": the checkpoint would never be complete, without any message."""
    lost, told = list[str](), list[str]()
    made = Collector(launch(tmp_path, ranks=2))
    made.unstored.lost = lambda name, why: lost.append(f"{name}: {why}")
    made.unstored.tell = told.append
    places = {step: write(tmp_path / "staging" / f"all-{step}" / "r", "r").parent for step in (10, 20, 30)}
    why = 'of 2 ranks of this node only 0 ended a block of it: with ranks="all" each one must, with the same step'
    made.sdk_checkpoint(0, 10, str(places[10]), "all")
    assert (made.scan(lambda _: 7, True, frozenset()), told) == ([], [])  # the other one may be slow
    made.sdk_checkpoint(0, 20, str(places[20]), "all")
    made.sdk_checkpoint(1, 20, str(places[20]), "all")
    assert (lost, places[10].exists()) == ([f"of step 10: {why}"], False)
    made.sdk_checkpoint(0, 30, str(places[30]), "all")
    made.scan(lambda _: 7, False, frozenset())
    assert told == [f"checkpoint of step 30 is not in the store: {why}; a restart begins at step 20"]


def test_sdk_checkpoints(tmp_path: Path) -> None:
    orders = launch(tmp_path, ranks=2, nodes=3, node_index=1, key="digits-1.1/n1")
    made = Collector(orders)
    one = tmp_path / "staging" / "one"
    write(one / "model.pt", "m")
    write(one / "deep" / "a", "a")
    assert brief(made.sdk_checkpoint(0, 5, str(one), "one")) == [("0001-s5", 5, False, 2, 2)]
    shared = tmp_path / "staging" / "all"
    write(shared / "rank2", "22")
    assert made.sdk_checkpoint(2, 6, str(shared), "all") == []
    write(shared / "rank3", "33")
    staged = made.sdk_checkpoint(3, 6, str(shared), "all")
    assert (brief(staged), staged[0]["parts_expected"]) == ([("0001-s6-all", 6, False, 2, 4)], 3)
    write(one / "model.pt", "again")
    assert brief(made.sdk_checkpoint(0, 5, str(one), "one")) == [("0001-s5-2", 5, False, 1, 5)]
    listed = manifest(orders["checkpoint_store"], "0001-s6-all", "n1")
    assert (listed["kind"], [file["path"] for file in listed["files"]]) == ("sdk", ["rank2", "rank3"])
    assert list((tmp_path / "staging").iterdir()) == []
    assert json.loads(json.dumps(staged)) == staged


def test_in_a_restored_home_no_checkpoint_has_the_name_of_one_of_the_lost_home(tmp_path: Path) -> None:
    """The lost home's attempt of the same number had stored them after the backup: the new ones were lost."""
    found = []
    for home in ("server.1a2b3c4d", "server.r1a2b3c4d"):
        made = Collector(launch(tmp_path, checkpoint_path="out/*.pkl", home=home))
        place = write(tmp_path / "staging" / "one" / "a", "x").parent
        write(tmp_path / "work" / "out" / "a.pkl", pickle.dumps(home))
        found += [one["id"] for one in made.sdk_checkpoint(0, 5, str(place), "one")]
        found += [one["id"] for one in made.scan(lambda _: 7, False, frozenset())]
    assert found == ["0001-s5", "0001-00001", "0001-r1a2b-s5", "0001-r1a2b-00001"]


def test_the_parts_of_a_checkpoint_are_of_one_try(tmp_path: Path) -> None:
    """The first block of node 0 raises and its program saves the step again: node 1 has a part of both, node 0 of the second."""
    nodes = [Collector(launch(tmp_path, nodes=2, node_index=index)) for index in (0, 1)]

    def block(index: int, number: int) -> list[str]:
        place = tmp_path / f"n{index}" / f"all-10-{number}"
        write(place / f"rank{index}", f"{number}")
        return [one["id"] for one in nodes[index].sdk_checkpoint(index, 10, str(place), "all")]

    alone = write(tmp_path / "one" / "a", "x").parent
    assert [one["id"] for one in nodes[0].sdk_checkpoint(0, 10, str(alone), "one")] == ["0001-s10"], "node 1 does not know of it"
    assert [block(1, 1), block(0, 2), block(1, 2)] == [["0001-s10-all"], ["0001-s10-all-2"], ["0001-s10-all-2"]]
    assert [block(0, 1), block(1, 1)] == [["0001-s10-all-3"], ["0001-s10-all-3"]]  # the processes began anew, and count from 1
