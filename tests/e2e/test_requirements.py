"""`environment: {requirements: FILE}` with a real interpreter and pip, offline: built once, said while it is, ended by a cancel."""

import json
import os
import socket
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import nightly
from running import Tm, server
from waiting import deadline

pytestmark = pytest.mark.timeout(400)  # making an environment takes long where the machine is busy
PROBE = "import sys, tiny_thing; print(tiny_thing.WORDS, sys.prefix)"


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    with server(tmp_path_factory.mktemp("requirements")) as made:
        yield made


def wheel(directory: Path) -> Path:
    """A package of one module, as pip installs it."""
    info = "tiny_thing-1.0.dist-info"
    path = directory / "tiny_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_thing.py", "WORDS = 'installed'\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"tiny_thing.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def spec(tm: Tm, name: str, **variables: str) -> str:
    tm.file("requirements.txt", "tiny-thing==1.0\n")
    written = {
        "name": name, "command": ["python", "-c", PROBE], "resources": {"cpus": 0.1},
        "environment": {"requirements": "requirements.txt", "variables": {"PIP_NO_CACHE_DIR": "1", **variables}},
    }  # fmt: skip
    return str(tm.file(f"{name}.json", json.dumps(written)))


def installed_in(place: Path) -> dict[str, str]:
    """What an environment's own Python finds installed in it."""
    code = "import importlib.metadata as m, json; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
    done = subprocess.run([place / "bin" / "python", "-I", "-c", code], capture_output=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    assert found["tiny-thing"] == "1.0"
    return found


def makers(tm: Tm) -> list[str]:
    """The processes that make an environment of this home, whoever they belong to."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(tm.home.virtual_environments) in line and "pip" in line:
            found.append(entry)
    return found


@nightly  # howto/environments.md tries it in every run
def test_jobs_share_an_environment_that_is_made_once(tm: Tm) -> None:
    wheel(tm.work)
    path = spec(tm, "shares", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tm.work), PIP_CONFIG_FILE="/dev/null")
    jobs = [tm.submit(path) for _ in range(2)]
    deadline(lambda: any("environment" in tm.show(job)["reason"] for job in jobs), "one to say what it does", 120, 0.1)
    for job in jobs:
        tm.state(job, "succeeded", timeout_s=240)
    prefixes = {tm.ok("logs", job).strip() for job in jobs}
    (made,) = tm.home.virtual_environments.glob("*.json")
    assert prefixes == {f"installed {str(made).removesuffix('.json')}"}
    place = Path(str(made).removesuffix(".json"))
    assert (place / "bin" / "python").exists()
    for job in jobs:
        (recorded,) = tm.json("show", job, "--provenance")["environments"].values()
        assert (recorded["python"]["path"], recorded["packages"]) == (str(place / "bin" / "python"), installed_in(place))


@nightly
def test_a_cancel_ends_the_making(tm: Tm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as index:  # one that never answers
        url = f"http://127.0.0.1:{index.getsockname()[1]}/simple"
        job = tm.submit(spec(tm, "hangs", PIP_INDEX_URL=url, PIP_CONFIG_FILE="/dev/null", PIP_FIND_LINKS=""))
        index.settimeout(240)
        connection, _ = index.accept()
        with connection:
            shown = tm.show(job)
            assert (shown["state"], shown["reason"]) == ("starting", "building the environment from requirements.txt")
            assert makers(tm) != []
            tm.ok("cancel", job)
            assert tm.ended(job, 25)["state"] == "cancelled"
            assert makers(tm) == []
    assert len(list(tm.home.virtual_environments.glob("*.json"))) == 1
