"""The agent with real processes: starts, ends, kills, output of every kind."""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, agent, gone
from launches import launch
from waiting import deadline

from trainmaster.agent.launch.start import Startup
from trainmaster.agent.processes.wakeup import Wake
from trainmaster.wire.processes import own_identity, start_ticks

IGNORES_TERM = "trap '' TERM; echo ready; while true; do sleep 0.1; done"


def ends(record: dict[str, Any]) -> list[tuple[int, int | None, int | None, bool]]:
    """(rank, exit code, signal, stopped by us) of every rank."""
    return [(r["rank"], r["exit_code"], r["signal"], r["stopped_by_us"]) for r in record["ranks"]]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_job_of_a_moment(tmp_path: Path) -> None:
    with agent(tmp_path, "echo step 3: loss 0.5; echo done >&2") as it:
        record = it.ended()
    rank = record["ranks"][0]
    assert 0 < rank["ended_after_s"] < 5
    assert rank["cpu_s"] > 0
    assert record["peak_memory_bytes"] == rank["peak_memory_bytes"] > 1_000_000
    for name in ("ended_after_s", "cpu_s", "peak_memory_bytes"):
        rank.pop(name)
    record.pop("peak_memory_bytes")
    assert record.pop("ran_s") < 5
    assert len(record.pop("environment")) == 64
    assert record == {
        "kind": "ended", "n": 0, "home": "", "launch_error": None, "machine_error": None, "launch_lines": [], "roles": [], "over_memory": False, "memory_limit_bytes": None, "port_in_use": False,
        "last_step": 3, "first_step": 3, "staged": [], "kept": [], "not_kept": [], "warned": [], "run": [], "restored": None,
        "killed_for_memory": False, "failed_ago_s": 0.0,
        "restored_step": None, "bad": [], "doubted": [], "unread": "", "terminated": False,
        "progress": {"steps": [3], "last_step": 3, "fell_to": None, "first": {"loss": 0.5}, "last": {"loss": 0.5},
                     "epoch_first": None, "epoch_steps": None, "epoch_anew": None, "sdk": None},
        "ranks": [{
            "rank": 0, "exit_code": 0, "signal": None, "stopped_by_us": False, "error": None, "raised": None,
            "last_lines": ["step 3: loss 0.5", "done"], "outside": None,
        }],
    }  # fmt: skip
    assert it.words() == ""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("exit 0", (0, 0, None, False)),
        ("exit 3", (0, 3, None, False)),
        ("exit 137", (0, 137, None, False)),
        ("exit 255", (0, 255, None, False)),
        ("false | true", (0, 1, None, False)),
        ("kill -SEGV $$", (0, None, 11, False)),
        (python("raise SystemExit(137)"), (0, 137, None, False)),
    ],
)
def test_exit_codes_and_signals(tmp_path: Path, command: Any, expected: object) -> None:
    with agent(tmp_path, command) as it:
        assert ends(it.ended()) == [expected]


def test_a_rank_starts_clean(tmp_path: Path) -> None:
    code = (
        "import os, signal, json\n"
        "signals = [int(s) for s in signal.valid_signals() if s not in (9, 19) and signal.getsignal(s) == signal.SIG_IGN]\n"
        "print(json.dumps([sorted(os.listdir('/proc/self/fd'))[:4], signals, list(signal.pthread_sigmask(0, [])),"
        " os.getpid() == os.getsid(0), os.getcwd(), os.readlink('/proc/self/fd/0')]))\n"
    )
    with agent(tmp_path, python(code)) as it:
        it.ended()
    # Descriptor 3 is the listing's own; Python itself ignores SIGPIPE (13) and SIGXFSZ (25).
    assert json.loads(it.log()) == [["0", "1", "2", "3"], [13, 25], [], True, str(tmp_path / "work"), "/dev/null"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["trian.py", "--epochs", "3"], "command not found: trian.py --epochs 3; `trian.py` is not on the PATH"),
        (["./train.py"], "command not found: ./train.py; no ./train.py in"),
        (["/etc/passwd"], "not executable: /etc/passwd; run `chmod +x /etc/passwd`"),
    ],
)
def test_a_missing_program_is_said(tmp_path: Path, command: list[str], words: str) -> None:
    with agent(tmp_path, command, ranks=2) as it:
        record = it.ended()
    assert record["launch_error"].startswith(words), record["launch_error"]
    assert record["ranks"] == []


