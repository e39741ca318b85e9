"""The documentation as a web site: built strictly, every page in it, and the first command near the top."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("site")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [str(Path(sys.executable).parent / "mkdocs"), "build", "--strict", "-q", "-d", str(directory)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def test_every_page_is_built_and_in_the_navigation(site: Path) -> None:
    start = (site / "index.html").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        if place != "index":
            assert (site / place / "index.html").is_file(), place
            assert f'href="{place}/"' in start, f"{place} is not in the navigation"


def test_the_first_command_is_at_the_top(site: Path) -> None:
    article = re.search(r"<article.*?</article>", (site / "index.html").read_text(), re.DOTALL)
    assert article is not None
    words = re.sub(r"<[^>]+>|\s+", " ", article[0]).split()
    assert words.index("tm") < 10, "who reads on a phone sees the first command without scrolling"
