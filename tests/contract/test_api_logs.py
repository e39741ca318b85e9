"""Rank logs over REST: all attempts, rank 0 first, or as they are written; any bytes, cut anywhere."""

import base64
import json
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import Api, serving
from waiting import deadline, meanwhile

from trainmaster.agent.metrics.output import RankOutput
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.rank import Rank
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.errors import UsageError
from trainmaster.home import Home
from trainmaster.model import events as ev
from trainmaster.model.job import Action, Outcome, State, Verdict
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.server.streams import rank_logs
from trainmaster.server.streams.rank_logs import Chunk, Cursor
from trainmaster.wire.names import TIMES_RECORD

SHARES = Allocation((NodeShare("node0", "127.0.0.1", 1.0),))
DONE = Verdict(Action.FINISH, State.SUCCEEDED, "done")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path / "home") as served:
        served.submit()
        served.take_up()
        yield served


def write(home: Home, attempt: int, rank: int, data: bytes, node: int = 0) -> Path:
    """Append to a rank's log, long enough ago to be settled."""
    path = home.attempt("train-1", attempt, node) / f"rank{rank}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        log.write(data)
    os.utime(path, (1.0, 1.0))
    return path


def everything(api: Api, **query: Any) -> list[tuple[int, int, str]]:
    """All chunks, asked for until there are no more; those of one file joined."""
    found: list[tuple[int, int, str]] = []
    after = ""
    while True:
        answer = api.get("/jobs/train-1/logs", after=after, **query)
        for chunk in answer["chunks"]:
            if found and found[-1][:2] == (chunk["attempt"], chunk["rank"]):
                chunk["text"] = found.pop()[2] + chunk["text"]
            found.append((chunk["attempt"], chunk["rank"], chunk["text"]))
        if not answer["chunks"]:
            return found
        after = answer["cursor"]


def end(api: Api) -> None:
    """The job succeeds."""
    if api.control.jobs["train-1"].attempt is None:
        api.control.record("train-1", ev.Placed(1, SHARES), ev.NodeStarted(1, 0))
    api.control.record("train-1", ev.NodeEnded(1, 0, Outcome()), ev.AttemptEnded(1, DONE))
    deadline(lambda: api.get("/jobs/train-1")["state"] == "succeeded", "the job to end")


def test_all_attempts_rank_0_first(api: Api) -> None:
    for attempt in (1, 2):
        for rank, node in ((10, 1), (2, 1), (0, 0), (1, 0)):
            write(api.home, attempt, rank, f"a{attempt} r{rank}\n".encode(), node)
    wanted = [(a, r, f"a{a} r{r}\n") for a in (1, 2) for r in (0, 1, 2, 10)]
    assert everything(api) == wanted
    assert everything(api, rank=2) == [(1, 2, "a1 r2\n"), (2, 2, "a2 r2\n")]
    assert everything(api, attempt=2, rank=0) == [(2, 0, "a2 r0\n")]
    assert everything(api, attempt=3) == []


def test_lines_since_a_time_and_their_times(api: Api) -> None:
    """Attempt 1 ran under an older version, and attempt 2 has times."""
    write(api.home, 1, 0, b"old\n")
    write(api.home, 2, 0, b"a\nb\nc\nd\n")
    path = write(api.home, 2, 1, b"x\n")
    os.utime(path.with_name("rank0.log"), (3000.0, 3000.0))
    os.utime(path, (500.0, 500.0))
    records = b"".join(TIMES_RECORD.pack(*one) for one in ((2, 1000.0), (6, 2000.5), (8, 3000.0)))
    path.with_name("rank0.log.times").write_bytes(records)
    end(api)
    assert everything(api, since_s=2000) == [(2, 0, "b\nc\nd\n")]
    assert everything(api, since_s=2000, tail=1) == [(2, 0, "d\n")]
    assert everything(api, since_s=2600, tail=3) == [(2, 0, "d\n")]
    assert everything(api, since_s=4000) == []
    assert [chunk["text"] for chunk in api.get("/jobs/train-1/logs", since_s=2600, wait_s=1)["chunks"]] == ["d\n"]
    assert everything(api, since_s=0, attempt=2, rank=0) == [(2, 0, "a\nb\nc\nd\n")]
    chunks = api.get("/jobs/train-1/logs", times=1)["chunks"]
    assert [(one["attempt"], one["rank"], one["times"]) for one in chunks] == [
        (1, 0, [[1, None]]), (2, 0, [[1, 1000.0], [2, 2000.5], [1, 3000.0]]), (2, 1, [[1, None]]),
    ]  # fmt: skip
    assert "times" not in api.get("/jobs/train-1/logs")["chunks"][0]
    refused = api.http.get("/jobs/train-1/logs?since_s=1")
    assert (refused.status_code, refused.json()["error"]["message"].partition(":")[0]) == (
        409, "the times of the output of rank 0 in attempt 1 are not known",
    )  # fmt: skip


