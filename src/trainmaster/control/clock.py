"""The clock that decisions run by, and how a step of the machine's clock is told from the passing of time."""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster.control.clock_steps import tell_unknown
from trainmaster.home import open_regular, write_atomic
from trainmaster.wire.processes import boot_id

STEP_S = 5.0  # less is no step: it is followed at the next start
_TORN_S = 0.1  # between two readings that belong together


class SteadyClock:
    """`ports.clock.Clock`: dates as the machine's clock had them, moved on by the time since boot, suspended or not.

    A step of the machine's clock changes nothing until it is on record: `stepped_s` tells of it, `begin` notes that it is
    about to be recorded, `follow` that it was. `place` keeps how dates and the time since boot belong together, so that a
    start on the same boot knows a step exactly. On another boot only a clock behind the last recorded date (`last_s`) shows
    that there was one. `recorded` says whether the event behind a number is a step by so much: whether what was begun was
    recorded before the process died.
    Raises: OSError where `place` cannot be read; what `recorded` raises.
    """

    def __init__(
        self,
        last_s: float,
        place: Path | None = None,
        recorded: Callable[[int, float], bool] = lambda seq, by_s: False,
        readings: Callable[[], tuple[float, float]] | None = None,
    ) -> None:
        self._place = place
        self._readings = readings or _readings
        wall_s, steady_s = self._readings()
        kept_s = self._kept(recorded)
        behind = last_s - wall_s >= STEP_S
        if kept_s is not None and abs(wall_s - steady_s - kept_s) >= STEP_S:
            self._offset_s = max(kept_s, last_s - steady_s)
        else:
            self._offset_s = (last_s if behind else max(wall_s, last_s)) - steady_s
        with contextlib.suppress(OSError):  # a full disk: the next start knows less
            self._keep()

    def now_s(self) -> float:
        """Seconds since the epoch; never backwards but by a step that was followed."""
        return self._offset_s + self._readings()[1]

    def stepped_s(self) -> float:
        """By how much the machine's clock was set and is not followed yet, in whole seconds; 0: it was not."""
        wall_s, steady_s = self._readings()
        by_s = wall_s - steady_s - self._offset_s
        return 0.0 if abs(by_s) < STEP_S else float(round(by_s))

    def begin(self, by_s: float, after: int) -> None:
        """A step is about to be recorded as the first event behind number `after`. Raises: OSError."""
        self._keep({"by_s": by_s, "after": after})

    def follow(self, by_s: float) -> None:
        """The step is on record: `now_s` moves by it."""
        self._offset_s += by_s
        with contextlib.suppress(OSError):  # what was begun is kept, which says the same together with the record
            self._keep()

    def _kept(self, recorded: Callable[[int, float], bool]) -> float | None:
        """What was noted on this boot, and on record since. Raises: OSError."""
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
            tell_unknown(self._place)
            return None

    def _keep(self, step: dict[str, float] | None = None) -> None:
        """Raises: OSError."""
        if self._place is not None:
            noted = {"boot_id": boot_id(), "offset_s": self._offset_s, "step": step}
            write_atomic(self._place, json.dumps(noted).encode())


class _Noted(NamedTuple):
    boot_id: str
    offset_s: float
    step: tuple[int, float] | None  # begun: behind which event, and by how much

    @classmethod
    def of(cls, told: dict[str, Any]) -> "_Noted":
        """Raises: ValueError, KeyError, TypeError for what we did not write."""
        step = told.get("step")
        begun = None if step is None else (int(step["after"]), float(step["by_s"]))
        return cls(str(told["boot_id"]), float(told["offset_s"]), begun)


def _steady_s() -> float:
    """Seconds since boot, those in which the machine was suspended included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _readings() -> tuple[float, float]:
    """Wall clock and time since boot, of one moment: this process may have slept between the two."""
    while True:
        before_s = _steady_s()
        wall_s = time.time()
        after_s = _steady_s()
        if after_s - before_s < _TORN_S:
            return wall_s, after_s
