"""The id of a job's tracking run, the same for the agent, the server and every tracker."""

import hashlib

TAG_RUN = "trainmaster.run"  # tag of a run in a tracker: the id of its job and server


def run_id(server: str, job: str) -> str:
    """32 hexadecimal digits, like MLflow's own run ids. One id per job of a server, for all its attempts.

    `server` distinguishes servers that mirror into the same tracker (`compose.run_server`).
    """
    return hashlib.sha256(f"{server}/{job}".encode()).hexdigest()[:32]


def experiment_id(experiment: str) -> str:
    """A decimal number, like MLflow's own experiment ids."""
    return str(int(hashlib.sha256(experiment.encode()).hexdigest()[:13], 16) + 1)
