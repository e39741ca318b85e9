"""What a person does first: begin with a starter, look before running, configure, complete, watch."""

import importlib.util
import json
import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import nightly
from running import Tm, server
from waiting import deadline

from trainmaster.engines.local.inventory import real_devices

BASH = shutil.which("bash") or "bash"


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    root = tmp_path_factory.mktemp("first")
    with server(root) as one:
        one.environment |= {"XDG_CONFIG_HOME": str(root / "config"), "XDG_CACHE_HOME": str(root / "cache")}
        yield one


def test_the_starter_of_one_process_runs_as_it_stands(tm: Tm) -> None:
    assert sorted(tm.ok("init", "--no-input", "one").split()) == ["one/train.py", "one/train.yaml"]
    job = tm.submit("one/train.yaml")
    ended = tm.ended(job, 60.0)
    assert (ended["state"], ended["step"], len(ended["checkpoints"])) == ("succeeded", 200, 3)
    assert tm("init", "one").refusal[0] == 5  # nothing is overwritten


@nightly
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_starter_for_ddp_runs_as_it_stands(tm: Tm) -> None:
    tm.ok("init", "--starter", "ddp", "two")
    ended = tm.ended(tm.submit("two/train.yaml"), 200.0)
    assert (ended["state"], ended["step"]) == ("succeeded", 200)


def test_the_starter_for_a_script_of_ones_own(tm: Tm) -> None:
    (tm.work / "mine").mkdir()
    code, words = tm("init", "--starter", "own", "mine").refusal
    assert (code, words.splitlines()[0].startswith("error: there is no script in")) == (2, True)
    (tm.work / "mine" / "fit.py").write_text("print('fitted')\n")
    tm.ok("init", "--starter", "own", "mine")
    job = tm.submit("mine/train.yaml")
    assert tm.ended(job)["state"] == "succeeded"
    assert tm.ok("logs", job) == "fitted\n"


def test_a_plan_submits_nothing(tm: Tm) -> None:
    before = tm.json("ps")
    told = tm.ok("plan", "--time-limit", "2h", "--", "python3", "fit.py")
    assert "starts   now, on " in told
    assert "limits   2 h; restarts: 3" in told
    assert json.loads(tm.ok("plan", "--json", "--", "true"))["placement"][0]["cpus"] == 1.0
    assert tm("plan", "--gpus", "64", "--", "true").code == 6
    assert tm.json("ps") == before


def test_a_plan_without_a_server_shows_what_is_known_here_and_starts_none(tm: Tm, tmp_path: Path) -> None:
    alone = Tm(tmp_path)
    alone.file("fit.py", "print('fitted')\n")
    command = ("--time-limit", "2h", "--env", "HF_TOKEN=abc", "--", "python3", "fit.py")
    said = alone("plan", *command)
    lines = said.out.splitlines()
    assert [line for line in lines if line.split()[0] in ("job", "command", "code", "asks", "starts", "waits", "costs")] == [
        "job      fit (project default, experiment fit)", "command  python3 fit.py", f"code     1 file, 16 B copied, from {alone.work}",
        "asks for nodes 1, gpus 0, cpus 1.0",
        f"starts   not known: no server is running: $TRAINMASTER_HOME names {alone.home.root}, which does not exist; "
        "check the name   a new home there: tm up",
    ]  # fmt: skip
    assert "limits   2 h; restarts: 3" in said.out
    assert (said.code, said.err) == (0, "nothing was submitted; to submit it: tm submit, with the same arguments\n")
    found = json.loads(alone.ok("plan", "--json", *command))
    decided = json.loads(Tm(tmp_path, tm.home.root).ok("plan", "--json", *command))
    assert found.keys() == decided.keys()
    unknown = {"placement", "position", "reason"} | ({"notes"} if real_devices() else set())  # that it requests no GPU
    assert {name for name in found if found[name] != decided[name]} == unknown
    assert (found["placement"], found["position"], found["reason"][:20]) == (None, None, "no server is running")
    alone.file("cluster.yaml", "pools: {a: {nodes: [n0]}}\n")
    for line in ("plan cluster.yaml", "rm x --dry-run", "prune --dry-run", "storage gc --dry-run", "metrics x", "gpus"):
        assert alone(*line.split()).refusal == (
            7, f"error: no server is running: $TRAINMASTER_HOME names {alone.home.root}, which does not exist\n"
            "  check the name   a new home there: tm up\n",
        )  # fmt: skip
    bad = alone("plan", "--gpus", "many", "--", "true")
    assert (bad.code, bad.err.startswith("error: resources.gpus: expected ")) == (2, True)
    assert not alone.home.root.exists()


