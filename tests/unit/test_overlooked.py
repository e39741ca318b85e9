"""Checkpoints that a program saves outside the collected pattern: what is reported, when, and what the check costs."""

import io
import json
import os
import pickle
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from launches import launch, write
from waiting import deadline

from trainmaster.agent.checkpoints import overlooked
from trainmaster.agent.checkpoints.candidate_files import candidates
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.agent.checkpoints.overlooked import lookalikes
from trainmaster.agent.checkpoints.pattern_advice import apart
from trainmaster.agent.files import new_files
from trainmaster.agent.files.globs import Glob
from trainmaster.agent.files.new_files import pattern_of
from trainmaster.agent.launch.start import Startup
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.rank import Rank
from trainmaster.agent.processes.wakeup import Wake
from trainmaster.agent.supervise.storing import StoreWorker
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.wire.launch import Launch

NOTHING = "nothing matches the checkpoint pattern 'out/*': no checkpoint is in the store"


def zipped() -> bytes:
    """As `torch.save` writes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"step": 1}))
    return file.getvalue()


def begun(root: Path, ran_s: float = 100, **orders: Any) -> tuple[StoreWorker, Progress]:
    """A store worker whose only rank runs, and has told no step yet."""
    start = Startup(str(root), launch(root, **orders), Wake())
    rank = Rank(0, str(root))
    rank.pid, rank.running = os.getpid(), True
    start.ranks = [rank]
    if start.launch["checkpoint_path"]:
        start.prepared.collector = Collector(start.launch)
    start.ranks_began_s = time.monotonic() - ran_s
    progress = Progress(Outbox(str(root / "spool.jsonl"), str(root / "points.jsonl")))
    return StoreWorker(start, progress), progress


def step(progress: Progress, number: int, ago_s: float) -> None:
    progress.written_s = time.time() - ago_s
    progress.printed(0, number, {})


def told(it: StoreWorker, topic: str = "checkpoint pattern") -> list[str]:
    deadline(lambda: it.idle, "all that is asked for")
    texts = [fields["text"] for kind, fields in it.results if kind == "warned" and fields["topic"] == topic]
    it.results.clear()
    return texts


def later(it: StoreWorker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What it tells at the next look of its loop that is due."""
    monkeypatch.setattr(it._scans, "_look_due_s", 0.0)
    it.watch(time.monotonic())
    return told(it)


def test_a_pattern_that_matches_nothing_is_told_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it, progress = begun(tmp_path, checkpoint_path="out/*")
    write(tmp_path / "work" / "checkpoint" / "10.pt", zipped())
    step(progress, 1, ago_s=65)
    step(progress, 2, ago_s=6)
    assert later(it, monkeypatch) == []  # steps for less than a minute
    step(progress, 3, ago_s=0)
    text = f"{NOTHING}; these new files look like checkpoints: checkpoint/10.pt; for them write --checkpoint 'checkpoint/*.pt'"
    assert later(it, monkeypatch) == [text]
    write(tmp_path / "work" / "checkpoint" / "20.pt", zipped())
    assert later(it, monkeypatch) == []  # once
    write(tmp_path / "work" / "out" / "30.pt", zipped())
    assert later(it, monkeypatch) == [""]
    it.finish()
    assert told(it) == []


def test_its_first_checkpoint_may_be_still_to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it, progress = begun(tmp_path, checkpoint_path="out/*")
    write(tmp_path / "work" / "metrics.json", "{}")
    step(progress, 1, ago_s=65)
    step(progress, 2, ago_s=0)
    assert later(it, monkeypatch) == []
    it.finish(well=False)
    assert told(it) == [NOTHING]


@pytest.mark.parametrize(("well", "texts"), [(True, [NOTHING]), (False, [])])
def test_a_pattern_that_matched_nothing_by_the_end(tmp_path: Path, well: bool, texts: list[str]) -> None:
    """One that breaks at once has not come to its first checkpoint."""
    it, _ = begun(tmp_path, checkpoint_path="out/*")
    it.finish(well=well)
    assert told(it) == texts


