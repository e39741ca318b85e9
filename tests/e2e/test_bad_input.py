"""What is wrong with a request is said at once, with where it is and what to do; nothing of it is queued for ever."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Tm, attempts, server


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A server with two virtual nodes of two stand-in GPUs each."""
    with server(tmp_path_factory.mktemp("input"), "--nodes", "2", "--gpus-per-node", "2") as tm:
        yield tm


@pytest.fixture(scope="module", autouse=True)
def _nothing_was_accepted(tm: Tm) -> Iterator[None]:
    """At the end only what was accepted on purpose is on record."""
    yield
    assert {job["name"] for job in tm.json("ps", "--all")} <= {"accepted", "later", "large"}


SCHEMA = "  `tm schema` lists every field.\n"
SPECS = {
    "comand: python train.py\n": (
        "bad.yaml:1:1: command: missing; every spec needs it, as 'command: python train.py' (or 'python: package.module:function')\n"
        "bad.yaml:1:1: comand: unknown field; did you mean 'command'?\n"
    ),
    "command: [python\nname: x\n": "bad.yaml:2:5: not YAML: did not find expected ',' or ']' (while parsing a flow sequence); "
    "close the [; a text with [ or ] in it needs quotes inside of it\n",
    "command: python train.py\nresources: {gpu: 2}\n": "bad.yaml:2:13: resources.gpu: unknown field; did you mean 'gpus'?\n",
    "command: python train.py\ntime_limit: -3\n": (
        "bad.yaml:2:13: time_limit: expected a duration greater than 0 and at most 10 years, got the number -3\n"
    ),
    "command: python train.py\nname: a b\n": None,
    "command: python train.py\nmetrics: {pattern: '('}\n": None,
    "- command\n": None,
    "": None,
}


@pytest.mark.parametrize("text", SPECS)
def test_a_malformed_spec_is_exit_2_with_file_line_and_column(tm: Tm, text: str) -> None:
    tm.file("bad.yaml", text)
    said = tm("run", "bad.yaml")
    assert said.code == 2
    wanted = SPECS[text]
    if wanted is not None:
        assert said.err == wanted + SCHEMA
    assert said.err.startswith("bad.yaml:"), said.err
    assert said.err.endswith(SCHEMA)


REQUIRING = "command: python train.py\nenvironment:\n  requirements: {}\n"


def test_requirements_that_are_not_there_are_refused_with_their_place(tm: Tm) -> None:
    tm.file("requirements.txt", "")
    tm.file("bad.yaml", REQUIRING.format("requirement.txt"))
    told = f"there is no file requirement.txt in {tm.work}; did you mean 'requirements.txt'?"
    for command in (["run", "bad.yaml"], ["submit", "--in-place", "bad.yaml"], ["plan", "bad.yaml"]):
        said = tm(*command)
        assert said.refusal == (2, f"bad.yaml:3:17: environment.requirements: {told}\n{SCHEMA}")
    said = tm("run", "--requirements", "requirement.txt", "--", "python", "train.py")
    assert said.refusal == (2, f"error: environment.requirements: {told}\n{SCHEMA}")
    said = tm("run", "bad.yaml", "--requirements", "deep/none.txt")
    assert said.refusal == (2, f"error: environment.requirements: there is no file deep/none.txt in {tm.work}\n{SCHEMA}")


def test_a_spec_of_no_text_is_said(tm: Tm) -> None:
    (tm.work / "bad.yaml").write_bytes(b"command: \xff\xfe\n")
    said = tm("submit", "bad.yaml")
    assert (said.code, said.err) == (2, f"bad.yaml:1:10: not UTF-8 text; save the file as UTF-8\n{SCHEMA}")


def test_a_missing_file_is_said_with_the_one_that_was_meant(tm: Tm) -> None:
    tm.file("train.yaml", "command: python train.py\n")
    hint = "  check the path; a command goes after --, as in: tm run -- python train.py\n"
    assert tm("run", "none.yaml").refusal == (2, f"error: none.yaml: cannot be read: No such file or directory\n{hint}")
    meant = "error: trian.yaml: cannot be read: No such file or directory; did you mean 'train.yaml'?\n"
    assert tm("submit", "trian.yaml").refusal == (2, meant + hint)


