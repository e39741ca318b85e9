"""What a verification of the store says of files that are gone, damaged or cannot be read now, and what `tm doctor` says then."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from trainmaster.blobs.cache import Cache
from trainmaster.blobs.cached_store import CachedBlobs
from trainmaster.blobs.fs import FsBlobs
from trainmaster.blobs.garbage_collection import Records
from trainmaster.blobs.verification import Verification, verify
from trainmaster.blobs.verifying import Damage
from trainmaster.model.checkpoints import Artifact, Checkpoint, Part
from trainmaster.model.job import Attempt, Job
from trainmaster.testing import builders
from trainmaster.troubles import Register
from trainmaster.wire.names import MANIFEST

SHA = hashlib.sha256(b"weights").hexdigest()
ROOT = "checkpoints/train-1/c1/n0"


class OnRecord:
    """One job, with its artifacts."""

    def __init__(self, *jobs: Job, artifacts: tuple[Artifact, ...] = ()) -> None:
        self.known, self.kept = list(jobs), artifacts

    def jobs(self) -> Iterator[Job]:
        yield from list(self.known)

    def artifacts(self, job: str) -> tuple[Artifact, ...]:
        return self.kept

    def attempts(self, job: str) -> tuple[Attempt, ...]:
        return ()


def stored(root: Path) -> tuple[FsBlobs, Register, Job]:
    """A store with one whole checkpoint."""
    blobs, register = FsBlobs(root), Register()
    blobs.damage = Damage(register)
    manifest = json.dumps({"files": [{"path": "w.pt", "sha256": SHA}]}).encode()
    blobs.put(f"{ROOT}/w.pt", b"weights")
    blobs.put(f"{ROOT}/{MANIFEST}", manifest)
    part = Part(0, hashlib.sha256(manifest).hexdigest(), 1, 7)
    return blobs, register, replace(builders.job(), checkpoints=(Checkpoint("c1", 3, 1, (part,)),))


def verified(blobs: FsBlobs, records: OnRecord) -> Verification:
    found = Verification()
    verify(blobs, cast("Records", records), found, lambda name: False)
    return found


def told(register: Register) -> str:
    return "; ".join(one.text for one in register.said())


def test_a_checkpoint_whose_directory_is_gone_is_missing_and_not_in_doubt(tmp_path: Path) -> None:
    """It was "could not be read now, and may be whole: run it again", every time."""
    blobs, register, job = stored(tmp_path)
    assert verified(blobs, OnRecord(job)).damaged == []
    assert told(register) == ""
    blobs.delete_tree("checkpoints/train-1")
    found = verified(blobs, OnRecord(job))
    assert [(one.what, one.jobs) for one in found.damaged] == [(f"checkpoint c1 of step 3: {MANIFEST}: missing", ["train-1"])]
    assert (found.unreadable, found.checkpoints) == (0, {}), "it is not given up: its disk may not be mounted"
    assert told(register).startswith(f"missing: {ROOT}/{MANIFEST}; ")


def test_files_of_a_checkpoint_that_are_gone_or_damaged_are_troubles_of_the_server(tmp_path: Path) -> None:
    blobs, register, job = stored(tmp_path)
    blobs.put(f"{ROOT}/w.pt", b"other")
    found = verified(blobs, OnRecord(job))
    assert ([one.what for one in found.damaged], found.checkpoints) == (["checkpoint c1 of step 3: w.pt"], {"train-1": {"c1"}})
    assert told(register).startswith(f"damaged, by their digest: {ROOT}/w.pt; ")
    blobs.delete([f"{ROOT}/w.pt"])
    assert told(register) == ""
    found = verified(blobs, OnRecord(job))
    assert ([one.what for one in found.damaged], found.checkpoints) == (["checkpoint c1 of step 3: w.pt: missing"], {})
    blobs.put(f"{ROOT}/w.pt", b"weights")
    assert told(register) == ""


def test_a_checkpoint_that_is_removed_meanwhile_is_not_missing(tmp_path: Path) -> None:
    blobs, register, job = stored(tmp_path)
    blobs.delete_tree(ROOT)

    class Removed(OnRecord):
        reads = 0

        def jobs(self) -> Iterator[Job]:
            self.reads += 1
            yield job if self.reads < 2 else replace(job, checkpoints=())

    assert verified(blobs, Removed()).damaged == []
    assert told(register) == ""


def test_a_checkpoint_that_cannot_be_read_now_stays_in_doubt(tmp_path: Path) -> None:
    _, register, job = stored(tmp_path)

    class Failing(FsBlobs):
        def open(self, name: str) -> BinaryIO:
            raise OSError(5, "Input/output error")

    failing: Any = Failing(tmp_path)
    failing.damage = Damage(register)
    found = verified(failing, OnRecord(job))
    assert (found.damaged, found.checkpoints, told(register)) == ([], {}, "")
    assert found.unreadable > 0


def test_a_missing_artifact_is_a_trouble_of_the_server(tmp_path: Path) -> None:
    """`tm storage verify` listed it, and `tm doctor`, to which it refers, found no trouble."""
    blobs, register, job = stored(tmp_path)
    records = OnRecord(job, artifacts=(Artifact("out.pt", SHA, 7, 1),))
    assert [one.what for one in verified(blobs, records).damaged] == ["artifact out.pt: missing"]
    assert told(register).startswith(f"missing: artifacts/train-1/{SHA}; ")
    blobs.put(f"artifacts/train-1/{SHA}", b"weights")
    assert told(register) == ""


def test_a_file_of_a_checkpoint_that_was_moved_away_proves_nothing(tmp_path: Path) -> None:
    """Its checkpoint was recorded as damaged for good, although the file was put back."""
    blobs, register, job = stored(tmp_path)
    place = tmp_path / ROOT / "w.pt"
    place.rename(tmp_path / "elsewhere")
    assert verified(blobs, OnRecord(job)).checkpoints == {}
    assert told(register).startswith(f"missing: {ROOT}/w.pt; ")
    (tmp_path / "elsewhere").rename(place)
    assert (verified(blobs, OnRecord(job)).damaged, told(register)) == ([], "")


class FailsAt(FsBlobs):
    """Its opens with these numbers, from 1, fail."""

    def __init__(self, root: Path, register: Register, failing: set[int]) -> None:
        super().__init__(root)
        self.damage, self._failing, self._opens = Damage(register), failing, 0

    def open(self, name: str) -> BinaryIO:
        self._opens += 1
        if self._opens in self._failing:
            raise OSError(5, "Input/output error")
        return super().open(name)


CODE = f"code/objects/{SHA[:2]}/{SHA[2:]}"


def test_what_was_read_with_another_digest_stays_damaged_until_it_is_read_whole(tmp_path: Path) -> None:
    """An I/O error at the second look made it whole, and so did one at the first look when it was known before."""
    FsBlobs(tmp_path).put(CODE, b"other")
    register = Register()
    failing = FailsAt(tmp_path, register, {2, 3})
    for _ in range(2):
        found = verified(failing, OnRecord())
        assert (found.damaged, found.unreadable) == ([], 1)
        assert told(register).startswith(f"damaged, by their digest: {CODE}; ")
    assert [one.name for one in verified(failing, OnRecord()).damaged] == [CODE]
    (tmp_path / CODE).write_bytes(b"weights")
    assert (verified(failing, OnRecord()).damaged, told(register)) == ([], "")


def test_a_checkpoint_that_is_unreadable_at_the_second_look_is_in_doubt(tmp_path: Path) -> None:
    blobs, register, job = stored(tmp_path)
    blobs.put(f"{ROOT}/w.pt", b"other")
    for remove in (False, True):
        if remove:
            blobs.delete([f"{ROOT}/w.pt"])
        found = verified(FailsAt(tmp_path, register, {4}), OnRecord(job))  # after its manifest, twice, and its file
        assert (found.damaged, found.checkpoints, found.unreadable) == ([], {}, 1)


def test_only_what_is_read_back_whole_is_repaired(tmp_path: Path) -> None:
    """A bucket kept the damaged object, and "repaired: yes" was said."""
    register = Register()

    class Keeping(FsBlobs):
        def put(self, name: str, data: bytes) -> None:
            if not (tmp_path / "store" / name).exists():
                super().put(name, data)

    blobs = CachedBlobs(Keeping(tmp_path / "store"), Cache(tmp_path / "cache", 1 << 30))
    blobs.damage = Damage(register)
    blobs.put(CODE, b"weights")
    (tmp_path / "store" / CODE).write_bytes(b"other")
    found = Verification(repair=True)
    verify(blobs, cast("Records", OnRecord()), found, lambda name: False)
    assert [(one.name, one.repaired) for one in found.damaged] == [(CODE, False)]
    assert told(register).startswith(f"damaged, by their digest: {CODE}; ")


def test_an_artifact_that_was_removed_on_purpose_is_not_missing(tmp_path: Path) -> None:
    """After `tm rm --only artifacts`, every verification failed."""
    blobs, register, job = stored(tmp_path)
    records = OnRecord(replace(job, removed=("artifacts",)), artifacts=(Artifact("out.pt", SHA, 7, 1),))
    assert (verified(blobs, records).damaged, told(register)) == ([], "")


def test_what_is_known_of_a_checkpoint_stays_while_its_manifest_cannot_be_read(tmp_path: Path) -> None:
    """Its files were not looked at, and `tm doctor` had no trouble any more."""
    _, register, job = stored(tmp_path)
    failing = FailsAt(tmp_path, register, {5})
    failing.put(f"{ROOT}/w.pt", b"other")
    assert verified(failing, OnRecord(job)).checkpoints == {"train-1": {"c1"}}  # opens the manifest twice, and the file twice
    known = told(register)
    assert known.startswith(f"damaged, by their digest: {ROOT}/w.pt; ")
    found = verified(failing, OnRecord(job))
    assert (found.damaged, found.unreadable, told(register)) == ([], 1, known)
    verified(failing, OnRecord())
    assert told(register) == "", "it was removed"


def test_a_damaged_artifact_is_not_missing(tmp_path: Path) -> None:
    """The first look failed, and the store says of what it finds damaged that it is not there."""
    _, register, job = stored(tmp_path)
    name = f"artifacts/train-1/{SHA}"
    FsBlobs(tmp_path).put(name, b"other")
    found = verified(FailsAt(tmp_path, register, {1}), OnRecord(job, artifacts=(Artifact("out.pt", SHA, 7, 1),)))
    assert ([(one.name, one.what) for one in found.damaged], found.unreadable) == ([(name, "artifact out.pt")], 0)
    assert told(register).startswith(f"damaged, by their digest: {name}; ")
