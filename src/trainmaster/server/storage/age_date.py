"""The date by which the retention measures ages. A clock that jumps ahead makes no data old.

The dates of ended jobs do not follow a step of the clock, so a date 200 days ahead would remove all that they left.
"""

import contextlib
import json
from collections.abc import Callable
from typing import NamedTuple

from trainmaster import troubles
from trainmaster.control.clock import date_and_steady_s
from trainmaster.home import Home, open_regular, write_atomic
from trainmaster.model.cluster import DAY_S, WEEK_S
from trainmaster.wire.processes import boot_id

_TOPIC = "retention"


class _Noted(NamedTuple):
    """A date that was believed, and the time since boot then.

    `doubted_s`: since when the machine's date is doubted. `lost`: the note was damaged, so no date was known to believe.
    """

    boot_id: str
    date_s: float
    steady_s: float
    doubted_s: float | None
    lost: bool = False


class AgeDate:
    """Follows the machine's date, and notes it in the home. Not thread-safe.

    Within a boot it advances by the time that passed: a date that is a day ahead of that is not followed until the next boot.
    The time between two boots is not known: a date more than a week after the noted one is followed a day later, or at the
    next boot.
    """

    def __init__(self, home: Home, readings: Callable[[], tuple[float, float]] = date_and_steady_s) -> None:
        self._place, self._readings = home.root / "retention.json", readings

    def now_s(self) -> float:
        """Seconds since the epoch; never after the machine's date. Raises: OSError."""
        wall_s, steady_s = self._readings()
        new = self._followed(self._noted(), wall_s, steady_s)
        with contextlib.suppress(OSError):  # a full disk is what the retention is for; the older note serves
            write_atomic(self._place, json.dumps(new._asdict()).encode())
        ahead_s = wall_s - new.date_s
        if ahead_s > DAY_S and new.lost:
            troubles.say(_TOPIC, f"{self._place} was damaged: for a day, no data is removed by age, nor to free a full disk")
        elif ahead_s > DAY_S:
            told = f"the machine's date is {ahead_s / DAY_S:.0f} days ahead of what the server knows to have passed"
            troubles.say(_TOPIC, f"{told}: data is not removed by age; is the date right?")
        else:
            troubles.clear(_TOPIC)
        return min(wall_s, new.date_s)

    def _followed(self, noted: _Noted | None, wall_s: float, steady_s: float) -> _Noted:
        boot = boot_id()
        believed = _Noted(boot, wall_s, steady_s, None)
        if noted is None:
            return believed
        date_s, doubted_s = noted.date_s, noted.doubted_s
        if noted.boot_id == boot and noted.steady_s <= steady_s:
            date_s += steady_s - noted.steady_s
            over = doubted_s is not None and steady_s - doubted_s > DAY_S
            near = wall_s <= date_s + DAY_S
        else:
            over, doubted_s = doubted_s is not None, steady_s
            near = wall_s <= date_s + WEEK_S
        if over or near:
            return believed._replace(date_s=max(wall_s, date_s))
        return _Noted(boot, date_s, steady_s, doubted_s, noted.lost)

    def _noted(self) -> _Noted | None:
        try:
            with open_regular(self._place) as file:
                told = json.loads(file.read())
            doubted_s = told["doubted_s"]
            doubted_s = None if doubted_s is None else float(doubted_s)
            lost = told.get("lost") is True  # earlier versions did not say
            return _Noted(str(told["boot_id"]), float(told["date_s"]), float(told["steady_s"]), doubted_s, lost)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError):  # the date is doubted, and believed a day later
            return _Noted("", 0.0, 0.0, None, lost=True)
