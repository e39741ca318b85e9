"""The kinds of stored bytes of a job, which a person or the retention may remove one by one."""

from enum import StrEnum


class StorageKind(StrEnum):
    """A kind of stored bytes. The record of a job is none of them: it stays."""

    WORK = "work"  # its work directories, and the files set aside beside them
    LOGS = "logs"  # the directories of its attempts: output of the ranks, files of the agents
    CHECKPOINTS = "checkpoints"  # all of them, including the last good one
    ARTIFACTS = "artifacts"
    METRICS = "metrics"  # the points of its curves; the last value of each stays
    ASIDE = "aside"  # files set aside before its last attempts; removable while the job is live
    EARLY_LOGS = "early-logs"  # output of earlier attempts; removable while the job is live


OF_ENDED = (StorageKind.WORK, StorageKind.LOGS, StorageKind.CHECKPOINTS, StorageKind.ARTIFACTS, StorageKind.METRICS)
OF_ANY = (StorageKind.ASIDE, StorageKind.EARLY_LOGS)
ON_NODES = (StorageKind.WORK, StorageKind.LOGS, *OF_ANY)  # stored by the engine
ATTEMPTS_KEPT = 3  # newest attempts, whose bytes stay while the job is not over
