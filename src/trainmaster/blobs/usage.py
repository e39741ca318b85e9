"""What of a store is used, by whom and for what."""

import time
from dataclasses import dataclass

from trainmaster.blobs.garbage_collection import GRACE_S, Records, reference_checker
from trainmaster.ports.blobs import Blobs


@dataclass(slots=True)
class Use:
    """What one project keeps of one kind."""

    project: str
    kind: str
    blobs: int = 0
    bytes: int = 0
    orphaned_bytes: int = 0  # nothing refers to it: gc removes it once it is older than the grace
    spare_bytes: int = 0  # checkpoints of jobs that are over, but their last good ones


def use(blobs: Blobs, records: Records) -> list[Use]:
    """Everything in the store, by project and kind."""
    found: dict[tuple[str, str], Use] = {}
    checker = reference_checker(blobs, records, time.time() - GRACE_S)
    for stored in blobs.walk(""):
        place = checker.place(stored.name)
        one = found.setdefault((place.project, place.kind), Use(place.project, place.kind))
        one.blobs += 1
        one.bytes += stored.bytes
        one.orphaned_bytes += 0 if place.referenced else stored.bytes
        one.spare_bytes += stored.bytes if place.spare else 0
    return [found[key] for key in sorted(found)]
