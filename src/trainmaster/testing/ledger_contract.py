"""Contract suite for the ledger in `trainmaster.ports.store.EventStore`: subclass it once per store.

The fixtures are those of `store_contract.EventStoreContract`.
"""

from collections.abc import Callable
from typing import Any

import pytest

from trainmaster.errors import DiskFullError
from trainmaster.model.events import Waited
from trainmaster.model.ledger import Balance, Charge, Closed, Entry, Payer, Rate, Repeated
from trainmaster.ports.store import ChargeQuery, EventStore, NewEvent

ANN = Payer("vision", "ann", "training", "digits")


def charge(attempt: int = 1, from_ms: int = 1000, job: str = "digits-1", pool: str = "a100") -> Charge:
    """A running charge of two GPUs."""
    return Charge(job, attempt, ANN, Rate(pool, 2000, 0, 2.5, "EUR"), from_ms)


def enter(store: EventStore, *entries: Entry) -> None:
    """Append one event with these entries."""
    store.append(1.0, [NewEvent("digits-1", 1, Waited(""), None, entries)], {}, [], 0)


def rows(store: EventStore, query: ChargeQuery | None = None) -> list[Charge]:
    """Charges in the order of their attempts."""
    return sorted(store.charges(query or ChargeQuery()), key=lambda row: (row.job, row.attempt, row.rate.pool))


class LedgerContract:
    """Fixtures: `open_events(read_only=False)` -> EventStore; `full_disk(store)`, a context with a full disk."""

    @pytest.fixture
    def ledger(self, open_events: Callable[..., EventStore]) -> EventStore:
        return open_events()

    def test_what_was_entered_is_there_after_reopening(self, open_events: Callable[..., EventStore]) -> None:
        large = Charge("digits-1", 1, ANN, Rate("big", 10**12, 10**12, 0.1, "¤"), 2**52)
        balances = Balance("vision", "ann", 0.1 + 0.2, 1e9 / 3), Balance("text", "", 1e-300, 0.0)
        enter(open_events(), charge(), large, *balances)
        again = open_events(read_only=True)
        assert rows(again) == [charge(), large]
        assert again.load_live().balances == again.balances() == balances[::-1]
        enter(open_events(), balances[0]._replace(service=1.0))
        assert again.load_live().balances == (balances[1], balances[0]._replace(service=1.0))

    def test_an_end_is_of_one_attempt_in_all_its_pools(self, ledger: EventStore) -> None:
        others = charge(2), charge(1, job="digits-2")
        enter(ledger, charge(), charge(pool="cpu"), *others)
        enter(ledger, Closed("digits-1", 1, 5000))
        ended = [charge()._replace(until_ms=5000), charge(pool="cpu")._replace(until_ms=5000)]
        assert rows(ledger) == [*ended, *others]
        enter(ledger, Closed("digits-1", 9, 6000))  # of an attempt from before the ledger existed
        assert rows(ledger) == [*ended, *others]

    def test_what_was_done_in_vain_only_grows(self, ledger: EventStore) -> None:
        attempts = [charge(number, 1000 * number) for number in (1, 2, 3, 4)]
        enter(ledger, *attempts, charge(1, job="digits-2"))

        def lost() -> list[int | None]:
            return [row.lost_from_ms for row in rows(ledger)]

        enter(ledger, Repeated("digits-1", 3, 2, 2700))
        assert lost() == [None, 2700, None, None, None]
        enter(ledger, Repeated("digits-1", 3, 2, 2800))
        assert lost() == [None, 2700, None, None, None]
        enter(ledger, Repeated("digits-1", 4, 1, 1500))
        assert lost() == [1500, 2000, 3000, None, None]
        enter(ledger, Repeated("digits-1", 4, 0, 0))
        assert lost() == [1000, 2000, 3000, None, None]

    def test_a_period_has_what_has_a_part_in_it(self, ledger: EventStore) -> None:
        enter(ledger, *(charge(number, 1000 * number) for number in (1, 2, 3)), charge(1, 1500, "text-1"))
        enter(ledger, *(Closed("digits-1", number, 1000 * number + 1000) for number in (1, 2)))

        def seen(*query: Any, **more: Any) -> list[tuple[str, int]]:
            return [(row.job, row.attempt) for row in rows(ledger, ChargeQuery(*query, **more))]

        assert seen(2000) == [("digits-1", 2), ("digits-1", 3), ("text-1", 1)]
        assert seen(0, 1500) == [("digits-1", 1)]
        assert seen(10_000, 20_000) == [("digits-1", 3), ("text-1", 1)]
        assert seen(project="text") == []
        assert seen(0, 2500, project="vision", job="digits-1") == [("digits-1", 1), ("digits-1", 2)]

    def test_a_full_disk_charges_nothing(self, ledger: EventStore, full_disk: Any) -> None:
        enter(ledger, charge())
        with full_disk(ledger):
            events = [NewEvent("digits-1", 1, Waited("x" * 10_000), None, (charge(n),)) for n in range(2, 300)]
            with pytest.raises(DiskFullError):
                ledger.append(2.0, events, {}, [], 0)
        assert rows(ledger) == [charge()]

    def test_half_characters_are_no_reason_to_refuse(self, ledger: EventStore) -> None:
        strange = charge()._replace(payer=ANN._replace(member="\ud800ann"))
        enter(ledger, strange, Balance("vision", "\ud800ann", 1.0, 1.0))
        assert [row.payer.member for row in rows(ledger)] == ["?ann"]
        assert ledger.load_live().balances == (Balance("vision", "?ann", 1.0, 1.0),)
