"""Checkpoint requests of an agent to its program at the interval of the spec."""

import time
from pathlib import Path

from launches import launch

from trainmaster.agent.launch.start import Startup
from trainmaster.agent.processes.wakeup import Wake
from trainmaster.agent.supervise.orders import Orders
from trainmaster.agent.transport.sync import Answers
from trainmaster.wire import names


def asked(orders: Orders, start: Startup, now_s: float) -> int:
    """How often a checkpoint was asked for by `now_s`."""
    orders.take(now_s)
    return Path(start.directory.flags_path).read_bytes()[names.FLAG_CHECKPOINT]


def begun(root: Path, interval_s: float | None) -> tuple[Orders, Startup, Answers]:
    start = Startup(str(root), launch(root, checkpoint_interval_s=interval_s), Wake())
    Path(start.directory.flags_path).write_bytes(b"0\0")
    answers = Answers(start.wake)
    return Orders(start, answers), start, answers


def test_a_checkpoint_is_asked_for_at_each_interval_and_by_each_order(tmp_path: Path) -> None:
    orders, start, answers = begun(tmp_path, 60.0)
    now_s = time.monotonic()
    assert asked(orders, start, now_s) == 0
    assert asked(orders, start, now_s + 61.0) == 1
    assert asked(orders, start, now_s + 62.0) == 1
    answers.orders.append({"order": "checkpoint", "n": 1})
    assert asked(orders, start, now_s + 63.0) == 2
    assert asked(orders, start, now_s + 1000.0) == 3, "what was slept through is asked for once"


def test_without_an_interval_nothing_is_asked(tmp_path: Path) -> None:
    orders, start, _ = begun(tmp_path, None)
    assert asked(orders, start, time.monotonic() + 1e6) == 0