def test_large_logs_come_in_pieces_that_join_exactly(api: Api) -> None:
    text = "".join(f"line {n} é\n" for n in range(150_000))
    write(api.home, 1, 0, text.encode())
    write(api.home, 1, 1, b"last\n")
    assert everything(api) == [(1, 0, text), (1, 1, "last\n")]
    api.control.record("train-1", ev.Placed(1, SHARES), ev.NodeStarted(1, 0))
    followed = api.get("/jobs/train-1/logs", wait_s=1)["chunks"]
    assert [chunk["rank"] for chunk in followed] == [0, 1]  # a chatty rank does not keep the others back


def test_bytes_of_no_encoding_become_text(api: Api) -> None:
    write(api.home, 1, 0, b"ok \xff\xfe\x00 \xe2\x82")  # it ends within a character
    end(api)
    assert everything(api) == [(1, 0, "ok ��\x00 �")]
    assert api.get("/jobs/train-1/logs", after=api.get("/jobs/train-1/logs")["cursor"])["ended"] is True


def test_a_character_split_between_two_reads_is_whole(api: Api) -> None:
    write(api.home, 1, 0, b"caf" + b"\xc3")
    first = api.get("/jobs/train-1/logs")
    assert [chunk["text"] for chunk in first["chunks"]] == ["caf"]
    write(api.home, 1, 0, b"\xa9\n")
    second = api.get("/jobs/train-1/logs", after=first["cursor"])
    assert [chunk["text"] for chunk in second["chunks"]] == ["é\n"]


def test_following_waits_for_what_is_written_and_ends_with_the_job(api: Api) -> None:
    api.control.record("train-1", ev.Placed(1, SHARES), ev.NodeStarted(1, 0))
    write(api.home, 1, 0, b"one\n")
    first = api.get("/jobs/train-1/logs", wait_s=5)
    assert ([c["text"] for c in first["chunks"]], first["ended"]) == (["one\n"], False)
    with meanwhile(0.2, lambda: write(api.home, 1, 1, b"two\n")):
        second = api.get("/jobs/train-1/logs", wait_s=10, after=first["cursor"])
    assert [(c["rank"], c["text"]) for c in second["chunks"]] == [(1, "two\n")]
    with meanwhile(0.2, lambda: end(api)):
        third = api.get("/jobs/train-1/logs", wait_s=10, after=second["cursor"])
    assert (third["chunks"], third["state"], third["ended"]) == ([], "succeeded", True)


def test_an_unfinished_line_is_held_back_while_it_is_being_written(api: Api) -> None:
    api.control.record("train-1", ev.Placed(1, SHARES), ev.NodeStarted(1, 0))
    path = write(api.home, 1, 0, b"whole\nhalf")
    later_s = time.time() + 60.0  # however long a busy machine takes to ask
    os.utime(path, (later_s, later_s))
    held = api.get("/jobs/train-1/logs")
    assert [c["text"] for c in held["chunks"]] == ["whole\n"]
    os.utime(path, (1.0, 1.0))
    assert [c["text"] for c in api.get("/jobs/train-1/logs", after=held["cursor"])["chunks"]] == ["half"]


def test_tail_gives_the_last_lines_of_the_newest_attempt(api: Api) -> None:
    write(api.home, 1, 0, b"old\n")
    write(api.home, 2, 0, b"".join(b"line %d %s\n" % (n, b"x" * 500) for n in range(1000)))
    write(api.home, 2, 1, b"only\n")
    chunks = api.get("/jobs/train-1/logs", tail=2)["chunks"]
    assert [(c["attempt"], c["rank"], [line.split(" x")[0] for line in c["text"].splitlines()]) for c in chunks] == [
        (2, 0, ["line 998", "line 999"]),
        (2, 1, ["only"]),
    ]
    assert [c["text"] for c in api.get("/jobs/train-1/logs", tail=1000, rank=1)["chunks"]] == ["only\n"]
    assert api.get("/jobs/train-1/logs", tail=0)["chunks"] == []


