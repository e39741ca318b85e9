"""The name of a job's one tracking run, the same for the agent, the server and every tracker."""

import hashlib

TAG_RUN = "trainmaster.run"  # on a run in a tracker: whose it is


def run_id(server: str, job: str) -> str:
    """32 hexadecimal digits, as MLflow's own run ids have: of one job of one server, however many attempts it has.

    `server` tells servers apart that mirror into one tracker (`compose.server_id`).
    """
    return hashlib.sha256(f"{server}/{job}".encode()).hexdigest()[:32]


def experiment_id(experiment: str) -> str:
    """Digits, as MLflow's own ids of experiments are."""
    return str(int(hashlib.sha256(experiment.encode()).hexdigest()[:13], 16) + 1)
