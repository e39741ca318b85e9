"""The exit code of a command that waits for jobs."""

import click

from trainmaster.client.api import Row
from trainmaster.errors import JOB_FAILED_EXIT

passed_on = click.option(
    "--exit-code", "passed_on", is_flag=True, help="Exit with the program's exit code (128 + N for signal N) instead of 10."
)


def program_code(job: Row) -> int:
    """The program's exit code; 128 + its number for a signal, as in a shell; 10 if a job failed without either.

    `job`: everything about an ended job. It is 0 only for a job that succeeded.
    """
    if job["state"] == "succeeded":
        return 0
    failure = job["failure"] or {}
    if failure.get("exit_code"):
        return int(failure["exit_code"])
    return 128 + int(failure["signal"]) if failure.get("signal") else JOB_FAILED_EXIT
