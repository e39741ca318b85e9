"""`learned`: the job that most likely ends soon comes first, by the run times of similar jobs."""

from typing import Any, NamedTuple

import numpy as np

from trainmaster.scheduling.model.jobs import Past
from trainmaster.scheduling.model.request import width_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.placement.strategies import pack
from trainmaster.scheduling.policies.policy import Policy, no_reservations
from trainmaster.scheduling.prediction.hazards import Hazards, Life, urgency
from trainmaster.scheduling.preemption.victims import Overtaking, after_a_while
from trainmaster.scheduling.state.figures import Figures
from trainmaster.scheduling.state.order import Keys, first


class Study(NamedTuple):
    """What the order reads."""

    hazards: Hazards
    now_s: float


def learned(study: Study, jobs: Figures) -> Keys:
    """The best chance to end soon, by the run times of similar jobs."""
    lives = zip(jobs.seq.tolist(), jobs.width.tolist(), jobs.attained_s.tolist(), strict=True)
    indices = [study.hazards.index(int(seq), width, attained_s) for seq, width, attained_s in lives]
    return *first(study.now_s, jobs), urgency(np.array(indices), jobs.width, jobs.running)


def learn(snapshot: Snapshot, kept: dict[str, Any]) -> Study:
    """Learn from the run times of all jobs so far."""
    runs = (run.at(snapshot.now_s) for run in snapshot.running.values())
    living = [Life(task.seq, width_of(task.kind.ask), task.attained_s, False) for task in (*snapshot.waiting.values(), *runs)]
    hazards, seen = kept.get("hazards"), kept.get("seen", 0)
    if hazards is None or not hazards.follow(living, [_life(past) for past in snapshot.ended[seen:]]):
        hazards = kept["hazards"] = Hazards()
        hazards.follow(living, [_life(past) for past in snapshot.ended])
    kept["seen"] = len(snapshot.ended)
    return Study(hazards, snapshot.now_s)


def _life(past: Past) -> Life:
    return Life(past.seq, width_of(past.kind.ask), past.ran_s, True)


LEARNED = Policy("learned", learned, pack, no_reservations, Overtaking(after_a_while, learned), beat_s=1200.0, study=learn)