def test_with_json_a_refusal_is_json(tm: Tm) -> None:
    tm.file("bad.yaml", "comand: python train.py\n")
    told = json.loads(tm("run", "bad.yaml", "--json").err)["error"]
    assert (told["code"], [(fault["file"], fault["line"], fault["field"]) for fault in told["details"]]) == (
        "spec", [("bad.yaml", 1, "command"), ("bad.yaml", 1, "comand")],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train.py"], "error: 'train.py' is not a spec file\n  a command goes after --: tm run -- python train.py   a spec file: "),
        (["--"], "error: there is no command after --\n"),
        ([], "error: nothing to run\n"),
        (["--epochs", "3"], "put options of your program after --: tm run -- python train.py --epochs\n"),
        (["--workdir", "/nonexistent", "--", "true"], "error: the work directory /nonexistent does not exist\n  name another"),
        (["--time-limit", "soon", "--", "true"], "time_limit: expected a duration"),
        (["--gpus", "-1", "--", "true"], "resources.gpus: expected"),
        (["--metrics-pattern", "(", "--", "true"], "metrics.pattern: "),
    ],
)  # fmt: skip
def test_a_wrong_option_is_exit_2(tm: Tm, arguments: list[str], words: str) -> None:
    said = tm("run", *arguments)
    assert said.code == 2, said
    assert words in said.err


def test_an_impossible_request_is_refused_at_submit(tm: Tm) -> None:
    hint = "  ask for less; `tm nodes` lists what there is\n"
    for arguments, words in (
        (["--gpus", "3"], "the job asks for 3 GPUs, 1 CPU on one node; no node has more than 2 GPUs\n"),
        (["--gpus", "h100:1"], "the job asks for GPUs of kind h100; those here are of kind stand-in\n"),
        (["--nodes", "3", "--gpus", "1"], "the job asks for 3 nodes with 1 GPU, 1 CPU; there are 2 such nodes\n"),
        (["--memory", "64TiB"], "the job asks for 1 CPU, 64 TiB of memory on one node; no node has more than "),
    ):
        said = tm("run", *arguments, "--", "true")
        assert said.code == 6
        assert f"error: {words}" in said.err
        assert said.err.endswith(hint)


def test_what_does_not_exist_is_exit_3(tm: Tm) -> None:
    none = "error: there is no job 'none-1'\n  `tm ps --all` lists all jobs\n"
    for command in ("show", "logs", "why", "cancel", "hold", "release", "wait", "get"):
        assert tm(command, "none-1").refusal == (3, none), command
    assert tm("nodes", "drain", "node7").refusal == (3, "error: there is no node 'node7'\n  known: node0, node1\n")


def test_a_work_directory_of_3_gb_takes_a_moment(tm: Tm, tmp_path: Path) -> None:
    """Outside git: large files are linked and that is said; too much of small ones is refused, the biggest named."""
    (tmp_path / "train.py").write_text("import os; print(os.path.getsize('shard39.bin'), os.path.islink('shard39.bin'))\n")
    for number in range(40):
        with (tmp_path / f"shard{number:02}.bin").open("wb") as file:
            file.truncate(80 << 20)
    began_s = time.monotonic()
    said = tm("run", "--workdir", str(tmp_path), "--name", "large", "--", "python", "train.py")
    assert (said.code, said.out) == (0, f"{80 << 20} True\n"), said
    assert "linked, not copied: shard00.bin, shard01.bin, " in said.err
    assert " and 32 more; to see all that goes along: tm plan, with the same arguments\n" in said.err
    for path in tmp_path.glob("*.bin"):
        path.unlink()
    for number in range(330):
        with (tmp_path / f"part{number:03}.bin").open("wb") as file:
            file.truncate(9 << 20)
    said = tm("run", "--workdir", str(tmp_path), "--name", "large", "--", "python", "train.py")
    assert said.refusal == (
        1,
        f"error: {tmp_path}: the work directory itself holds 331 files, 2,970 MiB; a code copy takes 20,000 files, 200 MiB. "
        f"The biggest: {', '.join(f'part00{number}.bin (9.0 MiB)' for number in range(5))}\n"
        "  Name them in .gitignore (they are linked then), move them out of the work directory, or use --in-place.\n",
    )
    assert time.monotonic() - began_s < 10


