"""Every snippet of the documents runs, and every spec in them is valid."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from snippets import DOCUMENTS, ROOT, Snippet, snippets

from trainmaster.spec.cluster.document import is_cluster
from trainmaster.spec.cluster.document import load_bytes as load_cluster
from trainmaster.spec.document import load_bytes

ALL = [snippet for document in DOCUMENTS for snippet in snippets(document)]
SHORTER = {"README.md": ("examples/digits_quick/train.py", "STEPS = 400\n", "STEPS = 40\n")}  # its minute is the reader's, not ours
STORIES = [document for document in DOCUMENTS if any(snippet.action == "run" for snippet in snippets(document))]
FIRST = ("README.md", "docs/tutorial/first-job.md", "docs/tutorial/resume-and-compare.md")
NAMES = sorted({found for snippet in ALL for found in re.findall(r"(?:^name: |--name )([a-z][a-z0-9-]*)", snippet.text, re.MULTILINE)} | {"python3", "train", "digits"})
BARE = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


class Reader:
    """Somebody at a shell of a fresh account: no variable of ours is set, `python3` has no package, `tm` is on the PATH.

    The server has jobs of the names that the documents use, so that no page relies on the number of one.
    """

    def __init__(self, directory: Path) -> None:
        self.user, self.own, programs = directory / "user", directory / "own", directory / "bin"
        for made in (self.user, self.own, programs):
            made.mkdir(parents=True)
        (programs / "tm").symlink_to(Path(sys.executable).with_name("tm"))
        for python in ("python3", "python"):
            (programs / python).symlink_to(BARE)
        ours = re.compile("TRAINMASTER_|XDG_|PYTHON|VIRTUAL_ENV|PYTEST")
        kept = {name: value for name, value in os.environ.items() if not ours.match(name)}
        self.path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**kept, "HOME": str(self.user), "TMPDIR": str(self.own), "PATH": self.path}
        self.home = self.user / ".local/state/trainmaster"

    def tm(self, *arguments: str, home: Path | None = None) -> None:
        given = {} if home is None else {"TRAINMASTER_HOME": str(home)}
        subprocess.run(["tm", *arguments], env={**self.environment, **given}, capture_output=True, timeout=60, check=home is None)

    def begin(self) -> None:
        """A server with some jobs, which have ended."""
        self.tm("up")
        url, token = json.loads((self.home / "server.json").read_text())["url"], (self.home / "token").read_text().strip()
        jobs = {"jobs": [{"spec": {"name": name, "command": "true"}, "hold": "of another page"} for name in NAMES]}
        httpx.post(f"{url}/api/v1/jobs/batch", json=jobs, headers={"Authorization": f"Bearer {token}"}).raise_for_status()
        self.tm("cancel", "--all", "--now", "--yes")

    def end_others(self) -> None:
        """End the servers of homes that a page made and left running."""
        for home in self.own.iterdir():
            if (home / "server.json").exists():
                self.tm("down", "--cancel", home=home)

    def end(self) -> None:
        self.end_others()
        self.tm("down", "--cancel", home=self.home)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Somebody who reads one page after the other, with one server."""
    reader = Reader(tmp_path_factory.mktemp("reader"))
    reader.begin()
    yield reader
    reader.end()


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Reader]:
    """Somebody who stopped the server before a page that starts and stops it."""
    reader = Reader(tmp_path / "newcomer")
    reader.begin()
    reader.tm("down")
    yield reader
    reader.end()


def script(story: list[Snippet]) -> str:
    """The document's blocks as one bash script, so that a variable set in one is there in the next."""
    return "\n".join(f"echo '== {snippet.place}'\n{snippet.text}" for snippet in story)


def test_every_snippet_says_what_a_test_does_with_it() -> None:
    found = [snippet.place for snippet in ALL if not snippet.action or (snippet.action == "skip" and not snippet.argument)]
    assert found == [], "put `<!-- test: run -->`, `<!-- test: file NAME -->` or `<!-- test: skip WHY -->` above the block"


def prepared(document: Path, directory: Path) -> list[Snippet]:
    """The blocks to run, with the files of the page in `directory`, and the examples if it uses them."""
    if any("examples/" in snippet.text for snippet in snippets(document)):
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
    return story


