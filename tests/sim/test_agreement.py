"""The same small workloads live and in `tm simulate`: the same starts, victims and reasons of waiting, in the same order."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from effort import cases
from live import live
from simulated import Said, replayed, simulated
from workloads import TICK_S, workload

from trainmaster.home import Home
from trainmaster.server.cluster import history_export

SEEDS = range(100)
_ORDER = ("makes way", "starts", "waits")


def in_order(said: Iterable[Said]) -> list[Said]:
    """What happens at the same moment, in the order of submission: it has no other, as victims end when they do."""
    return sorted(said, key=lambda one: (one[0], _ORDER.index(one[1]), int(one[2].rpartition("-")[2])))


@pytest.mark.parametrize("seed", cases((20, 31, 41), SEEDS))
def test_live_and_simulated_agree(seed: int, tmp_path: Path) -> None:
    work = workload(seed)
    with live(Home(tmp_path / "home"), work) as server:
        simulation = simulated(work, server.inventory(), tmp_path)
        ends: dict[float, list[str]] = {}
        for id, found in simulation.histories.items():
            ends.setdefault(found.ended_s, []).append(id)
        ends.pop(-1.0, None)  # those that never start
        known = {*simulation.looks, *ends, *(one.submit_s for one in work.jobs)}
        between = {TICK_S * turn for turn in range(int(max(known) // TICK_S))}
        for at_s in sorted(known | between):
            server.moment(at_s, ends.get(at_s, ()))
            assert in_order(server.said) == in_order(one for one in simulation.said if one[0] <= at_s)
        exported = tmp_path / "exported.jsonl"
        exported.write_bytes(b"".join(history_export.lines(server.events)))
    assert not (left := [one for one in simulation.said if one[0] > max(known)]), left
    if len(simulation.histories) == sum(map(len, ends.values())):
        again = replayed(exported, 0.0)  # the run times on record include what preemptions cost
        assert in_order(again.said) == in_order(simulation.said)
