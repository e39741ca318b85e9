"""Which `address already in use` is of the rendezvous port."""

from pathlib import Path
from typing import Any

import pytest
from launches import launch

from trainmaster.agent.launch.start import Startup
from trainmaster.agent.metrics.output import RankOutput
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.rank import Rank
from trainmaster.agent.processes.wakeup import Wake
from trainmaster.agent.supervise.outcome import End, _rendezvous_taken, ended
from trainmaster.agent.transport.outbox import Outbox

NO_PORT = "RuntimeError: [Errno 98] Address already in use"
C10D = "The server socket has failed to bind to [::]:$MASTER_PORT (errno: 98 - Address already in use)."


@pytest.mark.parametrize(
    ("words", "changes", "told"),
    [
        (NO_PORT, {}, True),
        (NO_PORT, {"distributed": False}, False),
        (NO_PORT, {"node_index": 1, "nodes": 2}, False),  # rank 1 does not listen
        (C10D, {}, True),
        (C10D, {"distributed": False}, False),
        ("DistNetworkError: port: $MASTER_PORT, useIpv6: false, name: EADDRINUSE, message: address already in use", {}, True),
        ("OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 6006): address already in use", {}, False),
        ("Error: listen EADDRINUSE: address already in use :::3000", {}, False),
        ("listen tcp :8080: bind: address already in use", {}, False),
        ("Address already in use\nPort 5000 is in use by another program.", {}, False),
        ("[gloo/transport/tcp/device.cc:208] bind: Address already in use", {}, True),
    ],
)
def test_a_taken_rendezvous_port_is_told_apart_from_any_other_port(tmp_path: Path, words: str, changes: dict[str, Any], told: bool) -> None:
    """A dashboard's port that was in use gave free restarts, and hid the exception."""
    start = Startup(str(tmp_path), launch(tmp_path, **changes), Wake())
    start.prepared.rendezvous = ("127.0.0.1", 29513)
    lines = words.replace("$MASTER_PORT", "29513").split("\n")
    rank = {"rank": start.launch["node_index"], "exit_code": 1, "last_lines": lines, "error": None}
    assert _rendezvous_taken(rank, start) is told


def test_ranks_that_ran_for_long_have_met(tmp_path: Path) -> None:
    """A program that names no steps may still have made some."""
    (tmp_path / "rank0.log").write_text(NO_PORT + "\n")
    start, rank, end = Startup(str(tmp_path), launch(tmp_path), Wake()), Rank(0, str(tmp_path)), End()
    start.prepared.rendezvous, start.ranks, rank.exit_code = ("127.0.0.1", 29513), [rank], 1
    progress = Progress(Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")))
    output = RankOutput(rank, Parser(), 1 << 20, progress)
    output.finish()
    told = []
    for end.ran_s in (60.0, 36000.0):
        told.append(ended(start, end, [output], progress)["port_in_use"])
    assert told == [True, False]
