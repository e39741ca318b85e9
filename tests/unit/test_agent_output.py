"""Tailing of output: lines with any ending and length, bounded work, and size limits of logs."""

import errno
import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.agent.files.following import Lines
from trainmaster.agent.metrics.output import LINE_MAX, RankOutput
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.rank import Rank
from trainmaster.agent.transport.outbox import Outbox


def output(root: Path, log_max_bytes: int = 1 << 30) -> tuple[RankOutput, Outbox, Progress]:
    outbox = Outbox(str(root / "spool.jsonl"), str(root / "points.jsonl"))
    progress = Progress(outbox)
    return RankOutput(Rank(0, str(root)), Parser(), log_max_bytes, progress), outbox, progress


def turn(reader: RankOutput) -> bool:
    return reader.turn(time.monotonic() + 10.0)


def append(root: Path, data: bytes, name: str = "rank0.log") -> None:
    with (root / name).open("ab") as file:
        file.write(data)


def points(outbox: Outbox) -> list[tuple[int, int | None, dict[str, float]]]:
    outbox.persist_points({})
    return [(rank, step, values) for _, _, rank, step, values in outbox.batch()[1]]


@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line and b"\r" not in line), max_size=30), st.data())
def test_lines_do_not_depend_on_how_they_arrive(texts: list[bytes], data: st.DataObject) -> None:
    ends = [data.draw(st.sampled_from([b"\n", b"\r\n"])) for _ in texts]
    stream = b"".join(text + end for text, end in zip(texts, ends, strict=True))
    lines, found, position = Lines(LINE_MAX), [], 0
    while position < len(stream):
        size = data.draw(st.integers(1, 20))
        found += lines.feed(stream[position : position + size])
        position += size
    lines.finish()
    assert [line for line in found if line] == [text for text in texts if text]
    assert lines.last() == [text.decode(errors="replace") for text in texts][-200:]


def test_a_progress_bar_is_one_line() -> None:
    lines = Lines(LINE_MAX)
    for text in (b"start\n", b"10%\r", b"50%\r", b"100%\r", b"\n", b"done\n", b"1%\r", b"2%\r"):
        lines.feed(text)
    lines.finish()
    assert lines.last() == ["start", "100%", "done", "2%"]


def test_an_endless_line_is_taken_in_pieces() -> None:
    lines = Lines(LINE_MAX)
    assert [len(line) for _ in range(5) for line in lines.feed(b"x" * 60_000)] == [LINE_MAX] * 4
    lines.finish()
    assert [len(line) for line in lines.last()] == [1000]


def test_metrics_reach_the_outbox(tmp_path: Path) -> None:
    reader, outbox, progress = output(tmp_path)
    append(tmp_path, b"step 1: loss 0.5\nstep 2: lo")
    assert turn(reader)
    append(tmp_path, b"ss 0.25\nbye")
    reader.finish()
    assert points(outbox) == [(0, 1, {"loss": 0.5}), (0, 2, {"loss": 0.25})]
    assert (progress.first_step, progress.last_step, reader.last_lines()) == (
        1,
        2,
        ["step 1: loss 0.5", "step 2: loss 0.25", "bye"],
    )


def test_what_the_sdk_says_outranks_what_is_printed(tmp_path: Path) -> None:
    reader, outbox, progress = output(tmp_path)
    append(tmp_path, b"step 100: loss 9.5\n")
    turn(reader)
    lines = [
        {"t": "m", "step": 1, "values": {"loss": 0.5}},
        {"t": "c", "step": 1, "directory": "/x", "ranks": "one"},
        {"t": "a", "path": "/y", "name": "y"},
    ]
    append(tmp_path, "".join(json.dumps(line) + "\n" for line in lines).encode() + b'{"t": "m", torn', "rank0.sdk")
    turn(reader)
    append(tmp_path, b"step 200: loss 9.5\n")
    append(tmp_path, b'\n{"t": "m", "step": 2, "values": {"loss": 0.25}}\n', "rank0.sdk")
    reader.finish()
    assert points(outbox) == [(0, 100, {"loss": 9.5}), (0, 1, {"loss": 0.5}), (0, 2, {"loss": 0.25})]
    assert (progress.first_step, progress.last_step) == (1, 2)
    assert reader.messages == lines[1:]