def test_a_job_that_control_has_not_taken_up_has_no_logs_yet(api: Api) -> None:
    job = api.submit(name="fresh")
    assert api.get(f"/jobs/{job}/logs")["chunks"] == []
    assert api.get(f"/jobs/{job}/logs")["ended"] is False


def test_a_cut_log_goes_on_at_the_notice(tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = write(home, 1, 0, b"a" * 5000 + b"\n")
    files, cursor = rank_logs.rank_files(home, "train-1", 0), Cursor()
    assert len(rank_logs.read_new(files, cursor, None)[0].text) == 5001
    notice = b"\n[trainmaster: this log reached its limit of 4096 bytes; 3977 bytes in all were dropped here, after the first 1024]\n"
    path.write_bytes(b"a" * 1024 + notice + b"new\n")
    assert rank_logs.read_new(files, cursor, None) == [Chunk(1, 0, None, notice.decode() + "new\n")]
    path.write_bytes(b"begun anew\n")
    assert rank_logs.read_new(files, cursor, None) == [Chunk(1, 0, None, "begun anew\n")]


def test_a_log_that_was_cut_and_has_grown_since_loses_nothing_silently(tmp_path: Path) -> None:
    """R24: its reader hears of the cut, and gets all that is there behind it; so does one of an older cursor."""
    log = RankOutput(Rank(0, str(write(Home(tmp_path), 1, 0, b"").parent)), Parser(), 40_000, Progress(Outbox("", "")))
    path, files = (
        tmp_path / "attempts" / "train-1" / "1" / "n0" / "rank0.log",
        rank_logs.rank_files(Home(tmp_path), "train-1", 0),
    )

    def printed(first: int, count: int) -> None:
        with path.open("ab") as file:
            file.write(b"".join(b"line %08d\n" % number for number in range(first, first + count)))
        log.turn(time.monotonic() + 9.0)

    cursor = Cursor()
    printed(0, 1000)
    assert len(rank_logs.read_new(files, cursor, None)[0].text.splitlines()) == 1000
    cursor = Cursor.decode(cursor.encode())
    printed(1000, 2000)
    printed(3000, 2000)  # cut by now, and longer than it was
    assert path.stat().st_size > cursor.offsets["1/0/0"]
    lines = rank_logs.read_new(files, cursor, None)[0].text.splitlines()
    assert "this log reached its limit" in lines[1]
    assert (lines[-1], lines[2:]) == ("line 00004999", [f"line {number:08}" for number in range(5000 - len(lines[2:]), 5000)])
    assert rank_logs.at_end(files, cursor)
    older = zlib.compress(json.dumps([0, {"1/0/0": 7}]).encode())
    assert Cursor.decode(base64.urlsafe_b64encode(older).decode()) == Cursor(0, {"1/0/0": 7})


def test_past_attempts_are_looked_at_no_more(tmp_path: Path) -> None:
    home, cursor = Home(tmp_path), Cursor()
    for attempt in (1, 2, 3):
        write(home, attempt, 0, b"x\n")
    files = rank_logs.rank_files(home, "train-1", 0)
    rank_logs.read_new(files, cursor, 3)
    rank_logs.pass_over(files, cursor, 3)
    assert cursor == Cursor(3, {"3/0/0": 2}, {"3/0/0": zlib.crc32(b"x\n")})
    assert Cursor.decode(cursor.encode()) == cursor


@pytest.mark.parametrize("text", ["x", "!!!", "AAAA", "eJwDAAAAAAE", "é", Cursor(1).encode()[:-3]])
def test_a_cursor_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Cursor.decode(text)


def test_a_pipe_in_the_place_of_a_log_is_passed_over(api: Api) -> None:
    """To open it would wait for a writer: each who reads the logs would take a thread of the server for good."""
    path = write(api.services.home, 1, 0, b"one\n")
    os.mkfifo(path.with_name("rank7.log"))
    path.with_name("rank8.log").symlink_to("/dev/zero")
    assert everything(api) == [(1, 0, "one\n")]
    assert api.get("/jobs/train-1/logs", tail=5)["chunks"] == [{"attempt": 1, "rank": 0, "role": None, "text": "one\n"}]
    end(api)
    assert api.get("/jobs/train-1/logs", wait_s=5)["chunks"][0]["text"] == "one\n"
