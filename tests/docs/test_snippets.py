"""Every snippet of the documents runs, and every spec in them is valid."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from snippets import DOCUMENTS, ROOT, Snippet, snippets

from trainmaster.spec.cluster.document import is_cluster
from trainmaster.spec.cluster.document import load_bytes as load_cluster
from trainmaster.spec.document import load_bytes

ALL = [snippet for document in DOCUMENTS for snippet in snippets(document)]
SHORTER = {"README.md": ("examples/digits_quick/train.py", "STEPS = 400\n", "STEPS = 40\n")}  # its minute is the reader's, not ours
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
STORIES = [document for document in DOCUMENTS if any(snippet.action == "run" for snippet in snippets(document))]


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def own_server(story: list[Snippet]) -> bool:
    """Whether a page starts or stops its server, or names jobs by number: then no other page's jobs may be there."""
    return bool(re.search(r"\btm (up|down)\b|TRAINMASTER_HOME|\b[a-z]+-\d+\b", script(story)))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of a server for all pages that take it as they find it."""
    home = tmp_path_factory.mktemp("shared") / "home"
    environment = {**os.environ, "TRAINMASTER_HOME": str(home), "PATH": PATH}
    subprocess.run(["tm", "up"], env=environment, capture_output=True, timeout=60, check=True)
    yield home
    subprocess.run(["tm", "down", "--cancel"], env=environment, capture_output=True, timeout=60)


def script(story: list[Snippet]) -> str:
    """The document's blocks as one bash script, so that a variable set in one is there in the next."""
    return "\n".join(f"echo '== {snippet.place}'\n{snippet.text}" for snippet in story)


def test_every_snippet_says_what_a_test_does_with_it() -> None:
    found = [snippet.place for snippet in ALL if not snippet.action or (snippet.action == "skip" and not snippet.argument)]
    assert found == [], "put `<!-- test: run -->`, `<!-- test: file NAME -->` or `<!-- test: skip WHY -->` above the block"


@pytest.mark.parametrize("document", STORIES, ids=name)
def test_the_story_of_a_document_runs(document: Path, tmp_path: Path, shared: Path) -> None:
    directory = tmp_path / "here"
    directory.mkdir()
    shutil.copytree(ROOT / "examples", directory / "examples", ignore=shutil.ignore_patterns("out", "__pycache__"))
    if name(document) in SHORTER:
        program, long, short = SHORTER[name(document)]
        text = (directory / program).read_text()
        assert long in text
        (directory / program).write_text(text.replace(long, short))
    story = []
    for snippet in snippets(document):
        if snippet.action == "file":
            (directory / snippet.argument).write_text(snippet.text)
        elif snippet.action == "run":
            assert snippet.language == "bash", f"{snippet.place}: only bash is run; make the program a file that it starts"
            story.append(snippet)
    (tmp_path / "own").mkdir()
    home = tmp_path / "home" if own_server(story) else shared
    environment = {**os.environ, "TRAINMASTER_HOME": str(home), "TMPDIR": str(tmp_path / "own"), "PATH": PATH}
    try:
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script(story)],
            cwd=directory, env=environment, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    finally:
        for made in (tmp_path / "home", *(tmp_path / "own").iterdir()):
            ended = {**environment, "TRAINMASTER_HOME": str(made)}
            subprocess.run(["tm", "down", "--cancel"], env=ended, capture_output=True, timeout=60)
        if home == shared:
            subprocess.run(["tm", "cancel", "--all", "--now", "--yes"], env=environment, capture_output=True, timeout=60)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("document", STORIES, ids=name)
def test_what_a_page_tries_out_is_gone_with_it(document: Path) -> None:
    """Pages are read one after the other, on a server that may have been there before."""
    lines = script([snippet for snippet in snippets(document) if snippet.action == "run"]).splitlines()
    if not any(line.startswith(("tm up --nodes", "tm apply")) for line in lines):
        return
    before = lines[: next(at for at, line in enumerate(lines) if line.startswith("tm up"))]
    assert before[-1].startswith("export TRAINMASTER_HOME=$(mktemp -d)"), "it begins with a home of its own"
    assert [line.partition("  ")[0] for line in lines[-2:]] == ["tm down --cancel", "unset TRAINMASTER_HOME"], "and ends it"


def specs() -> list[tuple[str, bytes]]:
    """Every YAML block of the documents, and every spec of the examples."""
    blocks = [(snippet.place, snippet.text.encode()) for snippet in ALL if snippet.language == "yaml"]
    files = sorted((ROOT / "examples").rglob("*.yaml"))
    return [*blocks, *((str(path.relative_to(ROOT)), path.read_bytes()) for path in files)]


@pytest.mark.parametrize(("place", "text"), specs(), ids=[place for place, _ in specs()])
def test_every_spec_is_valid(place: str, text: bytes) -> None:
    (load_cluster if is_cluster(text, place) else load_bytes)(text, place)
