"""The disk reserve: who may use it, who is told, and that a cancel is not refused because of concurrent submits."""

import asyncio
import os
from pathlib import Path

import pytest

from trainmaster.control.disk_watch import DiskWatch
from trainmaster.control.workers import Inline
from trainmaster.errors import DiskFullError
from trainmaster.home import Home
from trainmaster.reserve import SLICE_BYTES, Reserve, Room, persistently
from trainmaster.server.runtime.group_commit import GroupWriter
from trainmaster.troubles import Register

FULL = DiskFullError("no space left")


class Disk(Reserve):
    """A disk reserve whose free space is set by a test."""

    room: Room | OSError = Room(100, 100, 100)

    def keep(self) -> Room:
        if isinstance(self.room, OSError):
            raise self.room
        return self.room


@pytest.mark.parametrize(
    ("room", "said"),
    [
        (Room(10**9, 16 << 20, 16 << 20), None),
        (Room(9 << 20, 16 << 20, 16 << 20), "is nearly full: 9 MiB free"),
        (Room(0, 16 << 20, 16 << 20), "is full: 0 bytes free"),
        (Room(9 << 20, 15 << 20, 16 << 20), "is full: 9 MiB free"),
        (Room(9, 0, 0), None),  # no reserve is requested
        (Room(10**9, 16 << 20, 16 << 20, 10**6), None),
        (Room(10**9, 16 << 20, 16 << 20, 900), "is nearly full: only 900 more files can be created there"),
        (Room(10**9, 16 << 20, 16 << 20, 0), "is full: only 0 more files can be created there"),
        (OSError(5, "Input/output error"), "cannot be used: [Errno 5] Input/output error"),
    ],
)
def test_a_disk_that_is_short_of_room_is_told_and_taken_back(room: Room | OSError, said: str | None, tmp_path: Path) -> None:
    """R18: `tm ps` and `tm why` show the notices of the register."""
    register, disk = Register(), Disk(Home(tmp_path))
    keeper = DiskWatch(disk, Inline(), "/home", register)
    disk.room = room
    keeper.check()
    found = [one.text for one in register.said()]
    assert [text.partition(";")[0] for text in found] == ([] if said is None else [f"the disk of /home {said}"])
    disk.room = Room(10**9, 0, 0)
    keeper.check()
    assert register.said() == []


def test_it_is_released_in_slices_and_made_whole_again(tmp_path: Path) -> None:
    reserve = Reserve(Home(tmp_path), 2 * SLICE_BYTES + 1)
    assert not reserve.release()
    assert not reserve.keep().short
    assert os.stat(tmp_path / "reserve").st_blocks * 512 >= 2 * SLICE_BYTES  # it does take the room
    left = [(reserve.release(), (tmp_path / "reserve").stat().st_size) for _ in range(4)]
    assert left == [(True, SLICE_BYTES + 1), (True, 1), (True, 0), (False, 0)]
    assert reserve.keep().reserved_bytes == 2 * SLICE_BYTES + 1
    assert Reserve(Home(tmp_path), 7).keep().reserved_bytes == 7


def test_what_is_asked_again_is_asked_until_there_is_room_or_no_more_reserve() -> None:
    slices, asked = [1, 1], [0]

    def work() -> str:
        asked[0] += 1
        if asked[0] < 3:
            raise FULL
        return "done"

    assert persistently(work, lambda: bool(slices and slices.pop())) == "done"
    asked[0] = 0
    with pytest.raises(DiskFullError):
        persistently(work, lambda: False)
    assert asked[0] == 1


def test_a_cancel_is_not_refused_for_the_submits_of_its_group() -> None:
    """R18: waiting commands share one transaction; on a full disk each has its own."""

    def write(items: list[str]) -> list[str]:
        if "submit" in items:
            raise FULL
        return [f"{item} done" for item in items]

    async def both() -> list[object]:
        writer: GroupWriter[str, str] = GroupWriter(write, lambda: None)
        try:
            return await asyncio.gather(*(writer.put([item]) for item in ("submit", "cancel")), return_exceptions=True)
        finally:
            writer.close()

    assert asyncio.run(both()) == [FULL, ["cancel done"]]
