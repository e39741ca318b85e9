"""What every benchmark shares: its options, this machine in words, a server of its own, medians, tables, raw samples.

A figure is never printed without how it was measured: machine, load, versions and n stand above each table.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from trainmaster import __version__, daemons
from trainmaster.client.api import ENDED, Client
from trainmaster.home import Home

RESULTS = Path(os.environ.get("TRAINMASTER_BENCH_RESULTS") or Path(__file__).parent / "results")
CLEAR = ("TRAINMASTER_SERVER", "TRAINMASTER_TOKEN", "TRAINMASTER_FAILPOINT")

# The program whose first line is timed: it writes down when it got there, on the clock that all processes share.
MARK = "import sys, time; open(sys.argv[1], 'w').write(repr(time.clock_gettime(time.CLOCK_MONOTONIC)))"


@dataclass(frozen=True)
class Options:
    """`quick`: few samples, to see that it works; its figures mean little."""

    quick: bool
    n: int
    peers: bool


def options(description: str, n: int, quick_n: int) -> Options:
    """What the command line says; `n` samples unless it names another number."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help=f"{quick_n} samples, to see that it works")
    parser.add_argument("-n", type=int, help=f"samples; default {n}")
    parser.add_argument("--no-peers", action="store_true", help="only our own figures")
    given = parser.parse_args()
    return Options(given.quick, given.n or (quick_n if given.quick else n), not given.no_peers)


def percentile(samples: Sequence[float], share: float) -> float:
    """The sample below which `share` of them lie (nearest rank)."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(samples: Sequence[float]) -> float:
    """Their p50."""
    return statistics.median(samples)


def ms(seconds: float) -> str:
    """Seconds, as milliseconds to read."""
    return f"{seconds * 1000:.0f} ms" if abs(seconds) >= 0.01 else f"{seconds * 1000:.1f} ms"


def ratio(value: float, ours: float) -> str:
    """How often ours fits into it."""
    return f"{value / ours:.1f}×" if ours > 0 and value > 0 else "–"


@dataclass
class Report:
    """One benchmark's page: printed as Markdown, its raw samples kept in `results/`."""

    name: str
    title: str
    options: Options
    versions: dict[str, str] = field(default_factory=dict)
    _raw: dict[str, list[float]] = field(default_factory=dict)
    _parts: list[str] = field(default_factory=list)
    _goals: list[dict[str, object]] = field(default_factory=list)
    _load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def __post_init__(self) -> None:
        self.versions = {"trainmaster": __version__, "python": platform.python_version(), **self.versions}

    def keep(self, series: str, samples: Sequence[float]) -> None:
        """Raw samples, in seconds unless the series says otherwise."""
        self._raw[series] = list(samples)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table; the first column is text, the others are numbers."""
        lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        self._parts.append("\n".join(lines))

    def say(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(text)

    def goal(self, what: str, value: float, limit: float, *, at_least: bool = False, show: Callable[[float], str] = ms) -> None:
        """Whether a figure is where it is meant to be."""
        met = value >= limit if at_least else value <= limit
        bound = "at least" if at_least else "at most"
        self._parts.append(f"Goal: {what}, {bound} {show(limit)}: {show(value)}, {'met' if met else '**not met**'}.")
        self._goals.append({"what": what, "value": value, "limit": limit, "met": met})

    def finish(self) -> None:
        """Print the page and keep the samples."""
        load = f"load average {self._load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
        memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
        machine = f"{os.cpu_count()} × {_processor()}, {memory}, {platform.system()} {platform.release()}"
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        n = f"{self.options.n}{' (--quick)' if self.options.quick else ''}"
        about = f"Machine: {machine}; {load}.\nVersions: {versions}.\nn = {n}."
        print("\n\n".join([f"## {self.title}", about, *self._parts]), flush=True)
        RESULTS.mkdir(exist_ok=True)
        raw = {"machine": machine, "load": load, "versions": self.versions, "samples": self._raw, "goals": self._goals}
        quick = "-quick" if self.options.quick else ""
        (RESULTS / f"{self.name}{quick}.raw.json").write_text(json.dumps(raw, indent=1))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tm-bench-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def server(root: Path, **declared: float) -> Iterator[Client]:
    """A server of this benchmark's own, with what `tm up` may declare; gone afterwards, with all its jobs."""
    home = own_home(root)
    try:
        daemons.start(home, daemons.Options(**declared))  # type: ignore[arg-type]
        with Client(start=False) as client:
            yield client
    finally:
        end_server(home)


def own_home(root: Path) -> Home:
    """`TRAINMASTER_HOME` for this process and its children."""
    for name in CLEAR:
        os.environ.pop(name, None)
    os.environ["TRAINMASTER_HOME"] = str(root / "home")
    os.environ["XDG_CONFIG_HOME"] = str(root / "config")
    return Home.default()


def end_server(home: Home) -> None:
    """End what runs, then the server."""
    down = [sys.executable, "-m", "trainmaster", "down", "--cancel"]
    subprocess.run(down, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    daemons.stop(home)


def wait_all(client: Client, jobs: Sequence[str], timeout_s: float = 300.0) -> list[dict[str, object]]:
    """Every job, once all have ended well. Raises: RuntimeError."""
    client.wait(jobs[-1], timeout_s)
    rows = {str(row["id"]): row for row in client.jobs(all=1)}
    for job in jobs:
        if rows[job]["state"] not in ENDED:
            rows[job] = client.wait(job, timeout_s)
        if rows[job]["state"] != "succeeded":
            raise RuntimeError(f"{job} {rows[job]['state']}: {rows[job]['reason']}")
    return [rows[job] for job in jobs]


def await_mark(path: Path, timeout_s: float = 60.0) -> float:
    """The time that a program wrote down. Raises: RuntimeError."""
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        try:
            text = path.read_text()
        except FileNotFoundError:
            text = ""
        if text:
            return float(text)
        time.sleep(0.005)
    raise RuntimeError(f"no program wrote {path} within {timeout_s:g} s")


def bare_start(path: Path) -> float:
    """Seconds from a plain start of the program to its first line."""
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", MARK, str(path)], check=True)
    return await_mark(path) - began_s


def settle(quick: bool) -> None:
    """Let the machine come to rest between two samples."""
    time.sleep(0.02 if quick else 0.15)
