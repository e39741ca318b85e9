"""Builds the exit record (`wire.messages.Ended`)."""

from __future__ import annotations

import re
import time

from trainmaster.agent.files.fast_json import read_json
from trainmaster.agent.processes import usage
from trainmaster.agent.supervise.outside_paths import outside
from trainmaster.wire import cgroups
from trainmaster.wire.exceptions import raised
from trainmaster.wire.names import LAST_LINES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from trainmaster.agent.launch.start import Startup
    from trainmaster.agent.metrics.output import RankOutput
    from trainmaster.agent.metrics.progress import Progress
    from trainmaster.agent.processes.rank import Rank
    from trainmaster.wire.launch import Launch

_IN_USE = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_PORT = re.compile(  # `port: 80`, `[::]:80`, `:::80`, `0.0.0.0:80`, `localhost:80`, `('0.0.0.0', 80)`, `listen tcp :80`
    r"\bport\b\W{0,4}\d|\]:\d|:::\d|\d\.\d{1,3}:\d|localhost:\d|', \d| :\d{2,5}\b", re.IGNORECASE
)
_MEET_S = 1800.0  # ranks meet within this time; later, only a program that names no steps has made none
_ERROR_MAX = 4000


class End:
    """What the main loop collects for the exit record."""

    def __init__(self) -> None:
        self.over_memory = False
        self.ran_s = 0.0
        self.staged: list[dict[str, Any]] = []
        self.kept: list[dict[str, Any]] = []
        self.not_kept: list[dict[str, Any]] = []
        self.warned: list[dict[str, Any]] = []
        self.run: list[dict[str, Any]] = []
        self.peak_memory_bytes = 0
        self.environment: Optional[str] = None


def ended(start: Startup, end: End, outputs: list[RankOutput], progress: Progress) -> dict[str, Any]:
    """The complete exit record."""
    launch, restored, failure = start.launch, start.prepared.restored, start.failure
    limited = bool(launch["cgroup"] and start.ranks)
    reported = [(output.rank, _rank(output.rank, output.last_lines(), launch)) for output in outputs]
    reports = [report for rank, report in reported if rank.role is None]
    peak_bytes = max([end.peak_memory_bytes, *(rank.peak_memory_bytes for rank in start.ranks)])
    early = progress.first_step is None and end.ran_s < _MEET_S and not _unread(end, outputs)
    if launch["cgroup"]:
        peak_bytes = usage.cgroup_peak_bytes(launch["cgroup"]) or peak_bytes
    return {
        "kind": "ended",
        "n": 0,
        "ranks": reports,
        "roles": [{**report, "role": rank.role} for rank, report in reported if rank.role is not None],
        "launch_error": failure.text if failure and not failure.of_machine else None,
        "machine_error": failure.text if failure and failure.of_machine else None,
        "launch_lines": failure.lines if failure else [],
        "over_memory": end.over_memory or (limited and cgroups.killed_for_memory(launch["cgroup"] or "")),
        "memory_limit_bytes": launch["memory_bytes"],
        "peak_memory_bytes": peak_bytes,
        "port_in_use": early and any(_rendezvous_taken(report, start) for report in reports),
        "last_step": progress.last_step,
        "first_step": progress.first_step,
        "ran_s": round(end.ran_s, 6),
        "staged": end.staged,
        "kept": end.kept,
        "run": end.run,
        "not_kept": end.not_kept,
        "warned": end.warned,
        "restored": restored.id if restored else None,
        "restored_step": restored.step if restored else None,
        **({f"restored_{mark}": value for mark, value in restored.marks().items()} if restored else {}),
        "bad": list(restored.bad) if restored else [],
        "doubted": list(restored.doubted) if restored else [],
        "environment": end.environment,
        "killed_for_memory": bool(start.ranks) and any(map(cgroups.killed_for_memory, launch.get("contained", ()))),
        "failed_ago_s": _failed_ago_s(start),
        "progress": progress.evidence.record(),
        "unread": _unread(end, outputs),
        "terminated": start.contact.terminated and (not start.ranks or any(rank.stopped_by_us for rank in start.ranks)),
    }


def _unread(end: End, outputs: list[RankOutput]) -> str:
    """Why steps may be missing although the program named them."""
    disabled = next((one["text"] for one in end.warned if one["topic"] == "pattern"), "")
    return next((output.trouble for output in outputs if output.trouble and output.rank.role is None), disabled)


def _failed_ago_s(start: Startup) -> float:
    """How long ago the first rank or role failed by itself; 0 if none did."""
    failed = [rank.ended_after_s for rank in [*start.ranks, *start.roles] if rank.failed]
    return round(time.monotonic() - start.began_s - min(failed), 6) if failed else 0.0


def _rank(rank: Rank, tail: list[str], launch: Launch) -> dict[str, Any]:
    return {
        "rank": rank.number,
        "exit_code": rank.exit_code,
        "signal": rank.signal,
        "stopped_by_us": rank.stopped_by_us,
        "ended_after_s": round(rank.ended_after_s, 6),
        "last_lines": tail[-LAST_LINES:],
        "error": _torch_error(rank.error_path) if rank.error_path else None,
        "raised": raised(tail, rank.exit_code) if rank.failed else None,
        "peak_memory_bytes": rank.peak_memory_bytes,
        "cpu_s": round(rank.cpu_s, 6),
        "outside": outside(launch, tail[-LAST_LINES:]) if rank.failed else None,
    }


def _rendezvous_taken(report: dict[str, Any], start: Startup) -> bool:
    """Whether a failed rank of a gang tells that the rendezvous port was in use. If it names no port, only rank 0 may mean it:
    it is the one that listens there.
    """
    if report["exit_code"] == 0 or start.prepared.rendezvous is None or not start.launch.get("distributed", True):
        return False
    told = [text for text in [*report["last_lines"], report["error"] or ""] if "in use" in text or _IN_USE.search(text)]
    if not any(map(_IN_USE.search, told)):
        return False
    ours = str(start.prepared.rendezvous[1])
    return any(ours in _NUMBER.findall(text) for text in told) or (report["rank"] == 0 and not any(map(_PORT.search, told)))


def _torch_error(path: str) -> Optional[str]:
    """The message in the error file of torch's `record` decorator."""
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return None
    message = value.get("message") if isinstance(value, dict) else None
    if isinstance(message, dict):
        message = message.get("message")
    return str(message)[:_ERROR_MAX] if message else None
