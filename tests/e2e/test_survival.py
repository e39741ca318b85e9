"""Nothing lost, nothing doubled: the control plane is killed at random instants. `test_failpoints.py`: at every named one."""

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from effort import cases, examples
from waiting import deadline

from trainmaster import daemons
from trainmaster.compose import replay_report
from trainmaster.home import Home
from trainmaster.store.events import SqlEventStore
from trainmaster.testing.ledger_law import ledger_problems
from trainmaster.testing.survival import Survival, overlaps

FAULTS = Path(__file__).with_name("faults")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """An empty home whose server is gone afterwards."""
    home = Home(tmp_path / "home")
    yield home
    daemons.stop(home)


@pytest.mark.timeout(300)  # each is followed by a start, on a machine that may be busy
def test_random_instants(home: Home) -> None:
    trial = Survival(home, jobs=examples(20, 50))
    assert trial.run(examples(4, 10), random.Random(20)) == []
    daemons.stop(home)
    assert replay_report(home) == []
    with closing(SqlEventStore(home.events_db, read_only=True)) as events:
        assert ledger_problems(events) == []


PLANTED = [("acknowledged_before_commit", "was acknowledged and is lost"), ("submit_without_key", "overlap")]


@pytest.mark.parametrize(("fault", "seen"), cases(PLANTED[:1], PLANTED))
def test_a_planted_fault_is_seen(home: Home, fault: str, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The witnesses are worth something: with the law broken on purpose, they say so."""
    home.root.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAULTS), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PLANTED_FAULT", fault)
    monkeypatch.setenv("TRAINMASTER_FAILPOINT", f"inbox.commit.before:2:{home.root / 'died'}")
    trial = Survival(home, jobs=4, body="sleep 1", options=daemons.Options(failpoints=True))
    problems = trial.run(0, random.Random(0), timeout_s=3.0)  # such a trial never comes to its end
    deadline(lambda: len(trial.acknowledged) == trial.jobs, "the last submit's answer", 60.0)

    def said() -> bool:
        return any(seen in problem for problem in [*problems, *overlaps(trial.testimonies())])

    deadline(said, f"the witnesses to see it among {problems}", 20.0)
