"""The wheel, built from this checkout and installed into an empty environment: what is in it, how big it is, and that it works."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster import __version__

ROOT = Path(__file__).parents[2]
CORE_MAX_MB = 110  # of which 57 are NumPy, for the scheduler (decision 9)
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("wheel")]


def run(*argv: str, cwd: Path, home: Path | None = None) -> str:
    """What a command prints that must succeed, in an environment that knows nothing of this one."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "TRAINMASTER_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    path = [str(Path(argv[0]).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    environment |= {"PATH": os.pathsep.join(path), "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    environment |= {"TRAINMASTER_HOME": str(home)} if home else {}
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(directory), str(ROOT), cwd=directory)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the core alone; its folder of commands."""
    directory = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", str(directory / "venv"), cwd=directory)
    run(str(directory / "venv/bin/python"), "-m", "pip", "install", "-q", str(wheel), cwd=directory)
    return directory / "venv" / "bin"


@pytest.fixture
def home(installed: Path, tmp_path: Path) -> Iterator[Path]:
    """A home whose server is gone afterwards."""
    yield tmp_path / "home"
    run(str(installed / "tm"), "down", "--cancel", cwd=tmp_path, home=tmp_path / "home")


def test_it_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    source = ROOT / "src"
    wanted = {path.relative_to(source).as_posix() for path in (source / "trainmaster").rglob("*") if path.is_file()}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == {name for name in wanted if "__pycache__" not in name}
    assert {"trainmaster/agent/__main__.py", "trainmaster/store/migrations/script.py.mako", "trainmaster/py.typed"} <= held
    assert any(re.fullmatch(r"trainmaster/store/migrations/versions/r0001_\w+\.py", name) for name in held)


def test_the_core_is_small(installed: Path) -> None:
    (packages,) = installed.parent.glob("lib/python3*/site-packages")
    beside = re.compile(r"(pip|setuptools|wheel|_distutils_hack|distutils-precedence)\b")
    sizes = {
        entry.name: sum(file.stat().st_size for file in (entry, *entry.rglob("*")) if file.is_file() and file.suffix != ".pyc")
        for entry in packages.iterdir()
        if not beside.match(entry.name)
    }
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:8]
    assert sum(sizes.values()) <= CORE_MAX_MB * 1e6, f"{sum(sizes.values()) / 1e6:.1f} MB, the largest: {largest}"


def test_it_tells_its_version(installed: Path, tmp_path: Path) -> None:
    assert __version__ in run(str(installed / "tm"), "--version", cwd=tmp_path)
    assert __version__ in run(str(installed / "python"), "-m", "trainmaster", "--version", cwd=tmp_path)


def test_a_job_runs(installed: Path, home: Path, tmp_path: Path) -> None:
    program = "from trainmaster import sdk; sdk.report(step=1, loss=0.5); print('trained')"
    (tmp_path / "train.py").write_text(program)
    tm = str(installed / "tm")
    assert "trained" in run(tm, "run", "--", "python", "train.py", cwd=tmp_path, home=home)
    assert '"succeeded"' in run(tm, "show", "@last", "--json", cwd=tmp_path, home=home)