def test_a_log_is_held_at_its_limit(tmp_path: Path) -> None:
    reader, _, progress = output(tmp_path, log_max_bytes=100_000)
    append(tmp_path, b"first\n" + b"x" * 99 + b"\n")
    for step in range(4):
        append(tmp_path, b"y" * 60_000 + b"\nstep %d\n" % step)
        turn(reader)
    append(tmp_path, b"last\n")
    reader.finish()
    text = (tmp_path / "rank0.log").read_bytes()
    assert (text[:6], text[-5:], len(text) < 100_000, reader.log.dropped_bytes > 100_000) == (b"first\n", b"last\n", True, True)
    assert f"{reader.log.dropped_bytes} bytes in all were dropped here" in text.decode()
    assert (progress.last_step, reader.last_lines()[-1]) == (3, "last")


def test_a_log_cut_at_its_end_keeps_its_last_lines(tmp_path: Path) -> None:
    reader, _, _ = output(tmp_path, log_max_bytes=100_000)
    append(tmp_path, b"first\n" + b"".join(b"line %d\n" % number for number in range(20_000)))
    reader.finish()
    lines = (tmp_path / "rank0.log").read_bytes().splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith(b"[trainmaster:"))
    assert (lines[0], lines[-1], sum(map(len, lines)) < 60_000) == (b"first", b"line 19999", True)
    assert lines[at + 1 :] == [b"line %d" % number for number in range(20_000 - len(lines) + at + 1, 20_000)]
    assert len(lines) - at > 1000


def test_what_was_unread_when_a_log_was_cut_is_read_as_far_as_it_is_kept(tmp_path: Path) -> None:
    reader, outbox, progress = output(tmp_path, log_max_bytes=100_000)
    append(tmp_path, b"step 1: loss 1.5\n" + b"x" * 99 + b"\n" + b"y" * 600_000 + b"\nstep 9: loss 0.25\nlast\n")
    reader.turn(time.monotonic())
    reader.finish()
    assert points(outbox) == [(0, 1, {"loss": 1.5}), (0, 9, {"loss": 0.25})]
    assert (progress.last_step, reader.last_lines()[-2:]) == (9, ["step 9: loss 0.25", "last"])
    assert (tmp_path / "rank0.log").read_bytes().endswith(b"\nstep 9: loss 0.25\nlast\n")


def test_half_of_a_line_that_is_given_up_says_no_step(tmp_path: Path) -> None:
    """`tm ps` showed step 10 of a job that was at 100000: the other half of the line went with the cut."""
    for limit, behind in ((100_000, 1), (1 << 30, 170)):  # cut away; skipped
        (tmp_path / str(limit)).mkdir()
        reader, _, progress = output(tmp_path / str(limit), log_max_bytes=limit)
        first = b"step 99\n" + b"x" * (32_768 - 15) + b"\n"
        append(tmp_path / str(limit), first + b"step 100000 of 9\n" + (b"y" * 99_999 + b"\n") * behind)
        reader.turn(time.monotonic())
        reader.finish()
        assert progress.last_step == 99


def test_half_of_a_number_is_no_value_where_the_program_was_killed(tmp_path: Path) -> None:
    """A buffer of 4,096 bytes ended within `loss 0.97`, and SIGKILL came: the best loss was 0."""
    for signal, code, last in ((9, None, 1.5), (None, 137, 1.5), (None, 0, 0.0)):
        (tmp_path / str(code)).mkdir()
        reader, outbox, _ = output(tmp_path / str(code))
        append(tmp_path / str(code), b"step 1 loss 1.5\nstep 2 loss 0.")
        turn(reader)
        reader.rank.signal, reader.rank.exit_code = signal, code
        reader.finish()
        assert points(outbox)[-1][2] == {"loss": last}


