"""Telling that the ranks of a node do nothing that can be seen: they wait for a rendezvous, a lock, a pipe."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional, Sequence

    from trainmaster.agent.metrics.output import RankOutput
    from trainmaster.agent.transport.outbox import Outbox

TOLD_S = 300.0  # without output, a message, or processor time beyond what a loop that waits takes
_WAITING_CPU_S, _WAITING_SHARE = 1.0, 0.02  # of one processor
_TOPIC = "standstill"


class Standstill:
    """Of one agent. `busy` is asked before anything is told: whether an accelerator works, which needs no processor."""

    def __init__(self, outbox: Outbox, outputs: Sequence[RankOutput], busy: Callable[[], bool]) -> None:
        self._outbox, self._outputs, self._busy = outbox, outputs, busy
        self._told = False
        self._since: Optional[tuple[float, float, object]] = None  # when, processor time, and what had been heard by then

    def look(self, now_s: float, cpu_s: float) -> None:
        """`now_s` on the monotonic clock, `cpu_s` used by the ranks so far."""
        heard = [output.heard for output in self._outputs]
        if self._since is not None:
            since_s, cpu_before_s, heard_before = self._since
            took_s = now_s - since_s
            if heard == heard_before and cpu_s - cpu_before_s <= _WAITING_CPU_S + _WAITING_SHARE * took_s:
                if took_s < TOLD_S or self._told:
                    return
                if not self._busy():
                    self._tell(len(heard) - 1)
                    return
            if self._told:
                self._told = False
                self._outbox.warn(_TOPIC, "")
        self._since = (now_s, cpu_s, heard)

    def _tell(self, more: int) -> None:
        self._told = True
        who = self._outputs[0].rank.label + (f" and {more} more" if more else "")
        seen = f"no output, no report and hardly any processor time for {TOLD_S / 60:g} min"
        waits = "it may wait for another rank, a lock, a pipe or the network"
        self._outbox.warn(_TOPIC, f"{who}: {seen}; {waits}: tm exec --stacks shows where it stands")
