"""The rules of the code copy: what is left out or linked, what of it is said, and files that change meanwhile."""

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from code_trees import own_cache, repository, said, shown, write

from trainmaster.client.code_copy.gather import Limits, gather, pack_zip
from trainmaster.client.code_copy.listing import Aside
from trainmaster.client.goes_along import ALL
from trainmaster.errors import ChangedError

__all__ = ["own_cache"]  # a fixture that holds for every test here


def test_what_the_job_writes_is_no_part_of_it(tmp_path: Path) -> None:
    files = {"train.py": "1", "out/keep.py": "1", "figures/old.png": "", "figures/style.mpl": ""}
    root = repository(tmp_path / "r", {".gitignore": "runs/\n*.pt\n", **files})
    write(root, {"runs/a/ck1.pt": "", "runs/pre.bin": "", "out/ck1.pt": "", "out/log.txt": "", "w.pt": ""})
    own = ["runs/a/ck*.pt", "out/ck{step}.pt", "figures/*.png"]
    assert shown(gather(root, own=own)) == {
        ".gitignore": "file", "figures/style.mpl": "file", "out/keep.py": "file", "runs/a": "directory",
        "runs/pre.bin": "link", "train.py": "file", "w.pt": "link",
    }  # fmt: skip


def test_what_may_be_code_and_is_left_out_is_said(tmp_path: Path) -> None:
    root = write(tmp_path / "p", dict.fromkeys(("a.py", "b.py", "c.py", "d.py", "out/old.png", "w.pt"), ""))
    assert said(gather(root, own=["*.py", "out/*.png"])) == [
        f"not copied: a.py, b.py, c.py, d.py (the job writes '*.py'); not copied: out/old.png (the job writes 'out/*.png'); {ALL}"
    ]
    root = repository(tmp_path / "r", {"a.py": "", "out/model.py": ""})
    write(root, {"out/old.py": "", "out/more.txt": ""})
    assert said(gather(root, own=["out/*.py"])) == [
        f"not copied: out/model.py, out/old.py (the job writes 'out/*.py'); "
        f"not copied: out/more.txt (beside what the job writes, 'out/*.py'); {ALL}"
    ]


def test_empty_directories_go_along_outside_of_git(tmp_path: Path) -> None:
    """A program with an empty `checkpoint/` trained for five minutes, and could not save. In git there are none, and a clone has none."""
    for root in (write(tmp_path / "p", {"train.py": "1"}), repository(tmp_path / "r", {"train.py": "1"})):
        for path in ("checkpoint", "a/b/c", ".git/refs", "__pycache__", "data"):
            (root / path).mkdir(parents=True, exist_ok=True)
    assert shown(gather(tmp_path / "p")) == {"train.py": "file", "checkpoint": "directory", "a/b/c": "directory", "data": "link"}
    assert shown(gather(tmp_path / "r")) == {"train.py": "file"}
    assert shown(gather(tmp_path / "r", own=["checkpoint/{step}.pt"])) == {"train.py": "file", "checkpoint": "directory"}


