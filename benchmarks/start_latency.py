"""How long from a submit to the first line of the program, on an idle machine, beyond a bare start of the same program.

Bare starts and ours are taken in turn, so that both see the same machine. Goals: 40 ms beyond bare for a prepared
submission, 100 ms with a repository of 200 files that is copied, one of them changed since the last time.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import common
import peers

from trainmaster.client import submission
from trainmaster.client.api import Client
from trainmaster.client.origin import origin

GOAL_S, GOAL_COPY_S = 0.040, 0.100
FILES = 200
Start = Callable[[Path], float]  # starts the program that writes the mark; returns when that was begun


def prepared(client: Client, directory: Path) -> Start:
    """`Client.submit` of what is ready to be sent."""
    place = origin(directory)

    def start(mark: Path) -> float:
        spec = {"name": "bench", "command": [sys.executable, "-c", common.MARK, str(mark)]}
        whole = {"spec": spec, "origin": place, "code": {"in_place": True}, "hold": None}
        began_s = time.monotonic()
        job = client.submit(whole)
        common.await_mark(mark)
        client.wait(job)
        return began_s

    return start


def copied(client: Client, repository: Path) -> Start:
    """`submission.send` of a repository: listed, digested, what changed is sent, laid out for the job."""
    changing = repository / "package7" / "module3.py"

    def start(mark: Path) -> float:
        changing.write_text(f"# changed for {mark.name}\n{changing.read_text()[-2000:]}")
        began_s = time.monotonic()
        command = [sys.executable, "-c", common.MARK, str(mark)]
        job = submission.send(client, submission.draft_command(command, {"workdir": str(repository)}))
        common.await_mark(mark)
        client.wait(job)
        return began_s

    return start


def command_line(client: Client, directory: Path) -> Start:
    """`tm submit`, its own interpreter's start included."""

    def start(mark: Path) -> float:
        began_s = time.monotonic()
        tm = [str(Path(sys.executable).with_name("tm")), "submit", "-q", "--in-place", "--workdir", str(directory)]
        done = subprocess.run(
            [*tm, "--", sys.executable, "-c", common.MARK, str(mark)], check=True, capture_output=True, text=True
        )
        common.await_mark(mark)
        client.wait(done.stdout.strip())
        return began_s

    return start


def peer_start(peer: peers.Peer) -> Start:
    """The same program handed to a peer."""

    def start(mark: Path) -> float:
        return peer.start([sys.executable, "-c", common.MARK, str(mark)], mark)

    return start


def repository(root: Path) -> Path:
    """A git repository of 200 committed files."""
    for package in range(20):
        directory = root / f"package{package}"
        directory.mkdir(parents=True)
        for module in range(FILES // 20):
            lines = (f"def function_{n}(x):\n    return x * {package} + {module} + {n}\n" for n in range(40))
            (directory / f"module{module}.py").write_text("\n".join(lines))
    git = ["git", "-C", str(root), "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "files"]):
        subprocess.run([*git, *arguments], check=True)
    return root


def sample(start: Start, marks: Path, options: common.Options) -> tuple[list[float], list[float]]:
    """Starts and bare starts, in turn; the first of each only warms up. Seconds."""
    marks.mkdir()
    taken: list[float] = []
    bare: list[float] = []
    for turn in range(options.n + 1):
        common.settle(options.quick)
        bare.append(common.bare_start(marks / f"bare-{turn}"))
        common.settle(options.quick)
        mark = marks / f"mark-{turn}"
        began_s = start(mark)
        taken.append(common.await_mark(mark) - began_s)
    return taken[1:], bare[1:]


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=40, quick_n=2)
    report = common.Report("start_latency", "Submit to the first line of the program", options)
    rows: list[list[str]] = []
    beyond: dict[str, float] = {}

    def measure(name: str, start: Start, marks: Path, turns: common.Options = options) -> None:
        taken, bare = sample(start, marks, turns)
        report.keep(name, taken)
        report.keep(f"{name}: bare", bare)
        beyond[name] = common.median(taken) - common.median(bare)
        figures = (common.median(taken), common.percentile(taken, 0.9), common.median(bare), beyond[name])
        ours = beyond["Client.submit, prepared"]
        rows.append([name, str(len(taken)), *map(common.ms, figures), common.ratio(beyond[name], ours)])

    with common.scratch() as root:
        (root / "work").mkdir()
        files = repository(root / "repository")
        with common.server(root) as client:
            measure("Client.submit, prepared", prepared(client, root / "work"), root / "prepared")
            measure(f"with a repository of {FILES} files", copied(client, files), root / "copied")
            measure("`tm submit`", command_line(client, root / "work"), root / "line")
        for name, title in peers.TITLES.items():
            version = peers.installed(name) if options.peers else None
            if version is None:
                rows.append([title, "not installed" if options.peers else "not asked", *[""] * 5])
                continue
            report.versions[name] = version
            fewer = common.Options(options.quick, min(options.n, 10 if name == "ray" else options.n), True)
            with peers.Peer(name, root) as peer:
                measure(title, peer_start(peer), root / f"marks-{name}", fewer)
    head = ["submitted by", "n", "p50", "p90", "bare p50", "beyond bare", "against ours"]
    report.table(head, rows)
    report.say(
        "submitit runs a Python function, in an interpreter of its own start; the others run the very program that is started "
        "bare. Their clients are warm, as ours is; only `tm submit` starts one each time."
    )
    report.goal("a prepared submission beyond a bare start", beyond["Client.submit, prepared"], GOAL_S)
    report.goal("with the repository", beyond[f"with a repository of {FILES} files"], GOAL_COPY_S)
    report.finish()


if __name__ == "__main__":
    main()
