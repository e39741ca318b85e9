"""What `deploy/` holds fits the rest: the lock has every dependency at its pinned version, the unit and the container run `tm`."""

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from effort import nightly

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def pins(path: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([\w.+-]+)", path.read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_the_lock_has_every_dependency_at_its_version_with_digests() -> None:
    locked, constraints = pins(DEPLOY / "requirements.lock"), pins(ROOT / "constraints.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.sub(r"[-_.]+", "-", re.split(r"[<>=\[;! ]", one)[0]).lower() for one in project["dependencies"]}
    assert wanted - set(locked) == set(), "the dependencies have changed: run `make lock`"
    assert {name: version for name, version in locked.items() if constraints.get(name) != version} == {}, "run `make lock`"
    entries = re.split(r"^(?=\w)", (DEPLOY / "requirements.lock").read_text(), flags=re.MULTILINE)[1:]
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry)] == []


def test_every_dependency_of_the_core_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.sub(r"[-_.]+", "-", re.split(r"[<>=\[;! ]", one)[0]).lower() for one in project["dependencies"]}
    text = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", text, re.MULTILINE))
    brought = {name: {dist.lower().replace("_", "-") for dist in dists} for name, dists in packages_distributions().items()}
    assert wanted - {dist for name in imported for dist in brought.get(name, ())} == set(), "nothing in src imports it"


@nightly
@pytest.mark.skipif(find_spec("uv") is None, reason="installed with the extra `dev`")
def test_a_pin_that_a_supported_python_cannot_take_is_found(tmp_path: Path) -> None:
    """With this pin pip searched for 20 minutes on Debian 12: it needs Python 3.11.5."""
    text = (ROOT / "constraints.txt").read_text()
    (tmp_path / "pins.txt").write_text(re.sub(r"^pymdown-extensions==.*", "pymdown-extensions==13.1", text, flags=re.MULTILINE))
    command = [sys.executable, str(DEPLOY / "pins.py"), str(tmp_path / "pins.txt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[0]) == (1, "Python 3.11.2, torch for cuda: error: No solution found when resolving dependencies")
    assert "pymdown-extensions==13.1 depends on Python>=3.11.5" in done.stdout
    assert re.search(r"^Python 3\.12, torch for cuda: \d+ packages fit$", done.stdout, re.MULTILINE)


def test_the_unit_keeps_jobs_alive() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "trainmaster.service")
    service = unit["Service"]
    assert (service["Type"], service["KillMode"], service["Restart"]) == ("notify", "process", "on-failure")
    assert "tm up --foreground" in service["ExecStart"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "trainmaster.service").read_text()
    copy = tmp_path / "trainmaster.service"
    copy.write_text(text.replace("/opt/trainmaster/bin/tm", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "trainmaster.service" in line]) == (0, [])


def test_the_container_installs_by_digest_and_starts_the_server() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE)
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert "--require-hashes -r /tmp/requirements.lock" in text
    assert 'CMD ["up", "--foreground"' in text
