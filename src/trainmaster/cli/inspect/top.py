"""`tm top`: shows nodes and jobs, redrawn continuously; `q` ends it."""

import contextlib
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator

import click

from trainmaster.cli.inspect.ps import COLUMNS, cells
from trainmaster.cli.render import human
from trainmaster.cli.render.table import draw
from trainmaster.cli.session import Session, remote
from trainmaster.client.api import Client
from trainmaster.client.filters import JobFilter

_SHOWN = ("id", "state", "try", "step", "metric", "age", "where")
_SPARE = (4, 3, 2)  # columns dropped on a narrow terminal
_NODES = ("NODE", "STATE", "CPUS", "MEMORY", "GPUS")
_LISTED = 200
_ENDED = 5  # ended jobs shown
_CLEAR, _HOME_CURSOR, _HIDE, _SHOW = "\x1b[2J", "\x1b[H\x1b[J", "\x1b[?25l", "\x1b[?25h"
_BAR = 10


@click.command()
@click.option("--every", "every_s", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Draw it once; the default if the output is piped.")
@remote
def top(session: Session, every_s: float, once: bool) -> None:
    """Watch nodes and jobs live; q ends it, jobs continue."""
    client, out = session.client(), session.out
    if out.json:
        out.value({"nodes": client.nodes(), "jobs": client.jobs(limit=_LISTED)})
        return
    if once or not (out.terminal and sys.stdin.isatty()):
        for line in _page(client, out.width, None):
            out.data(line)
        return
    with _raw_terminal():
        sys.stdout.write(_CLEAR)
        while True:
            lines = _page(client, out.width, shutil.get_terminal_size((80, 24)).lines)
            sys.stdout.write(_HOME_CURSOR)
            for line in lines:
                out.data(line)
            sys.stdout.flush()
            if _pressed(every_s) in ("q", "Q", "\x03", "\x04", "\x1b"):
                return


def _page(client: Client, width: int | None, height: int | None) -> list[str]:
    """The whole screen, cut to the terminal's height."""
    now_s = time.time()
    jobs = client.jobs(**JobFilter(limit=_LISTED))
    live = [job for job in jobs if job["ended_s"] is None]
    shown = [*live, *[job for job in jobs if job["ended_s"] is not None][:_ENDED]]
    states: dict[str, int] = {}
    for job in live:
        states[job["state"]] = states.get(job["state"], 0) + 1
    told = ", ".join(f"{count} {state}" for state, count in states.items()) or "no job is waiting or running"
    nodes = [_node(node) for node in client.nodes()]
    lines = [f"{time.strftime('%H:%M:%S')}  {told}", "", *draw(_NODES, nodes, width), ""]
    headers = [COLUMNS[name].header for name in _SHOWN]
    lines += draw(headers, [cells(job, now_s, _SHOWN) for job in shown], width, _SPARE) if shown else []
    if height is not None and len(lines) > height - 2:
        lines = [*lines[: height - 3], f"… {len(lines) - height + 3} more lines: tm ps"]
    return lines if height is None else [*lines, "", "q ends this; jobs continue"][: height - 1]


def _node(node: dict[str, object]) -> list[str]:
    """One node's cells, with bars for usage."""
    free: dict[str, object] = node["free"]  # type: ignore[assignment]
    whole, left = float(node["cpus"]), float(free["cpus"])  # type: ignore[arg-type]
    memory, unused = float(node["memory_bytes"]), float(free["memory_bytes"])  # type: ignore[arg-type]
    devices, idle = len(node["devices"]), float(free["gpus"])  # type: ignore[arg-type]
    cpus = f"{_bar(whole - left, whole)} {whole - left:g}/{whole:g}"
    used = f"{_bar(memory - unused, memory)} {human.memory(memory - unused)}/{human.memory(memory)}"
    gpus = f"{_bar(devices - idle, devices)} {devices - idle:g}/{devices}" if devices else "none"
    return [str(node["name"]), str(node["state"]), cpus, used, gpus]


def _bar(used: float, whole: float) -> str:
    filled = round(_BAR * min(1.0, used / whole)) if whole > 0 else 0
    return "#" * filled + "." * (_BAR - filled)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Put the terminal into raw mode so that single keys are read; restore it afterwards in any case."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write(_HIDE)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write(_SHOW + "\n")
        sys.stdout.flush()


def _pressed(timeout_s: float) -> str:
    """The key that was pressed within the time; empty if none."""
    ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
    return sys.stdin.read(1) if ready else ""