def test_a_directory_that_may_not_be_read_is_not_said_to_be_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it, _ = begun(tmp_path, checkpoint_path="out/*")
    write(tmp_path / "work" / "out" / "10.pt", zipped())
    real = os.scandir

    def scandir(path: str) -> Any:
        if str(path).endswith("/out"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    it.finish()
    listed = "what matches the checkpoint pattern 'out/*' in out could not be listed: permission denied"
    assert told(it) == [f"{listed}; no checkpoint is in the store"]


@pytest.mark.parametrize("well", [True, False])
def test_without_a_pattern_the_one_to_write_is_told(tmp_path: Path, well: bool) -> None:
    it, progress = begun(tmp_path)
    for number in (10, 20):
        write(tmp_path / "work" / "checkpoint" / f"{number}.pt", zipped())
        os.utime(tmp_path / "work" / "checkpoint" / f"{number}.pt", (time.time() + number, time.time() + number))
    step(progress, 20, ago_s=0)
    it.finish(well=well)
    named = "these look like checkpoints: checkpoint/20.pt, checkpoint/10.pt"
    assert told(it) == [f"{named}; with --checkpoint 'checkpoint/*.pt' a restart is given the newest of them; --resume-arguments hands its path to the program"]


@pytest.mark.parametrize(("ran_s", "well", "is_told"), [(100, False, True), (100, True, False), (5, False, False)])
def test_a_program_whose_steps_are_not_read_is_told_if_it_failed_after_a_while(
    tmp_path: Path, ran_s: float, well: bool, is_told: bool
) -> None:
    """Lightning's bar of rich is printed at the end: a kill before that lost all, and no checkpoint was advised."""
    it, _ = begun(tmp_path, ran_s=ran_s)
    write(tmp_path / "work" / "checkpoint" / "10.pt", zipped())
    it.finish(well=well)
    given = "with --checkpoint 'checkpoint/*.pt' a restart is given the newest of them; --resume-arguments hands its path to the program"
    assert told(it) == [f"these look like checkpoints: checkpoint/10.pt; {given}"] * is_told


@pytest.mark.parametrize("well", [True, False])
def test_files_whose_names_differ_in_the_end_are_one_checkpoint(tmp_path: Path, well: bool) -> None:
    """PaddleOCR: a restart was to be given the `.states` alone, which its program cannot load."""
    it, progress = begun(tmp_path)
    ends = (".pdopt", ".pdparams", ".states")
    for at, name in enumerate(f"iter_epoch_{number}{end}" for number in (3, 6, 9) for end in ends):
        if at < 7:  # of 9, only the first is there
            path = write(tmp_path / "work" / "output" / name, pickle.dumps([at]))
            os.utime(path, (time.time() + at, time.time() + at))
    write(tmp_path / "work" / "output" / "best.pdparams", pickle.dumps([1]))
    step(progress, 20, ago_s=0)
    it.finish(well=well)
    step_6 = ", ".join(f"output/iter_epoch_6{end}" for end in ends)
    given = "with --checkpoint 'output/iter_epoch_{step}.*' a restart is given the newest of them"
    assert [text.replace("_3.", "_6.") for text in told(it)] == [
        f"these look like checkpoints: {step_6}; {given}; --resume-arguments hands its {{step}} or {{directory}} to the program"
    ]


def test_it_is_taken_back_when_the_files_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it, progress = begun(tmp_path)
    path = write(tmp_path / "work" / "model.pkl", pickle.dumps([1]))
    step(progress, 1, ago_s=65)
    step(progress, 2, ago_s=0)
    os.utime(path)
    assert later(it, monkeypatch) == [
        "these look like checkpoints: model.pkl; with --checkpoint model.pkl a restart is given the newest of them; --resume-arguments hands its path to the program"
    ]
    path.unlink()
    assert later(it, monkeypatch) == [""]


def test_a_program_that_uses_the_sdk_needs_no_pattern(tmp_path: Path) -> None:
    it, progress = begun(tmp_path, checkpoint_path="out/*")
    write(tmp_path / "work" / "checkpoint" / "10.pt", zipped())
    write(tmp_path / "blobs" / "sdk" / "model", "ten")
    step(progress, 1, ago_s=0)
    it.message(0, {"t": "c", "directory": str(tmp_path / "blobs" / "sdk"), "step": 1})
    it.finish()
    assert told(it) == []


def found(orders: Launch, since_s: float = 0.0, ended_well: bool = False) -> list[str]:
    return list(lookalikes(orders, since_s, ended_well))


def test_what_looks_like_a_checkpoint(tmp_path: Path) -> None:
    work, orders = tmp_path / "work", launch(tmp_path, artifacts=["final.pkl"])
    for name, data in {
        "checkpoint-500/model.safetensors": (2).to_bytes(8, "little") + b"{}",
        "epoch=3-step=80.ckpt": zipped(),
        "ckpt-state.json": json.dumps([1]),
        "model.pkl": pickle.dumps([1]),
        "results.json": "{}",
        "final.pkl": pickle.dumps([1]),
        "log.txt": "step 1",
        "model-2.pt.tmp": zipped(),
        "wandb/media.pkl": pickle.dumps([1]),
        ".cache/a.pkl": pickle.dumps([1]),
        "half-3.pt": zipped()[:-30],
        "7": zipped(),
        "ckpt\n-1.pt": zipped(),
    }.items():
        write(work / name, data)
    (work / "link.pkl").symlink_to("model.pkl")
    assert set(found(orders)) == {"checkpoint-*", "epoch=*-step=*.ckpt", "ckpt-state.json", "model.pkl"}
    # What a program that ended well wrote once may be its result.
    assert set(found(orders, ended_well=True)) == {"checkpoint-*", "epoch=*-step=*.ckpt", "ckpt-state.json"}
    for path in work.rglob("*"):
        os.utime(path, (1000, 1000), follow_symlinks=False)
    assert found(orders, since_s=1001) == []


def test_files_whose_names_end_in_a_number_are_of_one_pattern(tmp_path: Path) -> None:
    """Else each would be alone, and what a program that ended well wrote once may be its result: Sockeye's `params.00012`."""
    for step in (1, 2):
        write(tmp_path / "work" / f"model/params.0000{step}", zipped())
    assert list(lookalikes(launch(tmp_path), 0.0, ended_well=True)) == ["model/params.*"]


def test_the_weights_are_advised_before_what_lies_beside_them(tmp_path: Path) -> None:
    names = ["data.npz", "checkpoints/last.pt", "checkpoints/config.json"]
    for age, name in enumerate(reversed(names)):
        path = write(tmp_path / "work" / name, "{}" if name.endswith("json") else zipped())
        os.utime(path, (2000 - age, 2000 - age))
    assert found(launch(tmp_path)) == ["checkpoints/last.pt", "checkpoints/config.json", "data.npz"]


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("checkpoint/10.pt", "checkpoint/*.pt"),
        ("lightning_logs/version_0/checkpoints/epoch=3-step=80.ckpt", "lightning_logs/version_*/checkpoints/epoch=*-step=*.ckpt"),
        ("d3rlpy_logs/DiscreteCQL_20261126080726/model_500.d3", "d3rlpy_logs/DiscreteCQL_*/model_*.d3"),
        ("outputs/2026-11-26/14-20-11/last.pt", "outputs/*-*-*/*-*-*/last.pt"),
        ("runs/exp3/weights/last.pt", "runs/exp*/weights/last.pt"),
        ("logs/ppo/CartPole-v1_2/rl_model_2000_steps.zip", "logs/ppo/CartPole-v1_*/rl_model_*_steps.zip"),
        ("out/lr_0.001/last.pt", "out/lr_0.001/last.pt"),
        ("output/CartPole-v0/20261128_063145_7f9acb/policies/000020480/model.zip", "output/CartPole-v0/*_*_*/policies/*/model.zip"),
        ("runs/3f2a91bc-09bf-41e1-8d2b-0a1b2c3d4e5f/last.pt", "runs/*/last.pt"),
        ("out/09bfe1/model_ebb416_3.pt", "out/*/model_*_*.pt"),
        ("out/deadbeef/decade.pt", "out/deadbeef/decade.pt"),
        ("logs/pt/spiking_resnet18_b4_e30_sgd_lr0.1_wd0.0_ls0.1_ma0.0_ca0.0_sbn0_ra0_re0.1_aaugta_wide_size32_40_32_seed2020_T2/"
         "checkpoint_5.pth", "logs/pt/spiking_resnet*/checkpoint_*.pth"),  # spikingjelly: too long, and nothing was advised
        ("out/checkpoint-500/model-00001-of-00002.safetensors", "out/checkpoint-*"),
        ("global_step100/rank0.pt", "global_step*"),
        ("run[1]/best.pt", "run?1?/best.pt"),
        ("out/last.ckpt", "out/last*.ckpt"), ("out/last-v1.ckpt", "out/last*.ckpt"), ("epoch=3-v2.ckpt", "epoch=*.ckpt"),
        ("dqn/DQN_Pong-v1_4050ce10_26_11_28-06_30_25/q_loss.csv", "dqn/DQN_Pong-v*_*_*_*_*-*_*_*/q_loss.csv"),  # TorchRL
        ("weights.h5", "weights.h5"),
        ("model/params.00012", "model/params.*"),
        ("output/bert.model.ep2", "output/bert.model.ep*"), ("out/model.step_100", "out/model.step_*"),
        ("clip.mp4", "clip.mp4"), ("a/model.pt2", "a/model.pt2"),
    ],
)  # fmt: skip
def test_the_pattern_for_a_file(path: str, pattern: str) -> None:
    assert pattern_of(path) == pattern


