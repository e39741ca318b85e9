"""Other trackers to measure beside ours: an MLflow server of this benchmark's own, and one run of a program against each."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

POINTS = Path(__file__).parent / "programs" / "tracker_points.py"
START_S = 180.0
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "WANDB_SILENT": "true"}


def installed(name: str) -> str | None:
    """A package's version; None where it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@contextmanager
def mlflow_server(root: Path) -> Iterator[str]:
    """Its address: one worker on SQLite, on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{root}/mlflow.db", "--artifacts-destination", str(root / "artifacts"),
    ]  # fmt: skip
    with (root / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **QUIET}, start_new_session=True)
    try:
        url, until_s = f"http://127.0.0.1:{port}", time.monotonic() + START_S
        while not _answers(url):
            if time.monotonic() > until_s or process.poll() is not None:
                raise RuntimeError(f"mlflow server did not start: {(root / 'mlflow.log').read_text()[-2000:]}")
            time.sleep(0.2)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def points_per_s(kind: str, where: str, seconds: float) -> float:
    """How many points a second one script gets rid of, ten a call."""
    done = subprocess.run(
        [sys.executable, POINTS, kind, where, str(seconds)], check=True, stdout=subprocess.PIPE, env={**os.environ, **QUIET}
    )
    told = json.loads(done.stdout.splitlines()[-1])
    return float(told["points"] / told["seconds"])
