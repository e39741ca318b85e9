"""The work directory: laid out once from the code copy; the job's own files stay, and an incomplete one is not used."""

import hashlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from launches import launch, tree, write

from trainmaster.agent.files.globs import Glob
from trainmaster.agent.launch.work_directory import lay_out
from trainmaster.agent.processes.spawn import LaunchError
from trainmaster.wire.launch import Launch


def code(root: Path, files: dict[str, str], **others: Any) -> dict[str, Any]:
    """A code copy of `files`; `links` and `symlinks` beside them."""
    entries: list[dict[str, Any]] = []
    for path, text in files.items():
        digest = hashlib.sha256(text.encode()).hexdigest()
        write(root / "objects" / digest[:2] / digest[2:], text)
        mode = 0o755 if path.endswith(".sh") else 0o644
        entries.append({"path": path, "type": "file", "sha256": digest, "mode": mode, "bytes": len(text.encode())})
    entries += [{"path": path, "type": "link"} for path in others.get("links", ())]
    entries += [{"path": path, "type": "directory"} for path in others.get("directories", ())]
    entries += [{"path": path, "type": "symlink", "target": target} for path, target in others.get("symlinks", {}).items()]
    data = json.dumps({"entries": sorted(entries, key=lambda entry: str(entry["path"]))})
    place = write(root / "trees" / f"{hashlib.sha256(data.encode()).hexdigest()}.json", data)
    return {"tree": str(place), "objects": str(root / "objects"), "source": str(root / "source")}


def laid_out(orders: Launch) -> dict[str, str]:
    lay_out(orders)
    return tree(Path(orders["work"]))


def test_files_links_and_modes(tmp_path: Path) -> None:
    files = {"train.py": "1", "src/net.py": "2", "run.sh": "3"}
    copy = code(tmp_path, files, links=["data"], symlinks={"latest": "src/net.py"})
    assert laid_out(launch(tmp_path, code=copy)) == {
        "train.py": "1",
        "src/net.py": "2",
        "run.sh": "3",
        "data": f"-> {tmp_path}/source/data",
        "latest": "-> src/net.py",
    }
    assert [os.stat(tmp_path / "work" / name).st_mode & 0o777 for name in ("train.py", "run.sh")] == [0o644, 0o755]


def test_directories_of_which_nothing_is_copied_are_there(tmp_path: Path) -> None:
    copy = code(tmp_path, {"train.py": "1"}, directories=["checkpoint", "a/b"])
    orders = launch(tmp_path, code=copy, checkpoint_path="checkpoint/{step}.pt")
    assert laid_out(orders) == {"train.py": "1", "checkpoint": "/", "a/b": "/"}


def test_what_the_job_writes_starts_empty_and_is_its_own(tmp_path: Path) -> None:
    files = {"train.py": "1", "out/ckpt_1.pt": "old", "out/notes.txt": "kept", "plots/a.png": "old", "runs/x/last/a": "old"}
    links = ["data", "out/big.bin", "logs", "models"]
    copy = code(tmp_path, files, links=links, symlinks={"plots": "/elsewhere", "scratch": "/s"})
    artifacts = ["plots/*.png", "logs/run/*.txt", "models", "runs/*/last"]
    orders = launch(tmp_path, code=copy, checkpoint_path="out/ckpt_{step}.pt", artifacts=artifacts)
    assert laid_out(orders) == {
        "train.py": "1",
        "out/notes.txt": "kept",
        "out/big.bin": f"-> {tmp_path}/source/out/big.bin",
        "data": f"-> {tmp_path}/source/data",
        "logs": "/",
        "plots": "/",
        "runs/x": "/",
        "scratch": "-> /s",
    }


def test_a_glob_of_everything_owns_nothing(tmp_path: Path) -> None:
    copy = code(tmp_path, {"train.py": "1"}, links=["data"])
    assert list(laid_out(launch(tmp_path, code=copy, artifacts=["**", "*"]))) == ["data", "train.py"]


def test_it_is_kept_and_laid_out_anew_only_when_asked(tmp_path: Path) -> None:
    copy = code(tmp_path, {"train.py": "1"})
    laid_out(launch(tmp_path, code=copy))
    write(tmp_path / "work" / "out" / "ckpt.pt", "mine")
    assert laid_out(launch(tmp_path, code=copy, attempt=2)) == {"train.py": "1", "out/ckpt.pt": "mine"}
    assert laid_out(launch(tmp_path, code=copy, attempt=3, fresh=True)) == {"train.py": "1"}
    aside = tree(tmp_path / "work.aside")
    assert {"3-0.work/out/ckpt.pt": "mine", "3-0.work/train.py": "1"}.items() <= aside.items()
    assert laid_out(launch(tmp_path, code=code(tmp_path, {"train.py": "2"}), attempt=4)) == {"train.py": "2"}


@pytest.mark.parametrize("stage", ["laying-out", "renamed"])
def test_a_half_layout_is_not_trusted(tmp_path: Path, stage: str) -> None:
    write(tmp_path / ("work.laying-out" if stage == "laying-out" else "work") / "half.py", "0")
    assert laid_out(launch(tmp_path, code=code(tmp_path, {"train.py": "1"}))) == {"train.py": "1"}
    assert "0" in tree(tmp_path / "work.aside").values()