def test_directories_that_a_job_writes_into_stand_for_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`out` of one glob became an entry that hid `out/ckpt` of another: the program trained, and could not save."""
    root = write(tmp_path / "p", {"train.py": "1", "out/ckpt/step_1.pt": "x", "scratch/x": "1"})
    for path in ("out/logs", "scratch/tmp", ".home/live", ".home/jobs/a-1"):
        (root / path).mkdir(parents=True)
    monkeypatch.setenv("TRAINMASTER_HOME", str(root / ".home"))
    gathered = gather(root, own=["out/ckpt/*.pt", "out/*.json"], exclude=["scratch/*"])
    assert shown(gathered) == {"train.py": "file", "out/ckpt": "directory", "out/logs": "directory"}
    monkeypatch.setattr("trainmaster.client.code_copy.gather._EMPTY_MAX", 0)
    gathered = gather(root, own=["out/ckpt/*.pt"], exclude=["scratch/*"])
    assert shown(gathered) == {"train.py": "file", "out/ckpt": "directory"}
    assert Aside(".", "1 empty directories; at most 0 are copied", notable=True) in gathered.left_out


def test_a_base_model_under_the_pattern_is_said_and_earlier_checkpoints_are_not(tmp_path: Path) -> None:
    """`models/base.pt` under `models/*.pt` was left out without a word, and the job died."""
    files = dict.fromkeys(("train.py", "models/base.pt", "models/step_10.pt", "runs/step-5/model.bin"), "")
    root = write(tmp_path / "p", files)
    gathered = gather(root, own=["models/*.pt", "runs/step-{step}"])
    assert shown(gathered) == {"train.py": "file", "models": "directory", "runs": "directory"}
    assert gathered.left_out == (
        Aside("models/base.pt", "the job writes 'models/*.pt'", notable=True),
        Aside("models/step_10.pt", "the job writes 'models/*.pt'"),
        Aside("runs/step-5", "the job writes 'runs/step-{step}'"),
    )
    assert said(gathered) == [f"not copied: models/base.pt (the job writes 'models/*.pt'); {ALL}"]


@pytest.mark.parametrize("git", [True, False])
def test_large_data_is_linked_in_git_as_outside(tmp_path: Path, git: bool) -> None:
    """176 MB of untracked data were copied in git, for 15 s and without a word."""
    root = repository(tmp_path / "r", {"train.py": "1"}) if git else write(tmp_path / "p", {"train.py": "1"})
    write(
        root,
        {
            **{f"images/{kind}/{n}.jpg": "j" * 300 for kind in ("cat", "dog") for n in range(3)},
            **{f"pkg/assets/{n}.bin": "b" * 400 for n in range(4)}, "pkg/model.py": "1", "out/log.txt": "l" * 1600,
            "data/a.csv": "1", "big.bin": "x" * 2000, "small/x.txt": "1",
        },
    )  # fmt: skip
    gathered = gather(root, Limits(file_bytes=1700, directory_bytes=1500), own=["out/*.pt"])
    assert shown(gathered) == {
        "train.py": "file", "images": "link", "pkg/model.py": "file", "pkg/assets": "link", "data": "link", "big.bin": "link",
        "small/x.txt": "file", **({"out": "directory"} if git else {"out/log.txt": "file"}),
    }  # fmt: skip
    assert gathered.links == (
        Aside("big.bin", "large", notable=True), Aside("data", "named as data"), Aside("images", "large", notable=True),
        Aside("pkg/assets", "large", notable=True),
    )  # fmt: skip


def test_a_directory_with_a_tracked_file_is_not_linked(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {"train.py": "1", "images/labels.csv": "1"})
    write(root, {f"images/{n}.jpg": "j" * 300 for n in range(6)})
    assert set(shown(gather(root, Limits(directory_bytes=1500))).values()) == {"file"}


def test_what_a_project_excludes(tmp_path: Path) -> None:
    for root in (repository(tmp_path / "r", {"train.py": "1", ".gitignore": "cache/\n"}), write(tmp_path / "p", {"train.py": "1"})):
        write(root, {"live/status.json": "{}", "a.log": "", "deep/b.log": "", "cache/x": ""})
        gathered = gather(root, exclude=["live", "**/*.log", "cache"])
        assert set(shown(gathered)) - {".gitignore"} == {"train.py"}
        assert [one.path for one in gathered.left_out if one.why == "excluded in trainmaster.toml"] in [
            ["a.log", "cache", "deep/b.log", "live/status.json"], ["a.log", "cache/x", "deep/b.log", "live/status.json"],
        ]  # fmt: skip
        assert said(gathered) == []


def test_keys_under_other_names_are_credentials_too(tmp_path: Path) -> None:
    files = ("id_ed25519_work", "id_rsa.old", "SERVER.PEM", ".Env", "id_rsa.pub", "id_rsa_test.py", "identity.txt")
    gathered = gather(write(tmp_path / "plain", dict.fromkeys(files, "x")))
    assert set(shown(gathered)) == {"id_rsa.pub", "id_rsa_test.py", "identity.txt"}


def test_credentials_are_left_out_with_a_word(tmp_path: Path) -> None:
    """S9: untracked .ssh, .aws and .env are not copied with the code, unless a person asks for it."""
    files = dict.fromkeys((".env", ".env.local", ".aws/credentials", "deploy/.ssh/id_rsa", "id_ed25519", ".netrc", "server.pem"), "secret")
    plain = {"train.py": "code", ".env.example": "TOKEN=", "environment.py": "code", "ssh/x": "code"}
    everywhere = write(tmp_path / "plain", files | plain)
    gathered = gather(everywhere)
    assert set(shown(gathered)) == set(plain)
    assert said(gathered) == [
        f"not copied: .aws, .env, .env.local, .netrc, deploy/.ssh, id_ed25519, server.pem (credentials may be in it); {ALL}"
    ]
    included = gather(everywhere, include=(".env", "./deploy/.ssh/"))
    assert set(shown(included)) == {*plain, ".env", "deploy/.ssh/id_rsa"}
    # In git: what is untracked; what git ignores is linked as anything it ignores, what it tracks is published already.
    root = repository(tmp_path / "git", {"train.py": "code", ".env.shared": "tracked", ".gitignore": ".env\n"})
    write(root, {".env": "secret", ".aws/credentials": "secret", "new.py": "code"})
    gathered = gather(root)
    assert set(shown(gathered)) == {"train.py", ".env.shared", ".gitignore", "new.py", ".env"}
    assert gathered.links == (Aside(".env", "git ignores it"),)
    assert said(gathered) == [f"not copied: .aws (credentials may be in it); {ALL}"]


def test_the_output_of_this_process_is_no_part_of_it(tmp_path: Path) -> None:
    """`tm run -- python3 t.py > one.log 2>&1` failed every time: it wrote into the file that it copied."""
    root = write(tmp_path / "p", {"train.py": "1"})
    program = (
        "import sys; from pathlib import Path; from trainmaster.client.code_copy.gather import gather\n"
        "found = gather(Path(sys.argv[1])); print([e['path'] for e in found.tree['entries']], found.left_out[0].path)"
    )
    with (root / "one.log").open("w") as log:
        subprocess.run([sys.executable, "-c", program, str(root)], stdout=log, stderr=log, check=True)
    assert (root / "one.log").read_text() == "['train.py'] one.log\n"


def test_a_file_that_only_grows_is_taken_as_it_was_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "p", {"train.py": "1", "train.log": "one\n"})
    read = os.pread

    def growing(descriptor: int, size: int, offset: int) -> bytes:
        with (root / "train.log").open("a") as log:
            log.write("more\n")
        return read(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", growing)
    gathered = gather(root)
    monkeypatch.undo()
    (entry,) = (entry for entry in gathered.tree["entries"] if entry["path"] == "train.log")
    assert (root / "train.log").stat().st_size > entry["bytes"]
    text = (root / "train.log").read_bytes()[: entry["bytes"]]
    assert entry["sha256"] == hashlib.sha256(text).hexdigest()
    archive = zipfile.ZipFile(io.BytesIO(pack_zip(gathered, list(gathered.sources))))
    assert archive.read(entry["sha256"]) == text


def test_a_file_that_changes_otherwise_is_read_again_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "p", {"train.py": "1", "live/status.json": "0"})
    read, left = os.pread, [3]

    def changing(descriptor: int, size: int, offset: int) -> bytes:
        if left[0] > 0 and size:
            left[0] -= 1
            (root / "live/status.json").write_text(str(left[0]) * 3)
        return read(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", changing)
    monkeypatch.setattr("trainmaster.client.code_copy.digests._PAUSE_S", 0.0)
    assert set(shown(gather(root))) == {"train.py", "live/status.json"}
    left[0] = 1000
    with pytest.raises(ChangedError) as caught:
        gather(root)
    assert caught.value.message == f"{root}/live/status.json changes while it is copied"
    assert 'leave it out: in trainmaster.toml, below [code]: exclude = ["live/status.json"]' in caught.value.hint
