"""Disk usage of a store by project and kind of blob."""

import time
from dataclasses import dataclass

from trainmaster.blobs.garbage_collection import GRACE_S, Records, reference_checker
from trainmaster.ports.blobs import Blobs


@dataclass(slots=True)
class Use:
    """The usage of one project and kind."""

    project: str
    kind: str
    blobs: int = 0
    bytes: int = 0
    orphaned_bytes: int = 0  # unreferenced: gc removes them after the grace period
    spare_bytes: int = 0  # checkpoints of ended jobs, without their last good ones


def use(blobs: Blobs, records: Records) -> list[Use]:
    """Usage of the whole store, by project and kind."""
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