def test_a_missing_cgroup_is_said(tmp_path: Path) -> None:
    with agent(tmp_path, "true", cgroup=str(tmp_path / "none")) as it:
        assert it.ended()["machine_error"].startswith(f"could not enter the memory limit's cgroup {tmp_path}/none")


def test_a_rank_that_hangs_before_its_command_is_told_and_can_be_stopped(tmp_path: Path) -> None:
    """If a file system hangs or a cgroup is frozen, the report says what the start waits for, and the start can be stopped."""
    os.mkfifo(tmp_path / "cgroup.procs")  # opening it blocks forever
    with agent(tmp_path, "echo never", contained=[str(tmp_path)]) as it:
        deadline(lambda: (tmp_path / "rank0.log").exists(), "the rank's start")
        it.stop(1.0)
        record = it.ended()
        assert (record["ranks"], record["machine_error"], it.log()) == ([], None, "")
    (tmp_path / "other").mkdir()
    start = Startup(str(tmp_path / "other"), it.launch, Wake())
    for _ in range(2):
        start.contact.wait_for("rank 1", time.monotonic() - 60.0)
    outbox = start.contact.sync().outbox
    assert [report["doing"] for report in outbox.batch()[0]] == [
        f"rank 1 could not begin its command yet: the command's file, the work directory {tmp_path}/work or its cgroup does not answer"
    ]


def test_a_killed_rank_ends_the_others_at_once(tmp_path: Path) -> None:
    with agent(tmp_path, "echo $$ > pid$RANK; exec sleep 60", ranks=3) as it:
        pids = [it.pid_of(f"pid{rank}") for rank in range(3)]
        os.kill(pids[1], signal.SIGKILL)
        record = it.ended()
    assert ends(record) == [(0, None, 15, True), (1, None, 9, False), (2, None, 15, True)]
    assert record["ran_s"] < 10
    assert [gone(pid) for pid in pids] == [True] * 3


def test_a_failing_exit_waits_for_the_signal_that_explains_it(tmp_path: Path) -> None:
    with agent(tmp_path, "if [ $RANK = 0 ]; then exit 1; else sleep 0.3; kill -SEGV $$; fi", ranks=2) as it:
        assert ends(it.ended()) == [(0, 1, None, False), (1, None, 11, False)]


def test_a_failing_exit_ends_a_gang_that_ignores_term(tmp_path: Path) -> None:
    with agent(tmp_path, f"[ $RANK = 0 ] && exit 4; {IGNORES_TERM}", ranks=2) as it:
        assert ends(it.ended()) == [(0, 4, None, False), (1, None, 9, True)]


def test_a_rank_that_ends_well_leaves_the_others_alone(tmp_path: Path) -> None:
    with agent(tmp_path, "[ $RANK = 0 ] || sleep 1.5", ranks=2) as it:
        record = it.ended()
    assert (ends(record), record["ran_s"] > 1.4) == ([(0, 0, None, False), (1, 0, None, False)], True)


def test_stop_gives_the_grace_it_says(tmp_path: Path) -> None:
    save = "import signal, sys, time, os\ndef end(*_):\n    time.sleep(0.5)\n    print('saved')\n    sys.exit(0)\n"
    code = save + "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    with agent(tmp_path, python(code)) as it:
        it.printed("ready")
        it.stop(20.0)
        record = it.ended()
    assert (ends(record), record["ranks"][0]["last_lines"]) == ([(0, 0, None, True)], ["ready", "saved"])
    assert record["terminated"] is False, "we sent it"
    assert (tmp_path / "sdk.flags").read_bytes() == b"1\0\0"


def test_pipes_in_place_of_its_files_hold_up_neither_a_stop_nor_the_end(tmp_path: Path) -> None:
    make = f"rm {tmp_path}/sdk.flags; mkfifo {tmp_path}/stop.json {tmp_path}/sdk.flags $TORCHELASTIC_ERROR_FILE"
    with agent(tmp_path, f"{make}; echo ready; exec sleep 60") as it:
        it.printed("ready")
        it.send(signal.SIGTERM)
        assert ends(it.ended()) == [(0, None, signal.SIGTERM, True)]