def test_a_large_work_directory_costs_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder with more than its share the rest is passed over, and other folders still get theirs."""
    monkeypatch.setattr(new_files, "_DIRECTORY_MAX", 20)
    monkeypatch.setattr(new_files, "_ENTRIES_MAX", 40)
    looked: list[str] = []
    plausible = overlooked.plausible
    monkeypatch.setattr(overlooked, "plausible", lambda path, moving: (looked.append(path), plausible(path, moving))[1])
    for number in range(100):
        write(tmp_path / "work" / "data" / f"{number}.png", "a picture")
    write(tmp_path / "work" / "checkpoint" / "10.pt", zipped())
    for name, written_s in (("data", 2_000_000_000), ("checkpoint", 1_000_000_000)):
        os.utime(tmp_path / "work" / name, (written_s, written_s))
    assert found(launch(tmp_path)) == ["checkpoint/*.pt"]
    assert len(looked) == 4


def advised(root: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, names: tuple[str, ...]) -> str:
    """What is told of a pattern when these files are there, in the order in which they are written."""
    it, progress = begun(root, checkpoint_path=pattern)
    step(progress, 1, ago_s=65)
    step(progress, 3, ago_s=0)
    for number, name in enumerate(names):
        path = write(root / "work" / name, b"x")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    (text,) = later(it, monkeypatch)
    return text


def test_how_the_data_is_split_is_no_checkpoint(tmp_path: Path) -> None:
    """Seen of SchNetPack, which failed before its first checkpoint: `--checkpoint runs/two/split.npz` was advised."""
    for name in ("runs/two/split.npz", "runs/two/best_split-ckpt.npz", "runs/two/splitter.npz"):
        write(tmp_path / "work" / name, zipped())
    assert found(launch(tmp_path)) == ["runs/two/best_split-ckpt.npz", "runs/two/splitter.npz"]


def test_what_was_evaluated_is_no_checkpoint(tmp_path: Path) -> None:
    """Stable-Baselines3's zoo: `--checkpoint logs/ppo/CartPole-v1_2/evaluations.npz` was advised all the time that it ran."""
    for age, name in enumerate(("evaluations.npz", "rl_model_2000_steps.zip")):
        path = write(tmp_path / "work" / "logs" / name, zipped())
        os.utime(path, (2000 - age, 2000 - age))
    assert found(launch(tmp_path)) == ["logs/rl_model_*_steps.zip"]


