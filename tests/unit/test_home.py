"""The files of a server: sockets whose path is too long for the kernel."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.home import Home

LONG = "/" + "/".join(["deep" * 8] * 4)


def short(root: Path) -> str:
    return f"tm-{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}-control.wake.sock"


@pytest.mark.parametrize(
    ("root", "runtime", "temporary", "expected"),
    [
        ("/var/lib/trainmaster", "/run/user/7", "/scratch", "/var/lib/trainmaster/control.wake.sock"),
        (LONG, "/run/user/7", "/scratch", f"/run/user/7/{short(Path(LONG))}"),
        (LONG, None, "/scratch", f"/scratch/trainmaster-{os.getuid()}/{short(Path(LONG))}"),
        (LONG, LONG, "/scratch", f"/scratch/trainmaster-{os.getuid()}/{short(Path(LONG))}"),
        (LONG, None, LONG, f"/tmp/trainmaster-{os.getuid()}/{short(Path(LONG))}"),
    ],
)
def test_a_socket_lies_where_its_path_is_short_enough(
    root: str, runtime: str | None, temporary: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if runtime is not None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setattr(tempfile, "tempdir", temporary)
    assert str(Home(Path(root)).socket("control.wake")) == expected


@pytest.mark.parametrize("make", [lambda path: path.symlink_to(path.name), Path.mkdir, os.mkfifo])
def test_a_file_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A disk that fails for a moment must not make a server forget its nodes. No rights would keep the superuser out."""
    home = Home(tmp_path)
    assert home.read_json(home.settings_json) is None
    make(home.settings_json)
    with pytest.raises(OSError, match=r"settings\.json"):
        home.read_json(home.settings_json)
