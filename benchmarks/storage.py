"""What storing costs: a code copy of what the server has already, and a checkpoint on its way to S3, beside what others do.

The repository has 10,000 files, none changed since the last submit; beside it `git stash create`. The checkpoint is written
by a job with `sdk.checkpoint`; its time runs from the end of the `with` block to the commit on record, digest, node's copy,
upload and manifest included. Beside it, the same bytes uploaded by boto3 and obstore, which digest nothing of the kind. The
S3 server (moto's, a process of its own) and whoever sends share this machine's cores. It keeps what it gets in memory (left to
itself it writes every part to a file, and whoever comes next pays for the disk), each sample begins with nothing to be written
back, and who comes first changes from one round to the next.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

import common

from trainmaster.client.api import Client
from trainmaster.client.code_copy.gather import gather
from trainmaster.client.submission import draft_command, send
from trainmaster.wire.code import digest

FILES, QUICK_FILES = 10_000, 1_000
MIB = 1024 * 1024
CHECKPOINT, QUICK_CHECKPOINT = 1024 * MIB, 64 * MIB
UPLOADS, QUICK_UPLOADS = 5, 1
BUCKET = "bench"
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}
NEEDED = ("moto", "boto3", "obstore")
S3_SERVER = """
import logging, os, sys
os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = str(2**40)
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
PROGRAM = """
import os, shutil, sys, time
from trainmaster import sdk
with sdk.checkpoint(1) as directory:
    shutil.copyfile(sys.argv[1], os.path.join(directory, "weights.bin"))
    os.sync()
open(sys.argv[2], "w").write(repr(time.time()))
time.sleep(0.7)
"""


def main() -> None:
    """Measure both."""
    options = common.options(__doc__ or "", 10, 3)
    versions = {name: _version(name) for name in NEEDED}
    report = common.Report("storage", "Storing code and checkpoints", options, versions)
    with common.scratch() as root:
        _code(report, root)
    if all(find_spec(name) for name in NEEDED):
        with common.scratch() as root:
            _checkpoint(report, root)
    else:
        report.say(f"The checkpoint to S3 was not measured: {', '.join(NEEDED)} are not all installed.")
    report.finish()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _code(report: common.Report, root: Path) -> None:
    """A work directory looked at again."""
    count, n = (QUICK_FILES if report.options.quick else FILES), report.options.n
    os.environ["XDG_CACHE_HOME"] = str(root / "cache")
    repository = _repository(root / "repository", count)
    time.sleep(0.3)  # what has changed a moment ago is digested again the next time
    gather(repository)
    ours, theirs, tree = list[float](), list[float](), ""
    for _ in range(n):
        common.settle(report.options.quick)
        ours.append(_timed(lambda: digest(gather(repository).tree)))
        theirs.append(_timed(lambda: subprocess.run(["git", "stash", "create"], cwd=repository, check=True)))
        tree = digest(gather(repository).tree)
    report.keep("code copy: seconds", ours)
    report.keep("git stash create: seconds", theirs)
    stored, again = _bytes_stored_twice(root, repository)
    rows = [
        [f"code copy of {count:,} unchanged files", common.ms(common.median(ours)), common.ms(max(ours))],
        ["`git stash create`", common.ms(common.median(theirs)), common.ms(max(theirs))],
    ]
    report.table(["", "p50", "worst"], rows)
    report.say(f"The first submit stored {stored:,} bytes, the second {again:,} (tree {tree[:12]}).")
    report.goal(f"a code copy of {count:,} unchanged files, median", common.median(ours), 0.1)
    report.goal("bytes stored by a second submit", float(again), 0.0, show=lambda value: f"{value:.0f}")


def _repository(root: Path, count: int) -> Path:
    rng = random.Random(1)
    for number in range(count):
        path = root / f"package{number % 20}" / f"module{number % 200}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value = {rng.random()}\n" * 30)
    git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], cwd=root, check=True)
    return root