def test_what_is_written_while_a_log_is_cut_is_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stand before the notice, and is younger than what stands behind that."""
    reader, outbox, progress = output(tmp_path, log_max_bytes=100_000)
    append(tmp_path, b"x" * 200_000 + b"\nstep 1: loss 0.5\n")
    turn(reader)
    append(tmp_path, b"x" * 100_000 + b"\nstep 2: loss 0.5\n")
    pread, ftruncate = os.pread, os.ftruncate

    def reading(descriptor: int, count: int, at: int) -> bytes:
        data = pread(descriptor, count, at)
        if data.endswith(b"step 2: loss 0.5\n") and len(data) < 32_768:
            append(tmp_path, b"step 3: loss 0.5\n")
        return data

    def cutting(descriptor: int, size: int) -> None:
        ftruncate(descriptor, size)
        append(tmp_path, b"step 4: loss 0.5\n")

    monkeypatch.setattr("os.pread", reading)
    monkeypatch.setattr("os.ftruncate", cutting)
    reader.turn(time.monotonic())
    monkeypatch.undo()
    reader.finish()
    notice, end = (tmp_path / "rank0.log").read_bytes().split(b"[trainmaster: ")[-1].split(b"\n", 1)
    assert (notice[:33], end) == (b"this log reached its limit of 100", b"".join(b"step %d: loss 0.5\n" % step for step in (2, 3, 4)))
    assert [step for _, step, _ in points(outbox)] == [1, 2, 3, 4]
    assert progress.last_step == 4
    assert reader.last_lines()[-1] == "step 4: loss 0.5"


def test_a_log_that_is_deleted_or_replaced_is_told(tmp_path: Path) -> None:
    reader, outbox, progress = output(tmp_path)
    turn(reader)
    assert outbox.warned == {}
    (tmp_path / "rank0.log").rename(tmp_path / "old")
    turn(reader)
    assert "rank 0: the log was deleted while it ran" in outbox.warned["lost log"]["text"]
    (tmp_path / "rank0.log").write_bytes(b"")
    (tmp_path / "rank0.sdk").unlink()
    with (tmp_path / "old").open("ab") as file:
        file.write(b"step 7\n")
    reader.finish()
    assert progress.last_step == 7  # the rank goes on writing to the old one
    assert "rank 0: the log was replaced" in outbox.warned["lost log"]["text"]
    assert "SDK's messages was deleted" in outbox.warned["lost file of the SDK's messages"]["text"]


def test_of_a_json_line_that_is_too_long_the_beginning_is_taken_and_that_is_told(tmp_path: Path) -> None:
    """10,000 metrics in one line left no record and no word."""
    reader, outbox, _ = output(tmp_path)
    for step in (1, 2):
        append(tmp_path, json.dumps({"step": step} | {f"metric {n}": n / 7 for n in range(10_000)}).encode() + b"\n")
        while turn(reader):
            pass
    told = outbox.warned["long lines"]
    assert "rank 0: of a JSON line only the metrics in its first 65536 bytes were taken" in told["text"]
    append(tmp_path, json.dumps({f"metric {n}": n / 7 for n in range(3_000)} | {"step": 3}).encode() + b"\n")
    reader.finish()
    assert "of a JSON line no metrics, as none or no step is in its first" in outbox.warned["long lines"]["text"]
    found = points(outbox)
    assert [step for _, step, _ in found] == [1, 2]
    for _, _, values in found:
        assert len(values) > 1500
        assert all(value == int(name.split()[1]) / 7 for name, value in values.items())


def test_reading_skips_ahead_when_it_is_far_behind(tmp_path: Path) -> None:
    reader, _, progress = output(tmp_path)
    append(tmp_path, b"step 1\n" + (b"z" * 99 + b"\n") * 400_000 + b"step 2\n")
    reader.turn(time.monotonic())
    reader.finish()
    assert (progress.first_step, progress.last_step, reader.last_lines()[-1]) == (1, 2, "step 2")


def test_a_program_may_truncate_its_own_log(tmp_path: Path) -> None:
    """`> /dev/stderr` does: what is lost of the log is told."""
    reader, outbox, progress = output(tmp_path)
    append(tmp_path, b"step 1\n" * 50)
    turn(reader)
    assert outbox.warned == {}
    (tmp_path / "rank0.log").write_bytes(b"step 7\n")
    turn(reader)
    assert progress.last_step == 7
    assert "the program emptied its own log" in outbox.warned["log"]["text"]


def test_output_that_cannot_be_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: an error of the log took the SDK's file with it at the end, and stood in the agent's log alone."""
    monkeypatch.setattr("trainmaster.agent.metrics.output._AGAIN_S", 0.0)
    reader, outbox, _ = output(tmp_path)
    append(tmp_path, b"step 1: loss 0.5\n")
    append(tmp_path, b'{"t": "m", "step": 1, "values": {"acc": 0.25}}\n', "rank0.sdk")
    read, failing = os.pread, [3]

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("rank0.log") and failing[0]:
            failing[0] -= 1
            raise OSError(errno.EIO, "Input/output error")
        return read(descriptor, size, offset)

    monkeypatch.setattr("os.pread", pread)
    assert turn(reader)
    assert (points(outbox), reader.trouble) == ([(0, 1, {"acc": 0.25})], "rank 0: its output cannot be read: [Errno 5] Input/output error")
    outbox.points.sent()
    append(tmp_path, b'{"t": "m", "step": 2, "values": {"acc": 0.5}}\n', "rank0.sdk")
    reader.finish()
    assert (points(outbox), reader.last_lines(), reader.trouble) == ([(0, 2, {"acc": 0.5})], ["step 1: loss 0.5"], "")


