"""The date by which data gets old: a wrong date of the machine makes nothing old."""

from pathlib import Path

import pytest

from trainmaster import troubles
from trainmaster.home import Home
from trainmaster.model.cluster import DAY_S
from trainmaster.server.storage import age_date
from trainmaster.server.storage.age_date import AgeDate

TODAY_S = 20_000 * DAY_S


class Machine:
    """Its date and the time since its boot. The server is restarted before each look."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.date_s, self.steady_s, self.boots = Home(root), TODAY_S, 500.0, 0
        monkeypatch.setattr(age_date, "boot_id", lambda: f"boot {self.boots}")
        troubles.own.forget()

    def later(self, days: float) -> None:
        self.date_s += days * DAY_S
        self.steady_s += days * DAY_S

    def boot(self, days: float) -> None:
        """Its date is `days` later then."""
        self.date_s, self.steady_s, self.boots = self.date_s + days * DAY_S, 20.0, self.boots + 1

    def day(self) -> float:
        return (AgeDate(self.home, lambda: (self.date_s, self.steady_s)).now_s() - TODAY_S) / DAY_S

    def told(self) -> list[str]:
        return [one.topic for one in troubles.own.said()]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_date_that_jumps_ahead_is_not_followed_before_the_next_boot(machine: Machine) -> None:
    """At the next hourly look it removed the work directories and logs of all ended jobs."""
    assert machine.day() == 0
    machine.date_s += 200 * DAY_S
    assert (machine.day(), machine.told()) == (0, ["retention"])
    machine.later(3)
    assert machine.day() == 3
    machine.date_s -= 200 * DAY_S
    assert (machine.day(), machine.told()) == (3, [])
    machine.later(40)
    assert machine.day() == 43, "a server that was down is no jump"


def test_a_date_far_ahead_at_a_boot_is_followed_a_day_later(machine: Machine) -> None:
    machine.day()
    machine.boot(200)
    assert (machine.day(), machine.told()) == (0, ["retention"])
    machine.later(0.9)
    assert machine.day() == pytest.approx(0.9)
    machine.later(0.2)
    assert (machine.day(), machine.told()) == (pytest.approx(201.1), [])


def test_a_machine_that_is_used_now_and_then_follows_its_date_at_the_second_boot(machine: Machine) -> None:
    machine.day()
    for days, known in ((3, 3), (30, 3), (0.5, 33.5), (6, 39.5)):
        machine.boot(days)
        assert machine.day() == known


def test_a_date_that_was_lost_and_found_is_no_jump(machine: Machine) -> None:
    """A machine without a battery begins in 1970, until the network tells it the date."""
    machine.day()
    machine.boot(-20_000)
    assert machine.day() == -20_000
    machine.date_s += 20_000.5 * DAY_S
    assert machine.day() == 0.5


def test_a_damaged_note_puts_removals_off_for_a_day(machine: Machine) -> None:
    """It was told as a date of the machine that is 20,000 days ahead."""
    machine.day()
    (machine.home.root / "retention.json").write_text("{}")
    for passed in (0.0, 0.1):  # at the second look, the damaged note is replaced
        assert (machine.day(), machine.told()) == (pytest.approx(passed - TODAY_S / DAY_S), ["retention"])
        (trouble,) = troubles.own.said()
        assert trouble.text.endswith("retention.json was damaged: for a day, no data is removed by age, nor to free a full disk")
        machine.later(0.1)
    machine.later(1)
    assert (machine.day(), machine.told()) == (pytest.approx(1.2), [])
