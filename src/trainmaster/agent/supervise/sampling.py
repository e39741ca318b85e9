"""Samples the processes of an attempt: their memory and CPU time, the state of the devices, and whether the ranks may hang."""

from __future__ import annotations

import os
import time

from trainmaster.agent.metrics.system_metrics import System
from trainmaster.agent.processes import process_tree, usage
from trainmaster.agent.supervise.inactivity import Inactivity
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trainmaster.agent.launch.start import Startup
    from trainmaster.agent.supervise.children import Children
    from trainmaster.agent.supervise.program_output import ProgramOutput
    from trainmaster.agent.transport.sync import Sync

_EVERY_S, _EVERY_NEAR_S = 0.5, 0.1  # between two samples of the process tree; the shorter one near the memory limit
_COST = 50  # a sample that takes t seconds is followed by a pause of 50 t


class Sampler:
    """The samples of one agent. It stops the children if they use more memory than they may."""

    def __init__(self, start: Startup, sync: Sync, children: Children, output: ProgramOutput) -> None:
        launch = start.launch
        self._answers = sync.answers
        self._children = children
        self._usage = usage.Usage(None if launch["cgroup"] else launch["memory_bytes"])
        self._devices = usage.Devices(launch["devices"])
        self._recorder = process_tree.Recorder(start.directory.file(names.TREE))
        first = start.ranks[0].number if start.ranks else 0
        self.system = System(sync.outbox, self._usage, self._devices, first)
        self.inactivity = Inactivity(launch["job"], sync.outbox, output.outputs, output.progress, self._devices.busy)
        self.over_memory = False
        self.due_s = time.monotonic()  # when `sample` has something to do next

    def sample(self, now_s: float) -> None:
        """Sample the process trees and their usage, if it is time to."""
        if now_s < self.due_s:
            return
        heads = process_tree.children(os.getpid())
        trees = [[head, *process_tree.descendants(head)] for head in heads]
        self.system.pids = [pid for pids in trees for pid in pids]
        self._recorder.note(self.system.pids)
        used = dict(zip(heads, self._usage.sample(trees)))  # noqa: B905 - Python 3.9
        for rank in self._children.programs:
            size, cpu_s = used.get(rank.pid, (0, 0.0)) if rank.running else (0, 0.0)
            rank.peak_memory_bytes, rank.cpu_s = max(rank.peak_memory_bytes, size), max(rank.cpu_s, cpu_s)
        if not self._children.stopping:
            self.inactivity.look(now_s, self.system.pids, self._answers.gang_step)
        if self._usage.over and not self.over_memory:
            self.over_memory = True
            self._children.stop(now_s, 0.0)
        took_s = time.monotonic() - now_s
        self.due_s = now_s + max(_EVERY_NEAR_S if self._usage.near else _EVERY_S, _COST * took_s)

    @property
    def peak_bytes(self) -> int:
        """The highest memory of all processes in one sample."""
        return self._usage.peak_bytes

    def current(self, with_devices: bool) -> dict[str, Any]:
        """The usage as a heartbeat reports it. Callable from any thread."""
        return {
            "memory_bytes": self._usage.memory_bytes,
            "cpu_s": round(self._usage.cpu_s, 3),
            "gpu": self._devices.read() if with_devices else [],
        }
