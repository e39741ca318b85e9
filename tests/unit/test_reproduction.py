"""What a reproduction says of data: equal only if the original read what was recorded of it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from trainmaster.cli.jobs.resubmit import compared
from trainmaster.control.reports import event_of
from trainmaster.lifecycle.machine import apply
from trainmaster.model.events import Warned
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Attempt, Job, NodePhase, NodeRun, Outcome, Trouble
from trainmaster.model.spec import DataVersion
from trainmaster.server.record.data_seen import doubted
from trainmaster.server.record.differences import Run, compare
from trainmaster.server.record.not_compared import not_compared
from trainmaster.server.record.reproduction import _unequal_python, equal_data, unequal_data
from trainmaster.server.views.event_text import sentence
from trainmaster.store.codec import dump, load_event
from trainmaster.testing import builders
from trainmaster.wire.data import CHANGED, SAME, UNKNOWN
from trainmaster.wire.environment import EnvironmentRecord

TRAIN, VALID = (
    DataVersion(name, f"/d/{name}", digest * 64, True, 1, 1, stamp=digest * 64, listing="")
    for name, digest in (("train", "a"), ("valid", "b"))
)
NOW = (TRAIN, VALID)
RUNNING = NodeRun(NodePhase.RUNNING)
SAW_ALL = {"train": SAME, "valid": SAME}
PERMISSIONS = "permissions of the files in data train, valid"


def with_data() -> Job:
    plain = builders.job()
    spec = replace(plain.spec, data={one.name: one.uri for one in NOW})
    return replace(plain, id="e-1", spec=spec, data=NOW)


def attempt(number: int, seen: dict[str, str], node: NodeRun = RUNNING) -> Attempt:
    return replace(builders.attempt(number), nodes=(node,), data_seen=seen)


def test_data_is_equal_only_if_every_attempt_found_it_as_it_was_at_the_submit() -> None:
    """Silence passed as proof: of a warning that others had pushed out, and of an agent that had not looked."""
    job, good = with_data(), attempt(1, SAW_ALL)
    assert doubted(job, [good, attempt(2, SAW_ALL)]) == doubted(job, []) == {}
    assert doubted(job, [attempt(1, {"train": CHANGED, "valid": SAME}), attempt(2, SAW_ALL)]) == {
        "train": "it had changed since the submit when attempt 1 began"
    }
    silent = [attempt(number, {"valid": SAME}) for number in (2, 3)]
    assert doubted(job, [good, *silent]) == {
        "train": "it is not known whether it was as at the submit when attempts 2 and 3 began"
    }
    many = [attempt(number, {"train": UNKNOWN, "valid": SAME}) for number in range(1, 9)]
    assert doubted(job, many)["train"].endswith("when attempts 1, 2, 3 and 5 more began")


def test_an_attempt_that_never_ran_read_nothing_and_one_that_was_lost_may_have() -> None:
    outcomes = (Outcome(launch_error="no such program"), Outcome(lost=True))
    ended = [attempt(number, {}, NodeRun(NodePhase.ENDED, outcome=outcome)) for number, outcome in enumerate(outcomes, 1)]
    assert doubted(with_data(), [ended[0], attempt(3, {}, NodeRun())]) == {}
    assert doubted(with_data(), ended)["train"] == "it is not known whether it was as at the submit when attempt 2 began"


def test_what_other_warnings_push_out_stays_recorded_and_names_do_not_get_lost_in_a_long_text() -> None:
    names = [f"shard_of_webdataset_{number:02d}" for number in range(30)]
    job = builders.placed(replace(with_data(), spec=replace(with_data().spec, data={name: f"/d/{name}" for name in names})))
    report = {"kind": "warned", "n": 1, "topic": "data", "text": f"{', '.join(names)} have changed", "data": dict.fromkeys(names, CHANGED)}
    event = event_of(AgentKey(job.id, 1, 0), {**report, "data": {**report["data"], "strange": CHANGED}})  # type: ignore[dict-item]
    assert event is not None
    assert load_event("Warned", dump(event)) == event
    job, _ = apply(job, job.id, event, 1.0)
    for number in range(8):
        job, _ = apply(job, job.id, Warned(1, 0, f"topic {number}", "text", number + 2), 2.0)
    assert job.attempt is not None
    assert (job.attempt.data_seen, [one.topic for one in job.troubles if one.topic == "data"]) == (report["data"], [])


def test_an_attempt_that_found_all_as_it_was_does_not_withdraw_what_an_earlier_one_warned_of() -> None:
    told = Trouble("data", "train has changed since the submit, as seen when attempt 1 began", 1, 0, 1.0)
    job = replace(builders.placed(with_data(), number=2), troubles=(told,))
    event = Warned(2, 0, "data", "", 1, SAW_ALL)
    job, _ = apply(job, job.id, event, 2.0)
    assert job.attempt is not None
    assert (job.troubles, job.attempt.data_seen) == ((told,), SAW_ALL)
    assert sentence(event) == "n0: data as at the submit: train, valid"


def test_data_that_had_changed_when_the_original_read_it_is_not_equal_to_what_is_there_now() -> None:
    job, doubts = with_data(), {"train": "it had changed since the submit when attempt 1 began"}
    assert equal_data(job, NOW, doubts) == ["valid"]
    told = f"data train: e-1 may have read another version than the one recorded: {doubts['train']}"
    assert list(unequal_data(job, NOW, doubts)) == [told]
    assert list(unequal_data(job, (replace(TRAIN, digest="c" * 64), VALID), doubts)) == [
        told, "data train: version aaaaaaaaaaaa, now cccccccccccc",
    ]  # fmt: skip
    assert (equal_data(job, NOW, {}), list(unequal_data(job, NOW, {}))) == (["train", "valid"], [])
    assert not_compared([job], doubts={"e-1": doubts}) == [PERMISSIONS, f"data train: {doubts['train']}"]


def test_entries_that_are_no_files_are_compared_where_both_versions_looked_at_them() -> None:
    """An empty directory is a class to a program that lists directories, and was in no digest."""
    job, other, older = with_data(), replace(TRAIN, listing="d" * 64), replace(TRAIN, listing=None)
    beside = "data train: its entries other than files (such as empty directories)"
    for now, told in ((other, f"{beside} differ"), (older, f"{beside} were not recorded, so only its files are compared")):
        assert equal_data(job, (now, VALID), {}) == ["valid"]
        assert list(unequal_data(job, (now, VALID), {})) == [told]
    assert not_compared([replace(job, data=(older, VALID))]) == [f"{beside} were not recorded", PERMISSIONS]
    runs = [Run(replace(job, id=id, data=(version, VALID))) for id, version in (("a-1", TRAIN), ("b-1", other), ("c-1", older))]
    assert [(one.section, one.values) for one in compare(runs[:2]).fields] == [
        ("data", ["/d/train aaaaaaaaaaaa", "/d/train aaaaaaaaaaaa, besides files dddddddddddd"])
    ]
    assert compare(runs).fields == [], "of one it is not known"


def test_packages_that_cannot_be_read_now_or_could_not_then_are_not_called_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python3.11"
    python.parent.mkdir()
    python.write_text("")
    record = {"python": {"path": str(python), "version": "3.11"}, "packages": {"numpy": "2.0"}, "editable": []}
    assert list(_unequal_python(cast("EnvironmentRecord", record), {"HOME": ""})) == ["package numpy: 2.0, now none"]
    assert list(_unequal_python(cast("EnvironmentRecord", {**record, "unread": ["/x (why)"]}), {"HOME": ""})) == []
    (tmp_path / "lib" / "python3.11" / "site-packages").mkdir(parents=True)

    def fails(path: str) -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "listdir", fails)
    (told,) = _unequal_python(cast("EnvironmentRecord", record), {"HOME": ""})
    assert told.startswith("packages: ")
    assert told.endswith(" (Input/output error) cannot be read now, so they cannot be compared")


def test_what_is_there_now_but_was_not_looked_at_is_no_missing_record() -> None:
    """From another host, the recorded version was called not recorded."""
    job, unseen = with_data(), replace(VALID, digest=None, doubt="it cannot be read")
    assert list(unequal_data(job, (), {})) == [
        f"data {name}: version {digest * 12}, and the present one is not known here" for name, digest in (("train", "a"), ("valid", "b"))
    ]
    assert list(unequal_data(job, (TRAIN, unseen), {})) == [
        "data valid: version bbbbbbbbbbbb, and the present one is not known here: it cannot be read"
    ]
    old = replace(job, data=(TRAIN, unseen))
    assert list(unequal_data(old, (TRAIN, VALID), {})) == [
        "data valid: its version was not recorded, so it cannot be compared: it cannot be read"
    ]


def test_a_python_that_is_gone_is_told_as_such_and_not_as_another_version(tmp_path: Path) -> None:
    """`Python: 3.11.2, now 3` was said of an interpreter that had been deleted."""
    record = {"python": {"path": str(tmp_path / "bin/python3"), "version": "3.11.2"}, "packages": {"numpy": "2.0"}, "editable": []}
    (told,) = _unequal_python(cast("EnvironmentRecord", record), {})
    assert told == f"Python: {tmp_path}/bin/python3 is not there any more, so neither its version nor its packages can be compared"


def test_equal_last_values_at_other_steps_are_told_with_their_steps() -> None:
    """`0.25 in both` was said of a run of 300 steps and of one of 438."""

    def told(id: str, **metrics: tuple[int | None, float]) -> dict[str, Any]:
        return {"id": id, "metrics": {name: {"step": step, "value": value} for name, (step, value) in metrics.items()}}

    first, second = told("a-1", loss=(300, 0.25), acc=(9, 1.0), lr=(None, 0.5)), told("a-2", loss=(438, 0.25), acc=(9, 1.0), lr=(7, 0.1))
    assert compared(first, second) == [
        "loss: 0.25 in both, at step 300 and at step 438", "acc: 1 in both",
        "lr: 0.5 before its first step in a-1, 0.1 at step 7 in a-2",
    ]  # fmt: skip
