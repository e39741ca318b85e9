"""Planted faults: breaks a law in the server's processes from outside, to see that the witnesses notice.

Python imports this by its name at start when its directory is on PYTHONPATH; PLANTED_FAULT names the fault.
"""

import importlib.machinery
import os
import random
import sys
import threading
from dataclasses import replace


def acknowledged_before_commit(module):
    """The inbox answers first and commits a moment later."""
    store, accept = module.SqlInbox, module.SqlInbox.accept
    numbers = {}

    def early(self, rows):
        if any(row.experiment is None for row in rows):
            return accept(self, rows)
        ids = []
        for row in rows:
            numbers[row.experiment] = numbers.get(row.experiment, 0) + 1
            ids.append(f"{row.experiment}-{numbers[row.experiment]}")
        threading.Timer(0.2, accept, (self, rows)).start()
        return ids

    store.accept = early


def submit_without_key(module):
    """The engine starts an agent under a name nobody knows, as if it had been given no key."""
    engine, submit = module.LocalEngine, module.LocalEngine.submit

    def anonymous(self, submission):
        number = random.randrange(1000, 10**6)
        job = replace(submission.job, attempt=replace(submission.job.attempt, number=number))
        submit(self, replace(submission, key=submission.key._replace(attempt=number), job=job))

    engine.submit = anonymous


FAULTS = {
    "acknowledged_before_commit": ("trainmaster.store.inbox", acknowledged_before_commit),
    "submit_without_key": ("trainmaster.engines.local.engine", submit_without_key),
}


class Planter:
    """Finds the module to be broken as Python would, and breaks it once it is loaded."""

    def __init__(self, name, plant):
        self.name, self.plant = name, plant

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            self.plant(module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("PLANTED_FAULT"):
    sys.meta_path.insert(0, Planter(*FAULTS[os.environ["PLANTED_FAULT"]]))