def test_what_was_reported_before_a_line_was_printed_is_read_before_it(tmp_path: Path) -> None:
    """A step of Transformers is reported by its callback, and then printed beside a bar that is drawn late."""
    reader, outbox, _ = output(tmp_path)
    append(tmp_path, b"  5%|5         | 3/60 [00:00<00:05, 10.4it/s]\n{'loss': '2.596', 'epoch': '0.5'}\n")
    append(tmp_path, b'{"t": "m", "step": 5, "values": {"loss": 2.5961}}\n', "rank0.sdk")
    assert turn(reader)
    append(tmp_path, b"{'loss': '2.4', 'epoch': '0.6'}\n")
    reader.finish()
    assert points(outbox) == [(0, 5, {"loss": 2.5961})]


def test_what_stands_in_a_file_of_metrics_is_not_read_from_the_output(tmp_path: Path) -> None:
    reader, outbox, _ = output(tmp_path)
    reader.leave_out(["val_loss"])
    append(tmp_path, b"epoch 1 loss 0.5 val_loss 0.75\nepoch 2 val_loss 0.5\n")
    turn(reader)
    assert points(outbox) == [(0, 1, {"loss": 0.5})]


def test_what_is_held_at_the_first_report_is_dropped(tmp_path: Path) -> None:
    reader, outbox, _ = output(tmp_path)
    append(tmp_path, b"  5%|5         | 3/60 [00:00<00:05, 10.4it/s]\n{'loss': '2.596', 'epoch': '0.5'}\n")
    assert turn(reader)
    append(tmp_path, b'{"t": "m", "step": 5, "values": {"loss": 2.5961}}\n', "rank0.sdk")
    reader.finish()
    assert points(outbox) == [(0, 5, {"loss": 2.5961})]


