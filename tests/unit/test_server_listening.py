"""Where a server creates its sockets on a shared machine."""

import os
from pathlib import Path

import pytest

from trainmaster.errors import OperationError
from trainmaster.server.process.sockets import prepare_directory

OTHER_USER = 54321


def test_a_directory_of_ones_own_will_do_a_link_to_it_too(tmp_path: Path) -> None:
    prepare_directory(tmp_path / "own" / "api.sock")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    prepare_directory(tmp_path / "link" / "api.sock")
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
@pytest.mark.parametrize("linked", [False, True])
def test_what_another_user_put_there_is_refused(tmp_path: Path, linked: bool) -> None:
    (tmp_path / "own").mkdir()
    place = tmp_path / "trainmaster-0"
    if linked:
        place.symlink_to(tmp_path / "own")
    else:
        place.mkdir()
    os.chown(place, OTHER_USER, OTHER_USER, follow_symlinks=False)
    with pytest.raises(OperationError, match="belongs to another user"):
        prepare_directory(place / "api.sock")
