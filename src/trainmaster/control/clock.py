"""The clock for decisions. It tells a step of the machine's clock from the passing of time."""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster.control.clock_steps import notify_unknown
from trainmaster.home import open_regular, write_atomic
from trainmaster.wire.processes import boot_id

STEP_S = 5.0  # a smaller difference is not treated as a step; the next start follows it
_TORN_S = 0.1  # at most, between two readings that count as one moment


class SteadyClock:
    """`ports.clock.Clock`: the machine's date at the last sync, advanced by the time since boot, suspend included.

    A step of the machine's clock has no effect until it is recorded. `stepped_s` detects it, `begin` notes that it is about
    to be recorded, and `follow` notes that it was. The file at `place` stores the offset between dates and the time since
    boot, so that a restart within the same boot measures a step exactly. After a reboot only a clock behind the last recorded
    date (`last_s`) proves a step. `recorded` tells whether the event after a sequence number is a step of that size: it shows
    whether a step that was begun was recorded before the process died.
    Raises: OSError if `place` cannot be read, and any error of `recorded`.
    """

    def __init__(
        self,
        last_s: float,
        place: Path | None = None,
        recorded: Callable[[int, float], bool] = lambda seq, by_s: False,
        readings: Callable[[], tuple[float, float]] | None = None,
    ) -> None:
        self._place = place
        self._readings = readings or date_and_steady_s
        wall_s, steady_s = self._readings()
        kept_s = self._kept(recorded)
        behind = last_s - wall_s >= STEP_S
        if kept_s is not None and abs(wall_s - steady_s - kept_s) >= STEP_S:
            self._offset_s = max(kept_s, last_s - steady_s)
        else:
            self._offset_s = (last_s if behind else max(wall_s, last_s)) - steady_s
        with contextlib.suppress(OSError):  # a full disk: the next start has less information
            self._keep()

    def now_s(self) -> float:
        """Seconds since the epoch; never runs backwards except by a step that was followed."""
        return self._offset_s + self._readings()[1]

    def stepped_s(self) -> float:
        """Size of a step of the machine's clock that is not followed yet, in whole seconds; 0 if there is none."""
        wall_s, steady_s = self._readings()
        by_s = wall_s - steady_s - self._offset_s
        return 0.0 if abs(by_s) < STEP_S else float(round(by_s))

    def begin(self, by_s: float, after: int) -> None:
        """Note that a step is about to be recorded as the first event after number `after`. Raises: OSError."""
        self._keep({"by_s": by_s, "after": after})

    def follow(self, by_s: float) -> None:
        """Move `now_s` by a step that was recorded."""
        self._offset_s += by_s
        with contextlib.suppress(OSError):  # the note of `begin` stays, which gives the same result together with the log
            self._keep()

    def _kept(self, recorded: Callable[[int, float], bool]) -> float | None:
        """The offset noted on this boot, including a step recorded since. Raises: OSError."""
        noted = self._noted()
        if noted is None or noted.boot_id != boot_id():
            return None
        if noted.step is not None and recorded(*noted.step):
            return noted.offset_s + noted.step[1]
        return noted.offset_s

    def _noted(self) -> "_Noted | None":
        """Raises: OSError."""
        if self._place is None:
            return None
        try:
            with open_regular(self._place) as file:
                return _Noted.of(json.loads(file.read()))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError):
            notify_unknown(self._place)
            return None

    def _keep(self, step: dict[str, float] | None = None) -> None:
        """Raises: OSError."""
        if self._place is not None:
            noted = {"boot_id": boot_id(), "offset_s": self._offset_s, "step": step}
            write_atomic(self._place, json.dumps(noted).encode())


class _Noted(NamedTuple):
    boot_id: str
    offset_s: float
    step: tuple[int, float] | None  # begun: the sequence number it follows, and its size

    @classmethod
    def of(cls, told: dict[str, Any]) -> "_Noted":
        """Raises: ValueError, KeyError, TypeError for content that this class did not write."""
        step = told.get("step")
        begun = None if step is None else (int(step["after"]), float(step["by_s"]))
        return cls(str(told["boot_id"]), float(told["offset_s"]), begun)


def _steady_s() -> float:
    """Seconds since boot, including time in which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def date_and_steady_s() -> tuple[float, float]:
    """The machine's date and the time since boot, at one moment. Retries if the process slept between the readings."""
    while True:
        before_s = _steady_s()
        wall_s = time.time()
        after_s = _steady_s()
        if after_s - before_s < _TORN_S:
            return wall_s, after_s
