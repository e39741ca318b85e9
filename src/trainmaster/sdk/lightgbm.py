"""LightGBM: `lightgbm.train(…, num_boost_round=rounds - done, init_model=model, callbacks=[Callback(every=50)])`.

`model, done = resumed()` returns the restored model. LightGBM does not save the random generator for bagging rows and
columns. If a job uses these, a resumed model is equally good but not identical.
"""

from __future__ import annotations

from typing import Optional, Tuple

from lightgbm.callback import CallbackEnv, EarlyStopException

from trainmaster.sdk.cadence import Cadence, heed_term
from trainmaster.sdk.channel import report_values
from trainmaster.sdk.checkpoints import checkpoint
from trainmaster.sdk.context import rank, resume_dir

_FILE = "model-{step}.txt"


def resumed() -> Tuple[Optional[str], int]:
    """The file of the restored model and its number of rounds; (None, 0) on a first start."""
    directory = resume_dir()
    if directory is None:
        return None, 0
    (path,) = directory.glob(_FILE.format(step="*"))
    return str(path), int(path.stem.split("-")[1])


class Callback:
    """Reports the evaluations as `data/metric`, saves checkpoints, and ends the training on request.

    `every`: save every so many rounds; None: only on request and before a stop.
    """

    before_iteration = False

    def __init__(self, every: Optional[int] = None) -> None:
        self.order = 40  # after LightGBM's own callbacks, including early stopping
        self._cadence = Cadence(every)
        heed_term()

    def __call__(self, env: CallbackEnv) -> None:
        """Called after each round. Raises: EarlyStopException to end the training, as LightGBM expects."""
        step = env.iteration + 1
        results = env.evaluation_result_list or []
        if rank() == 0 and results:
            report_values(step, {f"{result[0]}/{result[1]}": result[2] for result in results})
        order = self._cadence.ask(step)
        if order.save:
            with checkpoint(step) as directory:
                env.model.save_model(directory / _FILE.format(step=step))
        if order.stop:
            raise EarlyStopException(env.iteration, results)