def test_stop_reaches_what_a_shell_started_and_waits_for_it(tmp_path: Path) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), open('saved', 'w').close(), exit(0)))\n"
    script = code + "print('ready', flush=True)\ntime.sleep(60)"
    (tmp_path / "save.py").write_text(script)
    with agent(tmp_path, f"{sys.executable} {tmp_path}/save.py | cat; echo never") as it:
        it.printed("ready")
        it.stop(20.0)
        record = it.ended()
    assert (ends(record), (tmp_path / "work" / "saved").exists(), "never" in it.log()) == ([(0, None, 15, True)], True, False)


def test_who_ignores_term_is_killed_at_the_deadline(tmp_path: Path) -> None:
    with agent(tmp_path, IGNORES_TERM) as it:
        it.printed("ready")
        it.stop(0.5)
        record = it.ended()
    assert (ends(record), 0.5 <= record["ran_s"] < 10) == ([(0, None, 9, True)], True)


def test_a_second_stop_may_shorten_the_first(tmp_path: Path) -> None:
    with agent(tmp_path, IGNORES_TERM) as it:
        it.printed("ready")
        it.stop(600.0)
        deadline(lambda: (tmp_path / "sdk.flags").read_bytes()[:1] == b"1", "the flag")
        it.stop(0.0)
        assert ends(it.ended()) == [(0, None, 9, True)]


def test_a_tombstone_without_a_signal_is_found(tmp_path: Path) -> None:
    with agent(tmp_path, "echo ready; exec sleep 60") as it:
        it.printed("ready")
        process, it.process = it.process, None
        it.stop(5.0)
        it.process = process
        assert ends(it.ended()) == [(0, None, 15, True)]


def test_an_agent_whose_home_is_removed_ends_and_takes_nothing_of_the_next_one(tmp_path: Path) -> None:
    """R10: after `rm -rf $TRAINMASTER_HOME; tm up` it took the checkpoints of the new job of its name for its own."""
    home = tmp_path / "home"
    with agent(home, "echo $$ > pid; exec sleep 60", grace_s=0.2, checkpoint_path="ck_*") as it:
        pid = it.pid_of("pid")
        home.rename(tmp_path / "moved")
        (tmp_path / "moved").rename(home)
        shutil.rmtree(home)
        work = home / "work"
        work.mkdir(parents=True)
        (work / "ck_1.bin").write_text("of the next one")
        assert it.wait() == 0
        assert gone(pid)
    assert [path.name for path in home.rglob("*") if path.name in ("MANIFEST.json", "exit.json", "spool.jsonl")] == []


def test_a_plain_term_stops_with_the_launch_s_grace(tmp_path: Path) -> None:
    with agent(tmp_path, IGNORES_TERM, grace_s=0.3) as it:
        it.printed("ready")
        it.send(signal.SIGTERM)
        record = it.ended()
    assert (ends(record), record["terminated"]) == ([(0, None, 9, True)], True)


def test_stopped_before_it_started(tmp_path: Path) -> None:
    Agent(tmp_path, "true").stop(1.0)
    with agent(tmp_path, "touch ran") as it:
        record = it.ended()
    assert (record["ranks"], record["launch_error"], (tmp_path / "work" / "ran").exists()) == ([], None, False)
    assert record["terminated"] is False


def test_a_plain_term_before_the_ranks_run_is_told(tmp_path: Path) -> None:
    start = Startup(str(tmp_path), launch(tmp_path), Wake())
    start.wake.terminated = True
    start.make()
    assert (start.ranks, start.failure, start.contact.terminated) == ([], None, True)


def test_daemons_do_not_outlive_the_attempt(tmp_path: Path) -> None:
    daemon = "setsid bash -c 'trap \"\" TERM; echo $BASHPID > daemon; while true; do sleep 0.1; done' > /dev/null 2>&1 &"
    with agent(tmp_path, f"{daemon} disown; while [ ! -s daemon ]; do sleep 0.05; done; echo step 1") as it:
        pid = it.pid_of("daemon")
        assert ends(it.ended()) == [(0, 0, None, False)]
        assert gone(pid)


