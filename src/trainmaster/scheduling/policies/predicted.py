"""`predicted`: the job with the shortest predicted run time comes first."""

import numpy as np

from trainmaster.model.cluster import DAY_S
from trainmaster.scheduling.placement.strategies import pack
from trainmaster.scheduling.policies.policy import Policy, one_reservation
from trainmaster.scheduling.prediction.predictor import Foresight, foresee
from trainmaster.scheduling.state.figures import Figures
from trainmaster.scheduling.state.order import Keys, aged, first


def predicted(view: Foresight, jobs: Figures) -> Keys:
    """The earliest predicted end; a job that has waited long compared with its run time comes first."""
    left_s = np.array([view.left_s(task) for task in jobs.tasks])
    return *first(view.now_s, jobs), aged(left_s, view.now_s - jobs.since_s, DAY_S)


PREDICTED = Policy("predicted", predicted, pack, one_reservation, beat_s=600.0, study=foresee, trusts=False)