def test_a_python_without_torch_is_said(tm: Tm) -> None:
    tm.file("needs.py", "import torch_that_is_not_there\n")
    said = tm("run", "--name", "accepted", "--python", sys.executable, "--", "python", "needs.py")
    assert said.code == 10
    job = tm.show("accepted")
    assert attempts(job, "state", "cause", "exit_code") == [("failed", "program", 1)]
    assert job["failure"]["last_lines"][-1] == "ModuleNotFoundError: No module named 'torch_that_is_not_there'"
    assert job["notes"] == [
        f"{sys.executable} has no module 'torch_that_is_not_there': install it there, or name another Python (--python); "
        "for a file of your own, tm plan lists what goes along"
    ]


def test_a_program_that_is_not_there_is_said(tm: Tm) -> None:
    said = tm("run", "--name", "accepted", "--", "no-such-program", "x")
    assert said.code == 10
    message = tm.show("accepted")["failure"]["message"]
    assert message.startswith("could not be started: command not found: no-such-program x; `no-such-program` is not on the PATH")


def test_commands_that_come_too_late_are_conflicts(tm: Tm) -> None:
    job = tm.submit("--name", "later", "--", "true")
    assert tm.ended(job)["state"] == "succeeded"
    assert tm("cancel", job).refusal == (5, f"error: {job} has already succeeded\n  see how: tm show {job}\n")
    assert tm("hold", job).refusal == (5, f"error: {job} has succeeded; only a waiting job can be held\n")
    assert tm("release", job).refusal == (5, f"error: {job} has succeeded, so it is not held\n")
    assert tm("get", job, "plot.png").refusal == (
        3, f"error: {job} has no artifacts\n  to store files, name them in its spec: artifacts: [out/*.png]; see also: tm show {job}\n",
    )  # fmt: skip


def test_without_a_server_it_is_exit_7(tm: Tm, tmp_path: Path) -> None:
    elsewhere = Tm(tmp_path)
    missing = f"error: no server is running: $TRAINMASTER_HOME names {elsewhere.home.root}, which does not exist\n"
    assert elsewhere("ps").refusal == (7, missing + "  check the name   a new home there: tm up\n")
    said = elsewhere("--server", "http://127.0.0.1:9", "ps")
    assert (said.code, "error: no server answers at http://127.0.0.1:9\n" in said.err) == (7, True)
    assert not elsewhere.home.root.exists()


@pytest.mark.parametrize(
    ("text", "words"), [('{"nodes": 2', " is not a JSON object"), ('{"nodes": "two"}', ": nodes is 'two', not a number")]
)
def test_settings_that_cannot_be_understood_are_said_and_not_ignored(tmp_path: Path, text: str, words: str) -> None:
    tm = Tm(tmp_path)
    tm.home.root.mkdir(mode=0o700)
    tm.home.settings_json.write_text(text)
    said = tm("up")
    hint = "  correct it, or remove it and repeat the options: tm up --nodes N --gpus-per-node N\n"
    assert said.refusal == (2, f"error: {tm.home.settings_json}{words}\n{hint}")
    assert tm("ps").code == 7


def test_a_wrong_token_is_exit_4(tm: Tm) -> None:
    url = json.loads(tm.home.server_json.read_text())["url"]
    environment = {**tm.environment, "TRAINMASTER_HOME": "/nonexistent", "TRAINMASTER_TOKEN": "wrong"}
    done = subprocess.run(
        [sys.executable, "-m", "trainmaster", "--server", url, "ps"], env=environment, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr.startswith("error: ")) == (4, True), done.stderr
    assert "wrong" not in done.stderr.replace("wrong token", "")


def test_a_second_server_on_the_same_home_goes_away_with_a_word(tm: Tm) -> None:
    before = tm.json("up")["pids"]
    for which in ("api", "control"):
        done = subprocess.run(
            [sys.executable, "-m", "trainmaster.server", which, os.fspath(tm.home.root)], capture_output=True, text=True, timeout=30
        )
        assert (done.returncode, done.stderr) == (5, f"{which}: another {which} process runs on {tm.home.root}\n")
    assert tm.json("up")["pids"] == before
    assert tm("up", "--nodes", "5").refusal == (
        5, f"error: a server with other settings runs on {tm.home.root}\n  stop it first: tm down\n",
    )  # fmt: skip