def test_children_that_still_save_get_the_grace_period(tmp_path: Path) -> None:
    """R20: rank 0 exits 0 while a child writes the model in the background."""
    with agent(tmp_path, "(sleep 0.6; echo weights > model.bin) & echo step 1", artifacts=["model.bin"]) as it:
        record = it.ended()
    assert ([one["path"] for one in record["kept"]], record["not_kept"], record["warned"]) == (["model.bin"], [], [])
    assert ends(record) == [(0, 0, None, False)]


def test_what_is_ended_at_the_end_and_what_matched_nothing_is_told(tmp_path: Path) -> None:
    """R20: a job that succeeds without its artifact, or by ending what it left behind, does not do so in silence."""
    with agent(tmp_path, "sleep 60 & setsid sleep 61 & sleep 0.1", artifacts=["model.bin"], grace_s=0.4) as it:
        record = it.ended()
    (told,) = record["warned"]
    assert (told["topic"], told["text"][:65]) == ("processes", "still ran when every rank had ended, and was ended: 2 processes (")
    assert "sleep, pid " in told["text"]
    assert [(one["what"], one["name"], one["why"]) for one in record["not_kept"]] == [
        ("artifact", "model.bin", "nothing matches it, now that every rank has ended")
    ]


def test_every_process_of_the_tree_is_recorded(tmp_path: Path) -> None:
    with agent(tmp_path, "(setsid sleep 60 & echo $! > child); sleep 60") as it:
        child = it.pid_of("child")
        ticks = start_ticks(child)
        deadline(lambda: (child, ticks) in it.recorded(), "the child in tree.pids")
        it.stop(1.0)
        it.ended()
        assert gone(child)


def test_the_ranks_die_with_a_killed_agent(tmp_path: Path) -> None:
    with agent(tmp_path, "echo $$ > pid$RANK; exec sleep 60", ranks=2) as it:
        pids = [it.pid_of("pid0"), it.pid_of("pid1")]
        it.send(signal.SIGKILL)
        assert it.wait() == -signal.SIGKILL
        deadline(lambda: all(gone(pid) for pid in pids), "the ranks' end")
        assert not (tmp_path / "exit.json").exists()
        with agent(tmp_path, "touch again") as second:
            assert (second.wait(), (tmp_path / "work" / "again").exists()) == (0, False)


def test_a_second_agent_leaves_the_directory_alone(tmp_path: Path) -> None:
    with agent(tmp_path, "echo run >> runs; sleep 1") as first:
        deadline(lambda: (tmp_path / "work" / "runs").exists(), "the first run")
        identity = (tmp_path / "agent.json").read_bytes()
        second = Agent(tmp_path, "echo run >> runs; sleep 1").start()
        assert (second.wait(), first.process is not None and first.process.poll()) == (0, None)
        assert ends(first.ended()) == [(0, 0, None, False)]
        third = Agent(tmp_path, "echo run >> runs").start()
        assert (third.wait(), (tmp_path / "work" / "runs").read_text()) == (0, "run\n")
    assert (tmp_path / "agent.json").read_bytes() == identity
    assert {"key", "home", *own_identity(), "started_monotonic_s"} == set(json.loads(identity))


def test_a_flood_of_output_neither_fills_the_disk_nor_stalls_the_agent(tmp_path: Path) -> None:
    limit = 8 << 20
    code = "import os\nline = b'x' * 99 + b'\\n'\nos.write(1, b'first\\n')\nwhile True: os.write(1, line * 10000)"
    with agent(tmp_path, python(code), log_max_bytes=limit) as it:
        path = tmp_path / "rank0.log"
        deadline(lambda: path.exists() and b"bytes in all were dropped here" in path.read_bytes()[: (1 << 20) + 500], "the first cut")
        it.stop(10.0)
        record = it.ended()
    assert (ends(record), path.stat().st_size <= 2 * limit, it.log()[:6]) == ([(0, None, 15, True)], True, "first\n")


def test_output_may_be_anything(tmp_path: Path) -> None:
    code = "import os\nos.write(1, bytes(range(256)) * 4000 + b'\\nstep 4 loss=0.5\\n' + b'y' * 200000 + b'\\xff')"
    with agent(tmp_path, python(code), log_max_bytes=1 << 24) as it:
        record = it.ended()
    assert (record["last_step"], record["ranks"][0]["last_lines"][-1][:5]) == (4, "yyyyy")
    assert (tmp_path / "rank0.log").stat().st_size == 256 * 4000 + 17 + 200001


