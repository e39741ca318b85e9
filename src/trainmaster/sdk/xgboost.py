"""XGBoost: `xgboost.train(…, num_boost_round=rounds - done, xgb_model=booster, callbacks=[Callback(every=50)])`.

`booster, done = resumed()` gives what was put back. XGBoost draws the rows and columns of `subsample` and `colsample_*`
from a generator that it does not save: with those a resumed model is as good, and not the same.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from xgboost import Booster
from xgboost.callback import TrainingCallback

from trainmaster.sdk.cadence import Cadence, heed_term
from trainmaster.sdk.channel import report
from trainmaster.sdk.checkpoints import checkpoint
from trainmaster.sdk.context import rank, resume_dir

_FILE = "model.ubj"


def resumed() -> Tuple[Optional[Booster], int]:
    """The model that was put back and how many rounds it has had; (None, 0) at a beginning and outside a job."""
    directory = resume_dir()
    if directory is None:
        return None, 0
    booster = Booster(model_file=str(directory / _FILE))
    return booster, booster.num_boosted_rounds()


class Callback(TrainingCallback):
    """Reports the evaluations as `data/metric`, saves, and ends the training when it is asked to.

    `every`: save after each so many rounds; None: only when asked for, and before a stop.
    """

    def __init__(self, every: Optional[int] = None) -> None:
        super().__init__()
        self._cadence = Cadence(every)

    def before_training(self, model: Booster) -> Booster:
        """Let the word to stop be obeyed at a round's end."""
        heed_term()
        return model

    def after_iteration(self, model: Booster, epoch: int, evals_log: Dict[str, Dict[str, Any]]) -> bool:
        """After a round; true ends the training."""
        step = model.num_boosted_rounds()
        if rank() == 0:
            latest = {f"{data}/{name}": log[-1] for data, logs in evals_log.items() for name, log in logs.items()}
            report(step=step, **{name: value[0] if isinstance(value, tuple) else value for name, value in latest.items()})
        order = self._cadence.ask(step)
        if order.save:
            with checkpoint(step) as directory:
                model.save_model(str(directory / _FILE))
        return order.stop
