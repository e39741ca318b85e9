"""Globs match as before, in time linear in the lengths of pattern and path."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.agent.files.globs import Glob

WILD = r"[*?\[]|\{step\}"


def former(pattern: str) -> re.Pattern[str]:
    """The regular expression that a pattern was before, which backtracks."""
    pieces, parts = [], pattern.split("/")
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            pieces.append(r"[^/].*" if last else r"(?:[^/]+/)*")
            continue
        out = [] if part.startswith(".") or not re.match(WILD, part) else [r"(?!\.)"]
        out += ["[^/]*" if character == "*" else "[^/]" if character == "?" else re.escape(character) for character in part]
        pieces.append("".join(out) + ("" if last else "/"))
    return re.compile("".join(pieces))


NAMES = st.sampled_from(["a", "b", "ab", ".a", "a1", "x.pt", "aab", "ba"])
COMPONENTS = st.sampled_from(["a", "*", "**", "a*", "*a", "*a*b", "?", "a?", ".*", "*.pt", "??", "a**b", "**b"])


@given(st.lists(COMPONENTS, min_size=1, max_size=4).filter(lambda parts: any("a" in part or "b" in part for part in parts)), st.lists(NAMES, min_size=1, max_size=5))
def test_a_path_is_owned_as_it_was(components: list[str], names: list[str]) -> None:
    """S9: a linear matcher in place of an expression that `**/` × 14 hung for ever."""
    pattern = "/".join(components)
    expression = former(pattern)
    wanted = any(expression.fullmatch("/".join(names[:count])) for count in range(1, len(names) + 1))
    assert Glob(pattern, "/work").owns("/".join(names)) == wanted


STEPS = {
    "what {step} matches, whatever it looks like": [
        ("*{step}.pt", "ckpt-120.pt", 120),  # was 0: the star took what it could
        ("v2{step}.pt", "v2100.pt", 100),
        ("out/{step}*", "out/77x", 77),
        ("**/{step}/**/m", "a/5/b/c/m", 5),
        ("{step}-{step}.pt", "12-12.pt", 12),
        ("{step}-{step}.pt", "12-13.pt", None),
        ("out/{step}", "out/" + "9" * 30, None),
        ("{step}.pt", "20261123140500.pt", 20261123140500),
    ],
    "beside a word for steps": [
        ("out/*.pt", "out/step_120.pt", 120),
        ("out/*.pt", "out/Step-00000120.pt", 120),
        ("out/*.pt", "out/iter100.pt", 100),
        ("out/*", "out/iter_0000100", 100),
        ("out/*", "out/global_step300", 300),
        ("out/*", "out/globalstep300", 300),
        ("out/*.zip", "out/ppo_cartpole_50000_steps.zip", 50000),
        ("out/*.nemo", "out/gpt--val_loss=2.31-step=1000-consumed_samples=16000.0.ckpt", 1000),
        ("out/step*", "out/step" + "9" * 5000, None),
        ("*.pt", "2026-11-23-step1500.pt", 1500),
        ("*.pt", "step_20261123.pt", 20_261_123),
        ("out/step_*/*.bin", "out/step_100/shard_3.bin", 100),  # was 3
        ("**/*.bin", "out/step_100/shard_3.bin", 100),
        ("outputs/*/*/step_*.pt", "outputs/2026-11-23/23-33-29/step_70.pt", 70),
        ("*/*.ckpt", "2026-11-23_23.33.29/epoch=3-step=80.ckpt", 80),
        ("out/*.ckpt", "out/epoch=3-step=80-v1.ckpt", 80),  # was 1: Lightning's second file of that name
        ("out/*.ckpt", "out/epoch=3-val_loss=0.12.ckpt", 3),
        ("out/*.pth", "out/epoch_12.pth", 12),
        ("out/*.pth", "out/resnet50_ep12.pth", 12),
        ("out/*.pt", "out/llama-7b-step100.pt", 100),
    ],
    "beside a word for a checkpoint": [
        ("out/checkpoint-*", "out/checkpoint-500", 500),
        ("output/*/chkpnt*.pth", "output/1f2e3d4c-9/chkpnt800.pth", 800),
        ("out/*.tar", "out/checkpoint-12.pth.tar", 12),
        ("out/*.pt", "out/ck-30.pt", 30),
        ("out/*", "out/ckpt.120", 120),
        ("out/*.pth", "out/model_0004999.pth", 4999),
        ("out/*.pt", "out/model_v2_500.pt", 500),
        ("out/*.hdf5", "out/weights.05-0.12.hdf5", 5),  # Keras: the epoch and the loss
        ("out/*.pt", "out/checkpoint_2_500.pt", 500),  # fairseq: the epoch and the update
        ("out/*.bin", "out/state_00000150_00000.bin", 150),  # llm.c: the step and the rank
        ("out/*.bin", "out/state_00000150_00003.bin", 150),
        ("out/*.pt", "out/checkpoint_1700000000_0100.pt", 100),  # a time
        ("out/*.pt", "out/model_12345_0100.pt", 100),  # a seed
        ("out/*", "out/model.ckpt-1000.data-00000-of-00001", 1000),
        ("*.pt", "ckpt-20000000.pt", 20_000_000),
        ("checkpoints/*", "checkpoints/1200", 1200),  # Orbax
        ("checkpoints/*.pt", "checkpoints/1200.pt", 1200),
    ],
    "a date or a time": [
        ("*.pt", "ckpt-2026-11-23.pt", None),  # was 23: resumed "from step 23" on the 23rd
        ("*.pt", "ckpt_20261123-023015.pt", None),
        ("*.pt", "ckpt-20101112.pt", None),
        ("*.pt", "2026_11_23_14_05_00.pt", None),
        ("*.pt", "20261123140500.pt", None),
        ("checkpoints/*", "checkpoints/20261123", None),
        ("*.pt", "2026-11-23-500.pt", None),
        ("outputs/*/*/last.pt", "outputs/2026-11-23/23-33-29/last.pt", None),  # Hydra's directories: was 29, the seconds
        ("outputs/*/*/*.pt", "outputs/2026-11-23/23-33-29/model.pt", None),
        ("outputs/**", "outputs/2026-11-23/23-33-36/model", None),
    ],
    "a version, a size, a hash, a shard, a template": [
        ("lightning_logs/*/checkpoints/last.ckpt", "lightning_logs/version_3/checkpoints/last.ckpt", None),  # was 3, the start's number
        ("results/*/fold_*/checkpoint_*.pth", "results/Trainer_100epochs__2d/fold_0/checkpoint_best.pth", None),  # was 100
        ("out/*.ckpt", "out/last-v1.ckpt", None),
        ("out/*.pt", "out/model-v2.1.pt", None),
        ("out/*.pt", "out/model-7b.pt", None),
        ("runs/*/m.pt", "runs/run-7/m.pt", None),
        ("*/m", "20261123-140500-resnet-7/m", None),
        ("out/*.pt", "out/ckpt-3f2a9c1.pt", None),
        ("out/*.pt", "out/ckpt-12e4567.pt", None),
        ("out/*.pt", "out/checkpoint-" + "1234567890" * 2 + ".pt", None),
        ("out/*.bin", "out/pytorch_model-00001-of-00002.bin", None),
        ("out/*.pt", "out/epoch_{epoch:03d}.pt", None),
        ("out/*.pt", "out/step_100k.pt", None),
        ("out/*", "out/77", None),
        ("out/*.pt", "out/best.pt", None),
        ("step_9/*.pt", "step_9/last.pt", None),  # no wildcard matches it
    ],
}


@pytest.mark.parametrize(("pattern", "path", "step"), [row for rows in STEPS.values() for row in rows])
def test_steps(pattern: str, path: str, step: int | None) -> None:
    assert Glob(pattern, "/work").step(path) == step


@pytest.mark.parametrize("pattern", ["out/[z-a]x", "out/[]", "out/[!]x]a", "out/[", "[[[[", "out/[a-", "[!z-a]", "a[\\d]"])
def test_a_class_that_is_none_is_no_fault(pattern: str, tmp_path: Path) -> None:
    """S9: a range that runs backwards was an error of the regular expressions, in the client and in the agent."""
    (tmp_path / "out").mkdir()
    glob = Glob(pattern, str(tmp_path))
    assert (glob.expand(), glob.owns("out/q"), glob.step("out/q")) == ([], False, None)


HOSTILE = {
    "**/" * 14 + "x.pt": ("a/" * 40 + "y", "a/" * 40 + "x.pt.y"),
    "**/a/" * 100 + "b": ("a/" * 1000 + "c",),
    "*a" * 60 + "b": ("a" * 255,),
    "out/" + "*" * 900 + "x": ("out/" + "y" * 255,),
    "*{step}*{step}*{step}x": ("1" * 255,),
    "*?*?*?*?*?*?*?*?*?*?*?z": ("a" * 255,),
    "[" * 900: ("[" * 255,),
    "**/*{step}*/**/*1*{step}": ("1/" * 100 + "11x",),
}


@pytest.mark.parametrize("pattern", HOSTILE)
def test_no_glob_holds_whoever_matches_it(pattern: str, tmp_path: Path) -> None:
    """S9: `**/` fourteen times hung the submit and the agent."""
    began = time.thread_time()
    glob = Glob(pattern, str(tmp_path))
    for path in HOSTILE[pattern]:
        assert not glob.owns(path)
        assert glob.step(path) is None
    place = tmp_path.joinpath(*["a"] * 12)
    place.mkdir(parents=True)
    (place / "y").touch()
    assert glob.expand() == []
    assert time.thread_time() - began < 2.0  # 20 ms where it was measured