def test_over_the_memory_limit_is_killed(tmp_path: Path) -> None:
    code = "import time\nblock = bytearray(300 << 20)\nblock[::4096] = b'x' * len(block[::4096])\ntime.sleep(60)"
    with agent(tmp_path, python(code), memory_bytes=150 << 20) as it:
        record = it.ended()
    assert (ends(record), record["over_memory"], record["memory_limit_bytes"]) == ([(0, None, 9, True)], True, 150 << 20)
    assert record["peak_memory_bytes"] > 150 << 20


def test_the_exception_is_named_that_is_far_from_the_last_lines(tmp_path: Path) -> None:
    program = "import atexit; atexit.register(lambda: print('[bt] stack\\n' * 50)); raise ValueError('boom')"
    with agent(tmp_path, f'python3 -u -c "{program}"') as it:
        (rank,) = it.ended()["ranks"]
    assert (rank["raised"], rank["last_lines"][:2], len(rank["last_lines"])) == ("ValueError: boom", ["[bt] stack"] * 2, 20)


def test_a_taken_port_after_a_step_is_the_program_s_own(tmp_path: Path) -> None:
    with agent(tmp_path, "echo step 1; echo EADDRINUSE; exit 1") as it:
        assert it.ended()["port_in_use"] is False


def test_torch_s_error_file_is_read(tmp_path: Path) -> None:
    body = json.dumps({"message": {"message": "ValueError: no", "extraInfo": {}}})
    with agent(tmp_path, f"echo '{body}' > $TORCHELASTIC_ERROR_FILE; exit 1") as it:
        assert it.ended()["ranks"][0]["error"] == "ValueError: no"


def test_checkpoints_and_artifacts_are_in_the_record(tmp_path: Path) -> None:
    code = "mkdir -p out; echo '{\"a\": 1}' > out/.new; mv out/.new out/ckpt-5.json; echo hi > notes.txt; sleep 1.5"
    with agent(tmp_path, code, checkpoint_path="out/ckpt-{step}.json", artifacts=["*.txt"]) as it:
        record = it.ended()
    assert [(s["kind"], s["n"], s["step"], s["approximate"], s["files"], s["bytes"]) for s in record["staged"]] == [
        ("staged", 2, 5, False, 1, 9)
    ]
    assert [(k["kind"], k["path"], k["bytes"]) for k in record["kept"]] == [("kept", "notes.txt", 3)]


def test_last_commits_that_are_given_up_are_told(tmp_path: Path) -> None:
    save = "truncate -s 64G model.part; mv model.part model_1.pt; exit 0"  # a minute of hashing, no room on the disk
    with agent(tmp_path, f"trap '{save}' TERM; echo ready; while true; do sleep 0.1; done", artifacts=["model_*"]) as it:
        it.printed("ready")
        it.stop(0.5)
        record = it.ended()
    assert [one["topic"] for one in record["warned"]] == ["last commits"]


def test_the_sdk_s_checkpoints_and_artifacts_are_taken(tmp_path: Path) -> None:
    code = (
        "from trainmaster import sdk\n"
        "sdk.report(loss=0.5, step=3)\n"
        "with sdk.checkpoint(3) as directory:\n    (directory / 'w').write_text('weights')\n"
        "open('plot.png', 'w').write('png')\nsdk.artifact('plot.png')\nprint('step 99')\n"
    )
    with agent(tmp_path, python(code)) as it:
        record = it.ended()
    assert ends(record) == [(0, 0, None, False)], it.log()
    assert [(s["id"], s["step"], s["parts_expected"], s["files"], s["bytes"]) for s in record["staged"]] == [("0001-s3", 3, 1, 1, 7)]
    assert ([k["path"] for k in record["kept"]], record["last_step"]) == (["plot.png"], 3)


def test_a_code_copy_that_cannot_be_laid_out_is_said(tmp_path: Path) -> None:
    code = {"tree": str(tmp_path / "none.json"), "objects": str(tmp_path), "source": str(tmp_path)}
    with agent(tmp_path, "true", code=code) as it:
        record = it.ended()
    assert (record["ranks"], record["machine_error"].startswith("could not lay out the code copy:")) == ([], True)
