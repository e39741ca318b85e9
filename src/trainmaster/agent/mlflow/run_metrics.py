"""The metrics of one MLflow run. No I/O."""

from __future__ import annotations

import math

from trainmaster.agent.mlflow.fields import out
from trainmaster.agent.mlflow.histories import Histories
from trainmaster.wire.names import SYSTEM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.mlflow.fields import Body
    from trainmaster.agent.mlflow.histories import Point


class RunMetrics:
    """The logged values. Values without a step are numbered here, from `base_step` on: the step of the restored checkpoint."""

    def __init__(self, base_step: int) -> None:
        self._base_step = base_step
        self._latest: dict[str, Point] = {}
        self.histories = Histories()
        self._logged: dict[tuple[str, bool], Point] = {}  # the last point with a step, and without
        self._step = 0  # the highest logged step of the training
        self._stepless: dict[str, int] = {}  # metric -> values logged at step 0, which may mean "no step"
        self._stepped: set[str] = set()  # metrics that were logged with another step: of them, 0 is a step
        self._origins: dict[str, int] = {}  # metric -> the number of its first value without a step

    def log(self, name: str, given: Point) -> Optional[Point]:
        """Record a point. Returns it with the step that it got; None if it was logged before."""
        step, time_ms, value = given
        sampled = name.startswith(SYSTEM)  # by MLflow, which counts its samples from 0
        if time_ms and given == self._logged.get((name, step != 0)):
            return None  # autolog logs it again for the model; MLflow stores such a point once
        self._logged[name, step != 0] = given
        if step != 0:
            self._stepped.add(name)
        if step == 0 and name not in self._stepped:  # perhaps no step was given: number its values, from the resumed step on
            said = self._stepless.get(name, 0)
            self._stepless[name] = said + 1
            resumed = max(self._base_step, self._step) if self._base_step and not sampled else 0
            step = said + self._origins.setdefault(name, resumed)
        elif step > self._step and not sampled:
            self._step = step
        before, point = self._latest.get(name), (step, time_ms, value)
        self.histories.add(name, point)
        if before is None or _rank(point) >= _rank(before):
            self._latest[name] = point
        return point

    def shown(self) -> list[Body]:
        """The latest value of each metric, in MLflow's format."""
        return [shown_point(name, point) for name, point in self._latest.items()]


def shown_point(name: str, point: Point) -> Body:
    """A value of a metric in MLflow's format."""
    step, time_ms, value = point
    return {"key": name, "value": out(value), "timestamp": time_ms, "step": step}


def _rank(point: Point) -> Point:
    """Of several values of a metric, MLflow shows the one of the highest step, then time, then value."""
    step, time_ms, value = point
    return step, time_ms, value if value == value else -math.inf
