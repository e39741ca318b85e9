"""Start conditions: what a job waits for before it joins the queue: other jobs, a time, its turn."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum


class When(StrEnum):
    """How another job must end."""

    OK = "ok"  # it succeeds
    ANY = "any"  # it ends
    FAILED = "failed"  # it fails; a cancelled job has not failed


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another job that must end first."""

    job: str
    when: When = When.OK


@dataclass(frozen=True, slots=True)
class StartConditions:
    """All of them must hold. `array` names an array, of whose jobs at most `at_most` are active at once; 0: no limit.

    `max_running`: fewer jobs of its owner than this run, or were let into the queue by this condition; 0: no limit.
    """

    after: tuple[Dependency, ...] = ()
    begin_s: float | None = None  # a date, in seconds since the epoch
    array: str = ""
    at_most: int = 0
    relative: bool = False  # `begin_s` was given as a duration from the submit: it moves with a step of the machine's clock
    max_running: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to wait for."""
        return bool(self.after or self.begin_s is not None or self.takes_turns)

    @property
    def takes_turns(self) -> bool:
        """Whether it waits for other jobs to make place. A turn that it had may be taken by another one."""
        return bool(self.at_most or self.max_running)


_ENDS = {When.OK: "succeed", When.ANY: "end", When.FAILED: "fail"}


def waiting_text(conditions: StartConditions, owner: str) -> str:
    """`waits for digits-3 to succeed; begins at 2026-11-25 22:00:00 UTC`. `owner`: of the job that waits."""
    return "; ".join(_parts(conditions, f"{owner}'s" if owner else "its owner's"))


def _parts(conditions: StartConditions, whose: str) -> Iterator[str]:
    if conditions.after:
        yield "waits for " + " and ".join(f"{one.job} to {_ENDS[one.when]}" for one in conditions.after)
    if conditions.begin_s is not None:
        yield f"begins at {datetime.fromtimestamp(conditions.begin_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if conditions.at_most:
        several = f"{conditions.at_most} jobs of its array are" if conditions.at_most > 1 else "1 job of its array is"
        yield f"waits for its turn: at most {several} active at once"
    if conditions.max_running:
        few = f"fewer than {conditions.max_running} of {whose} jobs run or are"
        few = few if conditions.max_running > 1 else f"none of {whose} jobs runs or is"
        yield f"waits until {few} about to (max_running: {conditions.max_running})"