def test_files_of_one_step_that_are_each_a_checkpoint_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TensorFlow estimator writes three files for each step: a restart would be given one of them."""
    it, progress = begun(tmp_path, checkpoint_path="out/model.ckpt-*")
    step(progress, 1, ago_s=65)
    step(progress, 200, ago_s=0)
    write(tmp_path / "work" / "out" / "model.ckpt-200.index", b"x")
    assert later(it, monkeypatch) == []
    for number in (200, 400):
        for suffix in ("index", "meta", "data-00000-of-00001"):
            write(tmp_path / "work" / "out" / f"model.ckpt-{number}.{suffix}", b"x")
    alone = "several files of one step match 'out/model.ckpt-*', and each is a checkpoint of its own, of which a restart is given one"
    advised = "out/model.ckpt-{step}.*"
    assert later(it, monkeypatch) == [f"{alone}; if they belong together, write --checkpoint '{advised}'"]
    assert [(one.step, one.name) for one in candidates(Glob(advised, str(tmp_path / "work")))] == [
        (200, "out/model.ckpt-200.*"), (400, "out/model.ckpt-400.*"),
    ]  # fmt: skip
    it.finish()
    assert told(it) == []


@pytest.mark.parametrize("names", [("ckpt-200.pt", "ckpt-400.pt"), ("best-step-200.pt", "step-200.pt"), ("200.pt", "200.json")])
def test_files_that_are_checkpoints_of_their_own_are_not(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        write(tmp_path / "out" / name, b"x")
    assert apart(candidates(Glob("out/*", str(tmp_path)))) is None


def test_an_advised_pattern_matches_whatever_the_names_are(tmp_path: Path) -> None:
    for suffix in ("index", "meta"):
        write(tmp_path / "run[1]" / f"m*{{x}}[a].ckpt-200.{suffix}", b"x")
    advised = apart(candidates(Glob("run*/*", str(tmp_path))))
    assert advised == "run?1?/m??x??a?.ckpt-{step}.*"
    assert [one.step for one in candidates(Glob(advised, str(tmp_path)))] == [200]


def test_a_file_that_belongs_to_a_checkpoint_and_is_in_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gensim writes large matrices beside the model, and a fork of the stored model could not load them."""
    it, progress = begun(tmp_path, checkpoint_path="models/*.model")
    step(progress, 1, ago_s=65)
    step(progress, 3, ago_s=0)
    for name in ("w2v_epoch3.model", "w2v_epoch3.model.old", "w2v_epoch3.model.sha256"):
        write(tmp_path / "work" / "models" / name, b"x")
    assert later(it, monkeypatch) == []
    for name in ("w2v_epoch3.model.old", "w2v_epoch3.model.sha256"):
        (tmp_path / "work" / "models" / name).unlink()
    for number in (3, 4):
        write(tmp_path / "work" / "models" / f"w2v_epoch{number}.model", b"x")
        write(tmp_path / "work" / "models" / f"w2v_epoch{number}.model.wv.vectors.npy", b"x")
        said = f"models/w2v_epoch{number}.model.wv.vectors.npy is in no checkpoint; if models/w2v_epoch{number}.model cannot be loaded without it"
        assert later(it, monkeypatch) == ([f"{said}, write --checkpoint 'models/w2v_epoch{{step}}.model*'"] if number == 3 else [])
    both = candidates(Glob("models/w2v_epoch{step}.model*", str(tmp_path / "work")))
    assert [(one.step, len(one.roots)) for one in both] == [(3, 2), (4, 2)]


