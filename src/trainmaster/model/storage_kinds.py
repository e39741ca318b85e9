"""What of a job takes room on disks, as kinds that a person or the retention may give up one by one."""

from enum import StrEnum


class StorageKind(StrEnum):
    """A kind of bytes. The record of a job is none of them: it stays."""

    WORK = "work"  # its work directories, with what was set aside beside them
    LOGS = "logs"  # the directories of its attempts: ranks' output, agents' own files
    CHECKPOINTS = "checkpoints"  # all of them, the last good one included
    ARTIFACTS = "artifacts"
    METRICS = "metrics"  # the points of its curves; the last value of each stays
    ASIDE = "aside"  # of a job that may not be over: what was set aside before its last attempts
    EARLY_LOGS = "early-logs"  # likewise: what the ranks of earlier attempts wrote


OF_ENDED = (StorageKind.WORK, StorageKind.LOGS, StorageKind.CHECKPOINTS, StorageKind.ARTIFACTS, StorageKind.METRICS)
OF_ANY = (StorageKind.ASIDE, StorageKind.EARLY_LOGS)
ON_NODES = (StorageKind.WORK, StorageKind.LOGS, *OF_ANY)  # the engine has them
ATTEMPTS_KEPT = 3  # the newest ones, of which nothing is given up while the job may go on