def follow(reader: Reader, document: Path, directory: Path, own: Path | None = None) -> None:
    """Paste a page into a shell. It works, and leaves the shell's variables as they were. `own`: the home set in the shell."""
    directory.mkdir()
    story = prepared(document, directory)
    needs = any(snippet.argument.startswith("with ") for snippet in story)
    environment = {**reader.environment, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{reader.path}"} if needs else reader.environment
    environment = {**environment, **({} if own is None else {"TRAINMASTER_HOME": str(own)})}
    before, after = reader.user / "before", reader.user / "after"
    lines = f"env -0 > {before}\n{script(story)}\nenv -0 > {after}"
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines],
        cwd=directory, env=environment, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    assert variables(after) == variables(before)


def variables(written: Path) -> set[str]:
    """What `env -0` wrote, without what the shell itself changes. An empty home counts as none (`Home.default`)."""
    found = set(written.read_text().split("\0")) - {"TRAINMASTER_HOME="}
    return {one for one in found if not one.startswith(("_=", "PWD=", "OLDPWD=", "SHLVL="))}


@pytest.mark.parametrize("document", [one for one in STORIES if name(one) not in FIRST], ids=name)
def test_the_story_of_a_document_runs(document: Path, tmp_path: Path, shared: Reader) -> None:
    """Pages are read in any order, on a server that was there before and is there afterwards."""
    server = (shared.home / "server.json").read_text()
    try:
        follow(shared, document, tmp_path / "here")
        assert (shared.home / "server.json").read_text() == server, "the page stopped the reader's server"
    finally:
        shared.end_others()
        shared.tm("cancel", "--all", "--now", "--yes", home=shared.home)


@pytest.mark.parametrize("document", [one for one in STORIES if name(one) in FIRST], ids=name)
def test_the_story_of_a_first_document_runs(document: Path, tmp_path: Path, newcomer: Reader) -> None:
    """The pages that start the server, kill it and stop it."""
    follow(newcomer, document, tmp_path / "here")


def test_a_page_that_leaves_variables_behind_is_noticed(tmp_path: Path, shared: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Snippet(ROOT / "page.md", 1, "bash", "run", "", 'export LEFT=1\ntest -z "${TRAINMASTER_HOME+x}"\n! python3 -c "import click"\n')
    monkeypatch.setattr(sys.modules[__name__], "snippets", lambda document: [page])
    with pytest.raises(AssertionError, match="LEFT=1"):
        follow(shared, page.document, tmp_path / "here")


def test_a_page_gives_back_the_home_that_a_shell_has(tmp_path: Path, shared: Reader) -> None:
    """The page's server is another one, and the variable has its value again."""
    own = tmp_path / "a home"
    follow(shared, ROOT / "docs/howto/elastic-jobs.md", tmp_path / "here", own)
    assert not own.exists()


@pytest.mark.parametrize("document", STORIES, ids=name)
def test_what_a_page_tries_out_is_gone_with_it(document: Path) -> None:
    """Pages are read one after the other, on a server that may have been there before."""
    lines = script([snippet for snippet in snippets(document) if snippet.action == "run"]).splitlines()
    homes = [at for at, line in enumerate(lines) if line.startswith("export TRAINMASTER_HOME=")]
    if homes:
        assert lines[homes[0] - 1].startswith("own=${TRAINMASTER_HOME:-} "), "it remembers the reader's home"
        assert lines[-1].startswith("export TRAINMASTER_HOME=$own "), "and gives it back"
    if not any(line.startswith(("tm up --nodes", "tm apply")) for line in lines):
        return
    up = next(at for at, line in enumerate(lines) if line.startswith("tm up"))
    assert lines[up - 1].startswith("export TRAINMASTER_HOME=$(mktemp -d) "), "it begins with a home of its own"
    assert lines[-2].startswith("tm down --cancel "), "and ends it"


def specs() -> list[tuple[str, bytes]]:
    """Every YAML block of the documents, and every spec of the examples."""
    blocks = [(snippet.place, snippet.text.encode()) for snippet in ALL if snippet.language == "yaml"]
    files = sorted((ROOT / "examples").rglob("*.yaml"))
    return [*blocks, *((str(path.relative_to(ROOT)), path.read_bytes()) for path in files)]


@pytest.mark.parametrize(("place", "text"), specs(), ids=[place for place, _ in specs()])
def test_every_spec_is_valid(place: str, text: bytes) -> None:
    (load_cluster if is_cluster(text, place) else load_bytes)(text, place)