def test_what_of_the_sdk_is_passed_over_is_told(tmp_path: Path) -> None:
    """Not only left out: a step beyond counting, and a message longer than any is taken."""
    reader, outbox, _ = output(tmp_path)
    append(tmp_path, b'{"t":"m","step":1' + b"0" * 30 + b',"values":{"loss":1.0}}\n', "rank0.sdk")
    turn(reader)
    assert points(outbox) == [(0, None, {"loss": 1.0})]
    assert outbox.warned["sdk"]["text"].startswith("rank 0: metrics told at step 10000")
    append(tmp_path, b'{"t":"m","step":2,"values":{"' + b"x" * (5 << 20) + b'":1.0}}\n', "rank0.sdk")
    reader.finish()
    assert outbox.warned["sdk"]["text"] == "rank 0: a message of over 4194304 bytes was skipped: report less per message"


def test_what_the_program_logged_before_it_printed_decides_whether_its_lines_are_parsed(tmp_path: Path) -> None:
    """Transformers logs a dictionary to MLflow and then prints it; a turn may begin between the two."""
    told: list[tuple[int, dict[str, float]]] = []
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    progress = Progress(outbox)

    def logged() -> None:
        while told:
            progress.logged(*told.pop(), counts=True)
            reader.stop_parsing({"loss"})

    reader = RankOutput(Rank(0, str(tmp_path)), Parser(), 1 << 30, progress, logged)
    logged()  # as the loop does at the start of a turn: nothing yet
    told.append((1, {"loss": 0.5}))
    append(tmp_path, b"{'loss': '0.5', 'epoch': '0.07'}\n")
    turn(reader)
    assert points(outbox) == [(0, 1, {"loss": 0.5})]


def test_where_a_program_began_is_not_said_in_epochs(tmp_path: Path) -> None:
    """`resumed from step 200: its first step was 3, and then 225`: 3 was an epoch."""
    reader, _, progress = output(tmp_path)
    append(tmp_path, b" > EPOCH: 3/5\n")
    turn(reader)
    assert progress.evidence.record()["steps"] == [3]
    append(tmp_path, b"global step 225: loss 0.5\nglobal step 230: loss 0.5\n")
    turn(reader)
    assert (progress.evidence.record()["steps"], progress.first_step, progress.last_step) == ([225, 230], 225, 230)


@pytest.mark.parametrize("by_sdk", [True, False])
def test_a_metric_that_was_read_from_the_output_is_read_to_its_end(tmp_path: Path, by_sdk: bool) -> None:
    """The first metric that is reported otherwise ends the reading of new names only, and of those that it takes over."""
    reader, outbox, progress = output(tmp_path)
    append(tmp_path, b"step 4 loss 0.4 acc 0.1\n")
    turn(reader)
    if by_sdk:
        append(tmp_path, b'{"t": "m", "step": 5, "values": {"val_acc": 0.5}}\n', "rank0.sdk")
        turn(reader)
    else:
        progress.logged(5, {"val_acc": 0.5}, True)
        reader.stop_parsing(["val_acc"])
    append(tmp_path, b"step 5 loss 0.5 lr 0.01\nstep 6 loss 0.6 acc 0.2\n")
    turn(reader)
    assert points(outbox)[1:] == [(0, 5, {"val_acc": 0.5}), (0, 5, {"loss": 0.5}), (0, 6, {"loss": 0.6, "acc": 0.2})]
    assert progress.last_step == (5 if by_sdk else 6)
    append(tmp_path, b"Epoch 2 loss 0.7\nval loss 0.8\n")  # a count that is not that of the steps sets nothing back
    reader.stop_parsing(["acc"])
    append(tmp_path, b"step 3 loss 0.3 acc 0.3\n")
    reader.finish()
    assert points(outbox)[-1] == (0, 3, {"loss": 0.3})
    assert progress.last_step == (5 if by_sdk else 6)
