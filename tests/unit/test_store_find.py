"""References to jobs that people type."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.errors import ConflictError, NotFoundError, UsageError
from trainmaster.model.job import State
from trainmaster.store.events import SqlEventStore
from trainmaster.testing.store_contract import some_job, submit_all


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlEventStore]:
    store = SqlEventStore(tmp_path / "events.db")
    yield store
    store.close()


def _fill(store: SqlEventStore) -> None:
    rows = [("digits", "digits-ddp", State.SUCCEEDED), ("digits", "digits-ddp", State.FAILED), ("text", "gpt", State.RUNNING)]
    rows += [("digits", "other", State.HELD)] * 12
    submit_all(store, [some_job(seq, state, experiment=e, name=n) for seq, (e, n, state) in enumerate(rows, start=1)])


@pytest.mark.parametrize(
    ("ref", "meant"),
    [
        ("digits-1", "digits-1"),  # an id, though others begin so
        ("digits-ddp", "digits-2"),  # a name: the newest of it
        ("te", "text-3"),  # the only one that begins so
        ("digits-14", "digits-14"),
        ("@last", "digits-15"),
        ("@last-failed", "digits-2"),
    ],
)
def test_references(store: SqlEventStore, ref: str, meant: str) -> None:
    _fill(store)
    assert store.resolve(ref) == meant


def test_what_was_accepted_and_not_taken_up_counts(store: SqlEventStore) -> None:
    _fill(store)
    waiting = [("fresh-1", "gpt"), ("fresh-2", "new")]
    refs = ("fresh-1", "gpt", "new", "@last", "@last-failed", "text-3")
    assert [store.resolve(ref, waiting) for ref in refs] == ["fresh-1", "fresh-1", "fresh-2", "fresh-2", "digits-2", "text-3"]
    with pytest.raises(ConflictError):
        store.resolve("fresh", waiting)


def test_several_that_begin_so(store: SqlEventStore) -> None:
    _fill(store)
    with pytest.raises(ConflictError) as refusal:
        store.resolve("digits")
    assert refusal.value.message == "'digits' could be digits-1, digits-10, digits-11, digits-12, digits-13 and others"


@pytest.mark.parametrize(
    ("ref", "hint"),
    [("digit-14", "did you mean digits-14"), ("gtp", "did you mean gpt?"), ("zebra", "`tm ps"), ("", "`tm"), ("%", "`tm")],
)
def test_unknown(store: SqlEventStore, ref: str, hint: str) -> None:
    _fill(store)
    with pytest.raises(NotFoundError) as refusal:
        store.resolve(ref)
    assert hint in refusal.value.hint


def test_the_nearest_ids_are_looked_for_where_they_are_wanted(store: SqlEventStore) -> None:
    _fill(store)
    with pytest.raises(NotFoundError) as refusal:
        store.resolve("digit-14", near=False)
    assert "did you mean" not in refusal.value.hint


def test_which_of_many_are_ids(store: SqlEventStore) -> None:
    _fill(store)
    asked = ["digits-14", "digits-ddp", "@last", "text", *(f"none-{n}" for n in range(2000)), "text-3"]
    assert store.known(asked) == {"digits-14", "text-3"}


def test_special_references_may_mean_nothing(store: SqlEventStore) -> None:
    for ref in ("@last", "@last-failed"):
        with pytest.raises(NotFoundError):
            store.resolve(ref)
    with pytest.raises(UsageError):
        store.resolve("@lats")


def test_counts_and_numbers(store: SqlEventStore) -> None:
    _fill(store)
    assert store.live_counts() == {
        State.HELD: 12, State.QUEUED: 0, State.STARTING: 0, State.RUNNING: 1, State.STOPPING: 0
    }  # fmt: skip
    assert store.numbers() == {"digits": 15, "text": 3}
