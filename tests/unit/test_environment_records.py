"""The environment records of attempts: what is said where one cannot be read."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from trainmaster.blobs.fs import FsBlobs
from trainmaster.ports.blobs import environment_blob
from trainmaster.server.record.provenance import recorded, replace_environment
from trainmaster.server.runtime.services import Services


def test_a_record_that_cannot_be_read_now_is_not_called_lost(tmp_path: Path) -> None:
    name = "a" * 64
    services = cast(Services, SimpleNamespace(blobs=FsBlobs(tmp_path / "blobs"), home=SimpleNamespace(environments=tmp_path)))
    assert recorded(services, name) == "the record is lost"
    (tmp_path / f"{name}.json").mkdir()  # reading it is an I/O error
    told = recorded(services, name), replace_environment(services, environment_blob(name))
    assert told == ("the record cannot be read now (Is a directory)", False)
