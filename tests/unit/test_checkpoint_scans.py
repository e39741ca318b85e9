"""What the agent says of a checkpoint pattern while the program saves its first checkpoints."""

import os
import pickle
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from launches import launch, write

from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.agent.launch.start import Startup
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.wakeup import Wake
from trainmaster.agent.supervise.scans import CheckpointScans
from trainmaster.agent.transport.delivery import Delivery
from trainmaster.agent.transport.outbox import Outbox


def test_a_pattern_that_takes_too_little_is_told_at_the_first_checkpoints(tmp_path: Path) -> None:
    """It was told after a minute of steps: a restart before that was given one of the files, and the others were set aside."""
    orders = launch(tmp_path, checkpoint_path="out/model*")
    start = Startup(str(tmp_path), orders, Wake())
    start.prepared.collector = Collector(orders)
    start.ranks = cast(Any, [SimpleNamespace(pid=os.getpid(), running=True, ended_well=False)])
    delivery = Delivery(orders, start.wake)
    progress = Progress(Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")))
    scans = CheckpointScans(start, progress, delivery)
    for name in ("model.pkl", "model.optimizer.pkl"):
        path = write(tmp_path / "work" / "out" / name, pickle.dumps(name))
        os.utime(path, (time.time() - 60, time.time() - 60))
    scans.scan()
    told = [fields["text"] for kind, fields in delivery.results if kind == "warned"]
    assert [text.partition(":")[0] for text in told] == ["files of different names match 'out/model*'"]
