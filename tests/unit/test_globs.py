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


@pytest.mark.parametrize(
    ("pattern", "path", "step"),
    [
        ("*{step}.pt", "ckpt-120.pt", 120),  # was 0: the star took what it could
        ("v2{step}.pt", "v2100.pt", 100),
        ("out/{step}*", "out/77x", 77),
        ("**/{step}/**/m", "a/5/b/c/m", 5),
        ("{step}-{step}.pt", "12-12.pt", 12),
        ("{step}-{step}.pt", "12-13.pt", None),
        ("out/{step}", "out/" + "9" * 30, None),
        ("out/step*", "out/step" + "9" * 5000, None),
        ("*.pt", "ckpt-2026-11-23.pt", None),  # was 23: resumed "from step 23" on the 23rd
        ("*.pt", "ckpt_20261123-023015.pt", None),
        ("*.pt", "2026_11_23_14_05_00.pt", None),
        ("*.pt", "20261123140500.pt", None),
        ("*.pt", "2026-11-23-step1500.pt", 1500),
        ("*/m", "20261123-140500-resnet-7/m", 7),
        ("*.pt", "ckpt-20000000.pt", 20_000_000),
        ("*.pt", "ckpt-20101112.pt", 20_101_112),
        ("*.pt", "2026-11-23-500.pt", 500),
        ("{step}.pt", "20261123140500.pt", 20261123140500),
        ("outputs/*/*/last.pt", "outputs/2026-11-23/23-33-29/last.pt", None),  # Hydra's directories: was 29, the seconds
        ("outputs/*/*/step_*.pt", "outputs/2026-11-23/23-33-29/step_70.pt", 70),
        ("outputs/*/*/*.pt", "outputs/2026-11-23/23-33-29/model.pt", None),
        ("*/*.ckpt", "2026-11-23_23.33.29/epoch=3-step=80.ckpt", 80),
        ("lightning_logs/*/checkpoints/last.ckpt", "lightning_logs/version_3/checkpoints/last.ckpt", None),  # was 3, the start's number
        ("out/*.ckpt", "out/epoch=3-step=80-v1.ckpt", 80),  # was 1: Lightning's second file of that name
        ("out/*.ckpt", "out/last-v1.ckpt", None),
        ("runs/*/m.pt", "runs/run-7/m.pt", None),
        ("out/*.pt", "out/model_v2_500.pt", 500),
    ],
)
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