def test_render_is_what_the_engine_gets_and_needs_no_server(tm: Tm, tmp_path: Path) -> None:
    alone = Tm(tmp_path)
    (launch,) = json.loads(alone.ok("render", "--json", "--ranks", "2", "--env", "A=1", "--", "python3", "fit.py"))
    assert (launch["command"], launch["ranks"], launch["environment"]["A"]) == (["python3", "fit.py"], 2, "1")
    assert launch["credential"] == "(not shown)"
    assert not alone.home.root.exists()
    assert "there is no engine slurm yet" in alone("render", "--engine", "slurm", "--", "true").err


def test_config_says_who_wins_with_file_and_line(tm: Tm) -> None:
    own, shared = tm.work.parent / "config" / "trainmaster" / "trainmaster.toml", tm.work / "trainmaster.toml"
    shared.write_text('# ours\n[tags]\nowner = "ada"\n')
    try:
        tm.ok("config", "set", "project", "vision")
        tm.ok("config", "set", "--project", "project", "speech")
        assert shared.read_text().startswith("# ours\n")
        told = tm.json("config", "explain", "project")
        assert [(one["value"], one["source"], one["line"]) for one in told] == [
            ("speech", str(shared), shared.read_text().splitlines().index('project = "speech"') + 1),
            ("vision", str(own), 1),
            ("default", "default", None),
        ]
        job = tm.show(tm.submit("--", "true"))
        assert (job["project"], job["tags"]) == ("speech", {"owner": "ada"})
        assert tm.show(tm.submit("--project", "mine", "--tag", "owner=bob", "--", "true"))["tags"] == {"owner": "bob"}
        assert "did you mean server?" in tm("config", "set", "sever", "x").err
        (tm.home.root / "server.toml").write_text("[storag]\n")
        code, words = tm("config", "check").refusal
        assert (code, "server.toml:1: storag: there is no such setting" in words) == (2, True)
        (tm.home.root / "server.toml").write_text('[storage]\nurl = "s3://user:password@bucket"\n')
        code, words = tm("config", "check").refusal  # a start would be refused, too
        assert (code, "credentials must not be in a file" in words) == (2, True)
    finally:
        shared.unlink()
        own.unlink()
        (tm.home.root / "server.toml").unlink(missing_ok=True)


@pytest.mark.skipif(not os.path.exists(BASH), reason="there is no bash")
def test_bash_completes_commands_and_living_ids(tm: Tm) -> None:
    job = tm.submit("--name", "completed", "--", "true")

    def completed(*typed: str) -> list[str]:
        words = " ".join(f"'{word}'" for word in typed)
        script = f'eval "$(tm completion bash)"; COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _tm_completion tm; echo "${{COMPREPLY[@]}}"'
        done = subprocess.run([BASH, "-c", script], env=tm.environment, cwd=tm.work, capture_output=True, text=True, timeout=60)
        return done.stdout.split()

    assert {"submit", "show"} <= set(completed("tm", "s"))
    deadline(lambda: job in completed("tm", "show", "compl"), "the id", 60.0)  # an answer that takes too long is not waited for
    assert "--grace" in completed("tm", "cancel", "--gr")


def test_completion_without_a_server_says_nothing_and_starts_none(tmp_path: Path) -> None:
    alone = Tm(tmp_path)
    alone.environment |= {"_TM_COMPLETE": "bash_complete", "COMP_WORDS": "tm show x", "COMP_CWORD": "2", "XDG_CACHE_HOME": str(tmp_path)}
    said = alone()
    assert (said.out.strip(), said.err) == ("", "")
    assert not alone.home.root.exists()


def test_top_draws_again_until_q(tm: Tm) -> None:
    tm.submit("--name", "watched", "--", "true")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "trainmaster", "top", "--every", "0.2"]
    environment = {**tm.environment, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tm.work) as showing:
        os.close(theirs)
        seen = b""

        def drawn() -> bool:
            nonlocal seen
            while select.select([ours], [], [], 0)[0]:
                seen += os.read(ours, 65536)
            return seen.count(b"NODE") >= 2 and b"watched-" in seen

        deadline(drawn, "two pictures", 60.0)
        os.write(ours, b"q")
        assert showing.wait(30.0) == 0
    os.close(ours)
    assert json.loads(tm.ok("top", "--json"))["nodes"]
