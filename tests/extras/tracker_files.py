"""A real MLflow server that tests may break, and what lies in the files of an offline W&B run."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from waiting import deadline
from wandb.proto.wandb_internal_pb2 import Record

from trainmaster.testing.tracker_contract import Rows

START_S = 180.0


class Mlflow:
    """An MLflow server of the tests, that can be killed, stopped, wiped and brought back on its port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        argv = [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
            "--backend-store-uri", f"sqlite:///{self.directory}/mlflow.db", "--artifacts-destination", f"{self.directory}/artifacts",
        ]  # fmt: skip
        off = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        with (self.directory / "server.out").open("ab") as out:
            self.process = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, **off}, start_new_session=True)
        deadline(self.answers, "MLflow to answer", START_S, 0.5)

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2.0) as connection:
                connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                return b"200" in connection.recv(64)
        except OSError:
            return False

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()
        self.process = None

    def wipe_runs(self) -> None:
        """As if its database had been lost and made anew: no experiment, no run."""
        self.kill()
        for path in self.directory.glob("mlflow.db*"):
            path.unlink()
        self.start()


def wandb_file(root: Path, staged: Path) -> Path | None:
    """The file of the offline run that was written last of a job, once it is there."""
    try:
        marked = (staged / "trainmaster.run").read_text()
    except FileNotFoundError:
        return None
    return next(root.glob(f"wandb/offline-run-*-{marked}/*.wandb"), None)


def wandb_rows(root: Path, ref: str) -> tuple[Rows, dict[str, str]]:
    """Points and params of the offline run, out of the file that `wandb sync` uploads."""
    file = wandb_file(root, Path(ref))
    assert file is not None
    assert not (file.parent / "files" / "requirements.txt").exists(), "no packages of the mirror's own environment"
    rows: Rows = {}
    params: dict[str, str] = {}
    for data in wandb_records(file.read_bytes()):
        record = Record.FromString(data)
        if record.HasField("run"):
            found = {item.key: json.loads(item.value_json) for item in record.run.config.update}
            params |= {name: value for name, value in found.items() if isinstance(value, str)}
        items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        step = record.history.step.num
        for name, value in items.items():
            if not name.startswith("_"):
                rows.setdefault(name, []).append((step, float(json.loads(value))))
    return rows, params


def wandb_records(data: bytes) -> Iterator[bytes]:
    """LevelDB's log format: blocks of 32 KiB, each piece with checksum, length and type (whole, first, middle, last)."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        if left < 7 or kind == 0:
            at += left
            continue
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""
