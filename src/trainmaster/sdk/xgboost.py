"""XGBoost: `xgboost.train(…, num_boost_round=rounds - done, xgb_model=booster, callbacks=[Callback(every=50)])`.

`booster, done = resumed()` returns the restored model. XGBoost does not save the random generator of `subsample` and
`colsample_*`. If a job uses these, a resumed model is equally good but not identical.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from xgboost import Booster
from xgboost.callback import TrainingCallback

from trainmaster.sdk.cadence import Cadence, heed_term
from trainmaster.sdk.channel import report_values, tell_restored
from trainmaster.sdk.checkpoints import checkpoint
from trainmaster.sdk.context import rank, resume_dir

_FILE = "model.ubj"


def resumed() -> Tuple[Optional[Booster], int]:
    """The restored model and its number of rounds; (None, 0) on a first start and outside a job."""
    directory = resume_dir()
    if directory is None:
        return None, 0
    booster = Booster(model_file=str(directory / _FILE))
    tell_restored(loaded=True)
    return booster, booster.num_boosted_rounds()


class Callback(TrainingCallback):
    """Reports the evaluations as `data/metric`, saves checkpoints, and ends the training on request.

    `every`: save every so many rounds; None: only on request and before a stop.
    """

    def __init__(self, every: Optional[int] = None) -> None:
        super().__init__()
        self._cadence = Cadence(every)

    def before_training(self, model: Booster) -> Booster:
        """From now on, obey the stop flag at the end of a round."""
        heed_term()
        return model

    def after_iteration(self, model: Booster, epoch: int, evals_log: Dict[str, Dict[str, Any]]) -> bool:
        """Called after each round; true ends the training."""
        step = model.num_boosted_rounds()
        if rank() == 0:
            latest = {f"{data}/{name}": log[-1] for data, logs in evals_log.items() for name, log in logs.items()}
            report_values(step, {name: log[0] if isinstance(log, tuple) else log for name, log in latest.items()})
        order = self._cadence.ask(step)
        if order.save:
            with checkpoint(step) as directory:
                model.save_model(str(directory / _FILE))
        return order.stop
