"""The SDK in a job's own environment: it can be imported by every Python from 3.9 on, and hides nothing of the job."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from interpreters import bare_venv, others

from trainmaster.agent import pack

SOURCE = Path(pack.__file__).parents[1]
USES = """
import json, os, pathlib, sys, warnings
from trainmaster import sdk
import trainmaster.sdk.cadence, trainmaster.sdk.saver
import trainmaster.wire.disks, trainmaster.wire.launch, trainmaster.wire.messages
sdk.report(step=1, loss=0.5)
with sdk.checkpoint(1) as directory:
    (directory / "state").write_text("x")
pathlib.Path("plot.png").write_text("p")
sdk.artifact("plot.png")
told = [sdk.job(), sdk.attempt(), sdk.rank(), sdk.world_size(), sdk.params(), sdk.resume_dir(), sdk.should_stop(), sdk.dropped()]
beside = [name for name in ("click", "pydantic", "yaml") if __import__("importlib.util").util.find_spec(name)]
print(json.dumps([sdk.__file__, told, beside, sys.version_info[:2]]))
"""
NEWER_MODULES = {  # of the standard library, and absent in 3.9
    "tomllib", "annotationlib", "compression", "_colorize", "asyncio.taskgroups", "asyncio.timeouts", "asyncio.mixins",
    "importlib.resources.abc", "wsgiref.types", "string.templatelib", "pathlib.types", "concurrent.interpreters",
}  # fmt: skip
NEWER_NAMES = {  # builtins and members of modules, absent in 3.9
    "aiter", "anext", "EncodingWarning", "ExceptionGroup", "BaseExceptionGroup", "PythonFinalizationError", "StrEnum", "pairwise",
    "batched", "TypeAlias", "TypeGuard", "ParamSpec", "Concatenate", "Self", "Never", "NotRequired", "Required", "LiteralString",
    "assert_never", "Unpack", "TypeVarTuple", "override", "NoneType", "UnionType", "EllipsisType", "KW_ONLY", "aclosing", "UTC",
    "stdlib_module_names", "orig_argv", "get_annotations", "file_digest", "hardlink_to", "is_junction", "bit_count", "add_note",
}  # fmt: skip


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return pack.lay_out_sdk(str(tmp_path_factory.mktemp("sdk")))


def run(python: str | Path, directory: Path, program: str, path: str) -> list[object]:
    """What a program prints as JSON, run like a rank."""
    (directory / "checkpoints").mkdir(exist_ok=True)
    (directory / "train.py").write_text(program)
    variables = {
        "PATH": os.environ["PATH"], "PYTHONPATH": path, "TRAINMASTER_SDK": str(directory / "rank0.sdk"), "TRAINMASTER_JOB": "digits-1",
        "TRAINMASTER_CHECKPOINT_DIR": str(directory / "checkpoints"), "TRAINMASTER_PARAMS": '{"lr": 0.1}',
    }  # fmt: skip
    done = subprocess.run([python, "-W", "error", "train.py"], cwd=directory, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told: list[object] = json.loads(done.stdout)
    return told


def used(python: str | Path, directory: Path, laid_out: str, version: tuple[int, ...]) -> None:
    """Run a program that uses the SDK, and check what it reported."""
    told = run(python, directory, USES, laid_out)
    own = f"{laid_out}/trainmaster/sdk/__init__.py"
    assert told == [own, ["digits-1", 1, 0, 1, {"lr": 0.1}, None, False, 0], [], list(version)]
    messages = [json.loads(line) for line in (directory / "rank0.sdk").read_text().splitlines()]
    assert [message["t"] for message in messages] == ["m", "c", "a"]
    assert messages[0] == {"t": "m", "step": 1, "values": {"loss": 0.5}}


def test_a_bare_environment_of_this_python_imports_it(tmp_path: Path, laid_out: str) -> None:
    used(bare_venv(tmp_path / "venv"), tmp_path, laid_out, sys.version_info[:2])


@pytest.mark.skipif(not others(), reason="this machine has no other Python from 3.9 on")
def test_other_pythons_import_it(tmp_path: Path, laid_out: str) -> None:
    for version, python in others().items():
        directory = tmp_path / ".".join(map(str, version))
        directory.mkdir()
        used(python, directory, laid_out, version)
        compiled = subprocess.run([python, "-W", "error", "-m", "compileall", "-q", "-f", laid_out], capture_output=True, text=True)
        assert (compiled.returncode, compiled.stdout, compiled.stderr) == (0, "", ""), python


def test_a_trainmaster_of_the_job_comes_first(tmp_path: Path, laid_out: str) -> None:
    """Installed, or a file or folder of its own: wherever it is on the path."""
    python = bare_venv(tmp_path / "venv")
    (packages,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    (packages / "trainmaster").mkdir()
    (packages / "trainmaster" / "__init__.py").write_text("")
    (packages / "trainmaster" / "sdk.py").write_text("OWN = 'installed'\n")
    ask = "import json; from trainmaster import sdk; print(json.dumps([sdk.OWN]))"
    assert run(python, tmp_path, ask, laid_out) == ["installed"]
    (tmp_path / "trainmaster.py").write_text("class sdk:\n    OWN = 'beside the script'\n")
    assert run(python, tmp_path, ask, laid_out) == ["beside the script"]


def test_a_folder_named_trainmaster_does_not_hide_it(tmp_path: Path, laid_out: str) -> None:
    (tmp_path / "trainmaster").mkdir()
    (tmp_path / "trainmaster" / "train.yaml").write_text("command: x\n")
    (tmp_path / "trainmaster" / "own.py").write_text("OWN = 1\n")
    ask = "import json; from trainmaster import own, sdk; print(json.dumps([own.OWN, sdk.rank()]))"
    assert run(bare_venv(tmp_path / "venv"), tmp_path, ask, laid_out) == [1, 0]


def test_it_is_laid_out_once_and_a_damaged_file_written_again(tmp_path: Path) -> None:
    place = Path(pack.lay_out_sdk(str(tmp_path)))
    assert [path.name for path in place.iterdir()] == ["trainmaster"]
    assert sorted(path.name for path in (place / "trainmaster").iterdir()) == ["sdk", "wire"]
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*.py")}
    assert {path.relative_to(place / "trainmaster") for path in before} == {
        path.relative_to(SOURCE) for room in ("sdk", "wire") for path in (SOURCE / room).rglob("*.py")
    }
    assert pack.lay_out_sdk(str(tmp_path)) == str(place) == pack.sdk_directory(str(tmp_path))
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*.py")} == before
    (place / "trainmaster" / "sdk" / "channel.py").write_text("")
    pack.lay_out_sdk(str(tmp_path))
    assert (place / "trainmaster" / "sdk" / "channel.py").read_bytes() == (SOURCE / "sdk" / "channel.py").read_bytes()


@pytest.mark.parametrize("room", ["agent", "sdk", "wire"])
def test_nothing_of_a_newer_standard_library_is_used(room: str) -> None:
    """Stands in for a Python 3.9 where there is none."""
    found = []
    for path in sorted((SOURCE / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path), feature_version=(3, 9))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            used_names = {getattr(node, "id", None), getattr(node, "attr", None)} | {name.rpartition(".")[2] for name in names}
            if NEWER_MODULES & set(names) or NEWER_NAMES & used_names:
                found.append(f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}")
    assert found == []
