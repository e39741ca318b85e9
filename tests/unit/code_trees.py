"""Work directories for tests of the code copy, in git and outside, and what was gathered of one."""

import subprocess
from pathlib import Path

import pytest

from trainmaster.blobs.code import check_tree
from trainmaster.client.code_copy.gather import Gathered
from trainmaster.client.goes_along import notable

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return cache / "trainmaster" / "digests"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *IDENTITY, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repository(root: Path, files: dict[str, str]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q")
    write(root, files)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "x")
    return root


def shown(gathered: Gathered) -> dict[str, str]:
    check_tree(gathered.tree)
    return {entry["path"]: entry["type"] for entry in gathered.tree["entries"]}


def said(gathered: Gathered) -> list[str]:
    return notable(gathered, {})