def test_all_files_beside_a_checkpoint_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ParlAI: `.trainstats` has the counters. A program that others wrote saves where it does: its directory is named."""
    names = ("", ".dict", ".opt", ".trainstats")
    text = advised(tmp_path / "dir", monkeypatch, "run/m.checkpoint", tuple(f"run/m.checkpoint{name}" for name in names))
    listed = "run/m.checkpoint.dict, run/m.checkpoint.opt, run/m.checkpoint.trainstats"
    assert text == f"{listed} are in no checkpoint; if run/m.checkpoint cannot be loaded without them, write --checkpoint run"
    text = advised(tmp_path / "top", monkeypatch, "m", tuple(f"m{name}" for name in (*names, ".vocab")))
    told = "m.dict, m.opt, m.trainstats and 1 more are in no checkpoint; if m cannot be loaded without them, save all into one directory"
    assert text == told


def test_a_pattern_that_matches_a_fixed_name_and_others_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that looks for `base_checkpoint` found nothing after a restart: the newest match was `base_epoch_4_checkpoint`."""
    said = "files of different names match 'out/base*': out/base_checkpoint, out/base_epoch_2; a restart is given the newest, and others "
    for arguments in (None, "--resume {path}"):
        at = tmp_path / str(arguments)[:4]
        it, progress = begun(at, checkpoint_path="out/base*", resume_arguments=arguments)
        step(progress, 1, ago_s=65)
        step(progress, 3, ago_s=0)
        for number in (1, 2):
            write(at / "work" / "out" / "base_checkpoint", b"x" * number)
            write(at / "work" / "out" / f"base_epoch_{number}", b"x")
        told = later(it, monkeypatch)
        assert [text[: len(said)] for text in told] == ([] if arguments else [said])
        write(at / "work" / "out" / "base_epoch_3", b"x")
        assert later(it, monkeypatch) == []