def _bytes_stored_twice(root: Path, repository: Path) -> tuple[int, int]:
    """What the first and the second submit of one work directory add to the store, in bytes."""
    with common.server(root / "server") as client:
        sizes = [0]
        for _ in range(2):
            send(client, draft_command(["true"], {"workdir": str(repository)}))
            rows = client.disk.storage()["use"]
            sizes.append(sum(row["bytes"] for row in rows if row["kind"] == "code"))
    return sizes[1], sizes[2] - sizes[1]


def _checkpoint(report: common.Report, root: Path) -> None:
    """The same bytes, by us and by the clients of S3."""
    quick = report.options.quick
    size, n = (QUICK_CHECKPOINT, QUICK_UPLOADS) if quick else (CHECKPOINT, UPLOADS)
    os.environ.update(KEYS, XDG_CACHE_HOME=str(root / "cache"))
    weights = root / "weights.bin"
    with weights.open("wb") as file:
        for _ in range(size // MIB):
            file.write(random.randbytes(MIB))
    taken: dict[str, list[float]] = {"Trainmaster, to the commit": [], "boto3 upload_file": [], "obstore put": []}
    for name in NEEDED[1:]:
        import_module(name)  # no part of a sample
    with _s3() as endpoint:
        home = common.own_home(root)
        home.root.mkdir(parents=True, mode=0o700)
        text = f'[storage]\nurl = "s3://{BUCKET}/ours"\nendpoint = "{endpoint}"\n'
        (home.root / "server.toml").write_text(text)
        with common.server(root) as client:
            turns: dict[str, Callable[[int], float]] = {
                "Trainmaster, to the commit": lambda number: _ours(client, root, weights, number),
                "boto3 upload_file": lambda number: _timed(lambda: _boto3(endpoint, weights)),
                "obstore put": lambda number: _timed(lambda: _obstore(endpoint, weights)),
            }
            names = list(turns)
            for number in range(n):
                for name in names[number % 3 :] + names[: number % 3]:
                    _empty(endpoint)
                    taken[name].append(turns[name](number))
    rows = []
    for name, samples in taken.items():
        report.keep(f"{name}: seconds", samples)
        rows.append([name, common.ms(common.median(samples)), f"{size / MIB / common.median(samples):.0f} MiB/s"])
    report.table([f"{size // MIB} MiB", "p50", "rate"], rows)
    best = min(common.median(taken["boto3 upload_file"]), common.median(taken["obstore put"]))
    share = best / common.median(taken["Trainmaster, to the commit"])
    report.goal("rate beside the faster client", share, 0.9, at_least=True, show=lambda value: f"{value:.0%}")


@contextmanager
def _s3() -> Iterator[str]:
    command, pipe = [sys.executable, "-c", S3_SERVER], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        port = next(line.split()[1] for line in process.stdout if line.startswith("port "))
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _empty(endpoint: str) -> None:
    """Nothing of the sample before is left: in the memory of the S3 server, or to be written to a disk."""
    urlopen(Request(f"{endpoint}/moto-api/reset", method="POST"), timeout=60).close()
    urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=60).close()
    os.sync()


def _ours(client: Client, root: Path, weights: Path, number: int) -> float:
    mark, work = root / f"mark{number}", root / f"work{number}"
    work.mkdir()
    (work / "train.py").write_text(PROGRAM)
    job = send(client, draft_command([sys.executable, "train.py", str(weights), str(mark)], {"workdir": str(work)}))
    shown = client.wait(job, 600.0)
    if shown["state"] != "succeeded":
        raise RuntimeError(f"{job}: {shown['reason']}")
    return float(client.job(job)["checkpoints"][-1]["committed_s"]) - float(mark.read_text())


def _boto3(endpoint: str, weights: Path) -> None:
    import boto3  # noqa: PLC0415  a peer

    boto3.client("s3", endpoint_url=endpoint).upload_file(str(weights), BUCKET, "boto3")


def _obstore(endpoint: str, weights: Path) -> None:
    import obstore  # noqa: PLC0415  a peer
    from obstore.store import S3Store  # noqa: PLC0415  likewise

    store = S3Store(BUCKET, endpoint=endpoint, virtual_hosted_style_request=False, client_options={"allow_http": True})
    obstore.put(store, "obstore", weights)


if __name__ == "__main__":
    main()
