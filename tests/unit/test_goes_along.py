"""What is said of packages that are installed as editable: a job imports them from their source, not from its copy."""

import json
from pathlib import Path

import pytest

from trainmaster.cli.render.goes_along import draw
from trainmaster.client.goes_along import editable_outside
from trainmaster.client.submission import Draft, pack


def environment(root: Path, sources: dict[str, str]) -> dict[str, str]:
    """A virtual environment with these editable installs, and one that is none."""
    site = root / "lib" / "python3.11" / "site-packages"
    for name, url in {**{name: f"file://{source}" for name, source in sources.items()}, "plain": ""}.items():
        directory = site / f"{name}-1.0.dist-info"
        directory.mkdir(parents=True)
        if url:
            (directory / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}, "url": url}))
    (root / "bin").mkdir()
    (root / "bin" / "python").write_text("")
    (root / "bin" / "python").chmod(0o755)
    (root / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return {"PATH": str(root / "bin")}


@pytest.mark.parametrize("named", [True, False])
def test_editable_installs_are_found_without_their_python(tmp_path: Path, named: bool) -> None:
    shell = environment(tmp_path / "venv", {"mine": "/src/my%20code", "here": "/work", "inner": "/work/libs/inner"})
    spec = {"command": ["python", "train.py"]}
    if named:
        spec, shell = {**spec, "environment": {"python": str(tmp_path / "venv" / "bin" / "python")}}, {"PATH": "/nowhere"}
    found = {"inner": "/work/libs/inner", "mine": "/src/my code"}
    assert editable_outside(spec, shell, "/work") == found
    deep = {"command": "cd scripts && python scripts/train.py", "environment": spec.get("environment")}
    assert editable_outside(deep, shell, "/work") == {**found, "here": "/work"}
    assert editable_outside({"command": ["python"], "environment": {"requirements": "r.txt"}}, shell, "/work") == {}


def test_a_package_in_src_is_imported_from_the_work_directory_itself(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    shell = environment(tmp_path / "venv", {"here": str(work)})
    assert editable_outside({"command": ["python", "train.py"]}, shell, str(work)) == {"here": str(work)}


def test_a_console_script_imports_an_editable_install_from_its_source(tmp_path: Path) -> None:
    """Python looks beside the script first: that of a package is in `bin`, not in the copy."""
    shell = environment(tmp_path / "venv", {"here": "/work"})
    from_source = ("mytrain", ["mytrain", "--lr", "1"], "pytest -m slow", "python scripts/t.py", ["/venv/bin/mytrain"])
    assert [editable_outside({"command": one}, shell, "/work") for one in from_source] == [{"here": "/work"}] * len(from_source)
    from_copy = (
        "python t.py", "python ./t.py; true", "torchrun --nproc-per-node 2 -m mypkg.train", ["python", "-m", "mypkg.train"],
        "python -c 'import mypkg'", None,
    )  # fmt: skip
    assert [editable_outside({"command": one}, shell, "/work") for one in from_copy] == [{}] * len(from_copy)


def test_what_a_job_in_place_imports_from_elsewhere_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shell = environment(tmp_path / "venv", {"here": str(work), "inner": f"{work}/libs/inner", "mine": "/src/mine"})
    monkeypatch.setenv("PATH", shell["PATH"])
    for in_place, found in ((True, {"mine": "/src/mine"}), (False, {"here": str(work), "inner": f"{work}/libs/inner", "mine": "/src/mine"})):
        prepared = pack(Draft({"command": ["mytrain"]}, work, in_place))
        assert prepared.body["origin"]["editable"] == found


def test_all_that_goes_along_as_text() -> None:
    along = {
        "copied": [{"path": name, "bytes": 1000} for name in ("a.py", "pkg/b.py", "pkg/c/d.py")]
        + [{"path": name, "bytes": 0} for name in ("pkg/empty/", "results/")],
        "linked": [{"path": f"d{number:02}", "why": "git ignores it"} for number in range(14)],
        "left_out": [{"path": ".env", "why": "credentials may be in it"}], "note": "git is not installed",
        "variables": {"shell": ["PATH"], "job": ["A"]}, "editable": {"mine": "/src/mine"},
    }  # fmt: skip
    assert draw(along) == [
        "note      git is not installed",
        "copied         2 kB  pkg/  (2 files)",
        "               1 kB  a.py",
        "                0 B  results/  (empty)",
        "linked    d00, d01, d02, d03, d04, d05, d06, d07, d08, d09, d10, d11 and 2 more  (git ignores it)",
        "left out  .env  (credentials may be in it)",
        "imports   mine from /src/mine  (an editable install, not copied)",
        "variables PATH from this shell",
        "          A of the job",
    ]
