"""`tm get`: where artifacts are written, and that no file of another content is lost."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from contract_answers import ARTIFACT, route
from contract_server import serving

from trainmaster.cli.app import run

DATA = b"0123456789"


def fetched(monkeypatch: pytest.MonkeyPatch, at: Path, arguments: tuple[str, ...], *paths: str) -> int:
    """Run `tm get` in a directory, for a job with these artifacts."""
    monkeypatch.setenv("TRAINMASTER_HOME", str(at / "home"))
    monkeypatch.chdir(at)
    rows = [{**ARTIFACT, "path": path, "bytes": len(DATA), "digest": hashlib.sha256(DATA).hexdigest()} for path in paths]

    def answer(asked: Any) -> Any:
        if "/artifacts/" in asked.line:
            return (200, DATA)
        if "/artifacts?path=" in asked.line:
            found = [row for row in rows if asked.line.endswith(f"path={row['path'].replace('/', '%2F')}")]
            return (200, {"id": "digits-14", "artifacts": found, "total": len(rows), "bytes": 10})
        if "/artifacts" in asked.line:
            return (200, {"id": "digits-14", "artifacts": rows, "total": len(rows), "bytes": 10})
        return route(asked)

    with serving(answer) as server:
        return run(["--server", server.url, "get", "digits-14", *arguments])


@pytest.mark.parametrize(
    ("arguments", "code", "left"),
    [
        (("out/a.txt", "-o", "results"), 5, b"mine"),
        (("out/a.txt", "-o", "results", "-f"), 0, DATA),
        (("out/a.txt", "-o", "results/a.txt"), 0, DATA),  # the person named this file
        (("*.txt", "-o", "results"), 0, b"mine"),
    ],
)
def test_one_artifact_replaces_no_file_that_nobody_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, left: bytes
) -> None:
    """With a directory as the target, a file in it that had the same name was replaced."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.txt").write_bytes(b"mine")
    assert fetched(monkeypatch, tmp_path, arguments, "out/a.txt") == code
    assert (tmp_path / "results" / "a.txt").read_bytes() == left


def test_one_artifact_replaces_a_file_here_if_that_is_demanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--force was ignored."""
    (tmp_path / "a.txt").write_bytes(b"mine")
    assert fetched(monkeypatch, tmp_path, ("out/a.txt",), "out/a.txt") == 5
    assert fetched(monkeypatch, tmp_path, ("out/a.txt", "--force"), "out/a.txt") == 0
    assert (tmp_path / "a.txt").read_bytes() == DATA


def test_artifacts_with_one_target_do_not_replace_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetched(monkeypatch, tmp_path, ("--all", "-o", "all"), "out/a.txt", "out/./a.txt") == 5
    assert "out/a.txt and out/./a.txt would both be all/out/a.txt" in capsys.readouterr().err
    assert not (tmp_path / "all").exists()
