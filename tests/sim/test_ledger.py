"""The law of the ledger holds in the histories of `test_world`, and detects planted errors."""

from collections.abc import Callable
from typing import Any

import pytest
from test_world import play

from trainmaster.control import charging
from trainmaster.model.ledger import Charge, Closed, Entry, Repeated
from trainmaster.store import events as store

entries, write_ledger = charging.entries, store.write_ledger
SEEDS = 6


def changed(change: Callable[[Entry], tuple[Entry, ...]]) -> Callable[..., tuple[Entry, ...]]:
    """Events write wrong entries."""
    return lambda *given: tuple(one for entry in entries(*given) for one in change(entry))


def without(*kinds: type) -> Callable[[Entry], tuple[Entry, ...]]:
    return lambda entry: () if isinstance(entry, kinds) else (entry,)


def shorter(entry: Entry) -> tuple[Entry, ...]:
    return (entry._replace(until_ms=entry.until_ms - 1),) if isinstance(entry, Closed) else (entry,)


def from_the_beginning(entry: Entry) -> tuple[Entry, ...]:
    return (entry._replace(kept=0, at_ms=0),) if isinstance(entry, Repeated) else (entry,)


def forgetful(connection: Any, events: Any) -> None:
    """The store drops the ends of charges."""
    write_ledger(connection, [new for new in events if type(new.event).__name__ != "AttemptEnded"])


FAULTS: dict[str, tuple[object, str, object, str]] = {
    "an attempt is not charged": (charging, "entries", changed(without(Charge)), "is not charged"),
    "an attempt is charged for ever": (charging, "entries", changed(without(Closed)), "was there from"),
    "a millisecond is missing": (charging, "entries", changed(shorter), "was there from"),
    "nothing was done in vain": (charging, "entries", changed(without(Repeated)), "did in vain"),
    "all was done in vain": (charging, "entries", changed(from_the_beginning), "did in vain"),
    "service counts twice": (charging, "service_rate", lambda rates, weight: 2 * charging.WHOLE, "by the events"),
    "the store forgets": (store, "write_ledger", forgetful, "in the projection"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_histories_notice_that(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, planted, word = FAULTS[fault]
    monkeypatch.setattr(where, name, planted)
    assert any(word in problem for seed in range(SEEDS) for problem in play(seed)[0])
