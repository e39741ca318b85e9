"""What the attempts of a job saw of its data: what was recorded at the submit holds only if they all found it so. Pure."""

from collections.abc import Iterable, Sequence

from trainmaster.model.job import Attempt, Job, NodePhase
from trainmaster.wire.data import CHANGED, SAME, UNKNOWN

NO_FILES = "its entries other than files (such as empty directories)"  # older versions did not look at them
_NAMED_MAX = 3


def doubted(job: Job, attempts: Iterable[Attempt]) -> dict[str, str]:
    """Data that an attempt may have read in another version than the recorded one -> why, as a clause.

    An attempt without a statement says nothing: its agent was killed before it had looked, the job was over before, or the
    agent is of an older version.
    """
    begun, found = [one for one in attempts if _may_have_read(one)], {}
    for version in job.data:
        if not version.stamp:  # then it has no digest of its bytes, either
            continue
        seen = {one.number: one.data_seen.get(version.name, UNKNOWN) for one in begun}
        changed = [number for number, result in seen.items() if result == CHANGED]
        unknown = [number for number, result in seen.items() if result not in (SAME, CHANGED)]
        if changed:
            found[version.name] = f"it had changed since the submit when {_named(changed)} began"
        elif unknown:
            found[version.name] = f"it is not known whether it was as at the submit when {_named(unknown)} began"
    return found


def _may_have_read(attempt: Attempt) -> bool:
    """Whether its ranks ran, or may have: nobody knows what an agent did that was lost before it told."""
    ended = [node.outcome for node in attempt.nodes if node.outcome is not None]
    return any(node.phase is NodePhase.RUNNING for node in attempt.nodes) or any(one.ranks or one.lost for one in ended)


def _named(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"attempt {numbers[0]}"
    more = len(numbers) - _NAMED_MAX
    told = [*map(str, numbers[:_NAMED_MAX]), *([f"{more} more"] if more > 0 else [])]
    return f"attempts {', '.join(told[:-1])} and {told[-1]}"
