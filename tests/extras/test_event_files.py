"""TensorBoard's files as its real writers make them, read while they are written, over a crash and a restart."""

from pathlib import Path

import pytest
from running import Tm, attempts, server

from trainmaster.agent.metric_files.event_file import EventFile, named

PROGRAM = """
import json, os, sys
from torch.utils.tensorboard import SummaryWriter
import torch
again, saved = os.environ["TRAINMASTER_ATTEMPT"] != "1", sys.argv[1:]
begin = json.load(open(saved[-1]))[0] + 1 if saved else 1
os.makedirs("out", exist_ok=True)
writer = SummaryWriter(comment=f"_{os.environ['TRAINMASTER_ATTEMPT']}")
writer.add_text("config", "lr: 0.1")
for step in range(begin, 41):
    writer.add_scalar("train/loss", 1 / step, step)
    writer.add_scalars("acc", {"train": step / 40, "test": step / 50}, step)
    if step % 10 == 0:
        writer.add_histogram("weights", torch.arange(100.0), step)
        writer.add_image("sample", torch.zeros(3, 64, 64), step)
        writer.flush()
        open("out/part", "w").write(json.dumps([step]))
        os.rename("out/part", f"out/{step}.json")
    if step == 25 and not again:
        os._exit(1)
writer.close()
"""
SAVES = ("--checkpoint", "out/{step}.json", "--resume-arguments", "{path}")


def test_what_pytorch_writes_is_read_and_shows_where_a_restart_went_on(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="installed with the extra `tensorboard`")
    with server(tmp_path) as tm:
        tm.file("train.py", PROGRAM)
        tm.ok("run", "--name", "tb", "--restarts", "1", *SAVES, "--metrics-file", "runs/**/*.tfevents.*", "--", "python3", "train.py")
        job = tm.json("show", "tb")
        assert attempts(job, "resumed_from_step", "resumed_evidence", "resumed_because")[1] == (20, "seen", ["its first step was 21"])
        points = {(row["metric"], row["step"]): row["value"] for row in tm.json("metrics", "tb")}
        assert points == {
            **{("train/loss", step): pytest.approx(1 / step) for step in range(1, 41)},
            **{("acc_train", step): pytest.approx(step / 40) for step in range(1, 41)},
            **{("acc_test", step): pytest.approx(step / 50) for step in range(1, 41)},
        }
        tried = advice_of(tm)
        assert "a job takes it as --metrics-file 'runs/**/*.tfevents.*'" in tried


def advice_of(tm: Tm) -> str:
    """What `tm metrics try` says of a file that the job wrote."""
    job = tm.json("show", "tb")
    work = Path(job["work"][0]) if "work" in job else tm.home.jobs_work("tb-1")
    path = next(work.glob("**/runs/*_2/*.tfevents.*"))
    tm.work.joinpath("runs").mkdir(exist_ok=True)
    copy = tm.work / "runs" / path.name
    copy.write_bytes(path.read_bytes())
    return tm("metrics", "try", f"runs/{path.name}").err


def test_what_tensorflow_2_writes_is_read(tmp_path: Path) -> None:
    """Keras and TensorFlow have scalars as tensors. TensorBoard's own library makes them."""
    pytest.importorskip("tensorboard", reason="installed with the extra `tensorboard`")
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - of an extra
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb  # noqa: PLC0415 - likewise
    from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415 - likewise

    writer = EventFileWriter(str(tmp_path / "validation"))
    for step in range(3):
        writer.add_event(Event(wall_time=1.0, step=step, summary=scalar_pb("epoch_loss", 1 / (step + 1))))
    writer.close()
    path = str(next((tmp_path / "validation").iterdir()))
    found = [(step, *values.items()) for step, values in EventFile(path).news()]
    assert found == [(step, (named(path, "epoch_loss"), pytest.approx(1 / (step + 1)))) for step in range(3)]
