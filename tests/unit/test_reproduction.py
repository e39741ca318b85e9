"""What a reproduction says of data: equal only if the original read what was recorded of it."""

from dataclasses import replace
from pathlib import Path
from typing import cast

from trainmaster.model.job import Job, Trouble
from trainmaster.model.spec import DataVersion
from trainmaster.server.record.reproduction import _unequal_python, equal_data, unequal_data
from trainmaster.testing import builders
from trainmaster.wire.environment import EnvironmentRecord
from trainmaster.wire.names import DATA_CHANGED

TRAIN, VALID = (DataVersion(name, f"/d/{name}", digest * 64, True, 1, 1) for name, digest in (("train", "a"), ("valid", "b")))


def with_data(*troubles: Trouble) -> Job:
    plain = builders.job()
    spec = replace(plain.spec, data={one.name: one.uri for one in (TRAIN, VALID)})
    return replace(plain, id="e-1", spec=spec, data=(TRAIN, VALID), troubles=troubles)


def warned(text: str, attempt: int = 1) -> Trouble:
    return Trouble(DATA_CHANGED, text, attempt, 0, 100.0)


def test_data_that_had_changed_when_the_original_read_it_is_not_equal_to_what_is_there_now() -> None:
    told = "train has changed since the submit, as seen when attempt 1 began"
    job, now = with_data(warned(told)), (TRAIN, VALID)
    assert equal_data(job, now) == ["valid"]
    assert list(unequal_data(job, now)) == [f"data train: e-1 may have read another version than the one recorded: {told}"]
    assert equal_data(with_data(), now) == ["train", "valid"]
    assert list(unequal_data(with_data(), now)) == []


def test_a_warning_of_a_later_attempt_replaces_earlier_ones_so_nothing_is_known_of_other_data() -> None:
    job = with_data(warned("train could not be read when attempt 2 began", attempt=2))
    assert equal_data(job, (TRAIN, VALID)) == []
    assert [line.partition(":")[0] for line in unequal_data(job, (TRAIN, VALID))] == ["data train", "data valid"]


def test_data_that_had_changed_and_differs_now_is_told_as_both() -> None:
    job = with_data(warned("train has changed since the submit, as seen when attempt 1 began"))
    lines = list(unequal_data(job, (replace(TRAIN, digest="c" * 64), VALID)))
    assert lines[1:] == ["data train: version aaaaaaaaaaaa, now cccccccccccc"]


def test_what_is_there_now_but_was_not_looked_at_is_no_missing_record() -> None:
    """From another host, the recorded version was called not recorded."""
    job, unseen = with_data(), replace(VALID, digest=None, doubt="it cannot be read")
    assert list(unequal_data(job, ())) == [
        f"data {name}: version {digest * 12}, and the present one is not known here" for name, digest in (("train", "a"), ("valid", "b"))
    ]
    assert list(unequal_data(job, (TRAIN, unseen))) == [
        "data valid: version bbbbbbbbbbbb, and the present one is not known here: it cannot be read"
    ]
    old = replace(job, data=(TRAIN, unseen))
    assert list(unequal_data(old, (TRAIN, VALID))) == [
        "data valid: its version was not recorded, so it cannot be compared: it cannot be read"
    ]


def test_a_python_that_is_gone_is_told_as_such_and_not_as_another_version(tmp_path: Path) -> None:
    """`Python: 3.11.2, now 3` was said of an interpreter that had been deleted."""
    record = {"python": {"path": str(tmp_path / "bin/python3"), "version": "3.11.2"}, "packages": {"numpy": "2.0"}, "editable": []}
    (told,) = _unequal_python(cast("EnvironmentRecord", record), {})
    assert told == f"Python: {tmp_path}/bin/python3 is not there any more, so neither its version nor its packages can be compared"
