"""A comparison of jobs whose files cannot be read at the moment says so of these files, and tells the rest."""

from types import SimpleNamespace
from typing import Any

import pytest

from trainmaster.errors import StoreRefusedError, StoreUnavailableError
from trainmaster.server.record import comparison, provenance


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), StoreUnavailableError("Permission denied"), StoreRefusedError("Permission denied")]
)
def test_what_cannot_be_read_now_is_said_to_be_that(error: Exception) -> None:
    def refuse(_name: str) -> Any:
        raise error

    services: Any = SimpleNamespace(blobs=SimpleNamespace(open=refuse))
    assert comparison._tree(services, "d" * 64) == "the list of them cannot be read now (Permission denied)"
    entry = {"type": "file", "bytes": 3, "sha256": "d" * 64}
    assert comparison._lines(services, entry) == "cannot be read now (Permission denied)"


@pytest.mark.parametrize("error", [StoreUnavailableError("Permission denied"), StoreRefusedError("Permission denied")])
def test_a_record_that_an_object_store_does_not_give_out_is_said_to_be_that(error: Exception) -> None:
    def refuse(_names: Any) -> Any:
        raise error

    services: Any = SimpleNamespace(blobs=SimpleNamespace(exists=refuse))
    assert provenance.recorded(services, "d" * 64) == "the record cannot be read now (Permission denied)"