def test_a_pipe_in_the_place_of_its_marker_does_not_hold_up_a_start(tmp_path: Path) -> None:
    """A job may write beside its work directory: the next start waited for a writer that never came."""
    copy = code(tmp_path, {"train.py": "1"})
    for name in ("work.layout", "work.layout.part"):
        os.mkfifo(tmp_path / name)
    start = threading.Thread(target=laid_out, args=(launch(tmp_path, code=copy),), daemon=True)
    start.start()
    start.join(10.0)
    assert not start.is_alive()
    assert laid_out(launch(tmp_path, code=copy, attempt=2)) == {"train.py": "1"}


def test_in_place_and_without_code(tmp_path: Path) -> None:
    assert laid_out(launch(tmp_path, work=str(tmp_path / "mine"), in_place=True, code=code(tmp_path, {"a": "1"}))) == {}
    assert not (tmp_path / "mine").exists()
    lay_out(launch(tmp_path))
    assert (tmp_path / "work").is_dir()


@pytest.mark.parametrize("size", [3, 1_000_000])
@pytest.mark.parametrize("changed", ["cut", "one byte", "longer"])
def test_a_damaged_object_is_never_run(tmp_path: Path, size: int, changed: str) -> None:
    """T2: a byte was changed in the store, and `tm reproduce` ran it."""
    copy = code(tmp_path, {"train.py": "x" * size})
    stored = next((tmp_path / "objects").rglob("??*/*"))
    stored.write_text({"cut": "x" * (size - 1), "one byte": "y" + "x" * (size - 1), "longer": "x" * (size + 1)}[changed])
    with pytest.raises(LaunchError, match=r"the stored copy of train\.py is damaged"):
        lay_out(launch(tmp_path, code=copy))
    assert not (tmp_path / "work").exists()
    stored.write_text("x" * size)
    assert laid_out(launch(tmp_path, code=copy)) == {"train.py": "x" * size}


def test_a_damaged_list_of_files_is_never_laid_out(tmp_path: Path) -> None:
    copy = code(tmp_path, {"train.py": "1", "net.py": "2"})
    text = Path(copy["tree"]).read_text()
    Path(copy["tree"]).write_text(text.replace("train.py", "train.sh"))
    with pytest.raises(LaunchError, match="list of its files is damaged"):
        lay_out(launch(tmp_path, code=copy))


def test_paths_that_lead_out_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leads out"):
        lay_out(launch(tmp_path, code=code(tmp_path, {"../evil.py": "1"})))


def test_two_hundred_files_are_quick(tmp_path: Path) -> None:
    copy = code(tmp_path, {f"package{number % 9}/module{number}.py": f"# {number}" * 50 for number in range(200)})
    took_s = []
    for attempt in range(3):
        began_s = time.thread_time()  # whatever else runs
        lay_out(launch(tmp_path, work=str(tmp_path / f"work{attempt}"), code=copy, checkpoint_path="out/*.pt"))
        took_s.append(time.thread_time() - began_s)
    assert min(took_s) < 0.2  # about 15 ms on an idle machine


@pytest.mark.parametrize(
    ("pattern", "path", "step"),
    [
        ("out/step_*.pkl", "out/step_00000025.pkl", 25),
        ("out/model_*.txt", "out/model_40.txt", 40),
        ("out/model_*", "out/model_40.pth.tar", 40),
        ("ckpt2.pt", "ckpt2.pt", None),
        ("run3/*.pt", "run3/best.pt", None),
        ("checkpoint-*/model.pt", "checkpoint-500/model.pt", 500),
        ("*.ckpt", "epoch=3-val_loss=0.25.ckpt", 3),
        ("epoch{epoch}/{step}/*", "epoch{epoch}/120/model.pt", 120),
        ("s{step}/model-{step}.pt", "s7/model-7.pt", 7),
        ("s{step}/model-{step}.pt", "s7/model-8.pt", None),
        ("**/step{step}.pt", "a/b/step12.pt", 12),
        ("out/[ab]*.pt", "out/a9.pt", None),
    ],
)
def test_the_step_a_path_names(pattern: str, path: str, step: int | None) -> None:
    assert Glob(pattern, "/work").step(path) == step


def test_what_a_glob_matches(tmp_path: Path) -> None:
    for name in ("out/a1.pt", "out/a2.pt", "out/b/a3.pt", "out/.hidden.pt", "out/a4.pt.tmp", "other/a5.pt", "elsewhere/a6.pt"):
        write(tmp_path / name, "x")
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")

    def expanded(pattern: str) -> list[str]:
        return Glob(pattern, str(tmp_path)).expand()

    assert expanded("out/*.pt") == ["out/a1.pt", "out/a2.pt"]
    assert expanded("./out//a{step}.pt") == ["out/a1.pt", "out/a2.pt"]
    assert expanded("**/a*.pt") == ["elsewhere/a6.pt", "other/a5.pt", "out/a1.pt", "out/a2.pt", "out/b/a3.pt"]
    assert expanded("*/a6.pt") == ["elsewhere/a6.pt"]
    assert expanded("linked/*.pt") == ["linked/a6.pt"]
    assert expanded(str(tmp_path / "out" / "a[!1].pt")) == ["out/a2.pt"]
    assert expanded("out/**") == ["out/a1.pt", "out/a2.pt", "out/a4.pt.tmp", "out/b", "out/b/a3.pt"]
    assert expanded("absent/*") == []
