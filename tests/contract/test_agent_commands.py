"""Commands beside the ranks end with the ranks, whatever grace period a stop has."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from agents import agent, gone
from sync_server import SyncServer, sync_server
from waiting import deadline

KEY = "digits-1.1/n0"
TERMINAL = {"rows": 24, "columns": 80, "term": "xterm"}
WAITS = "echo ready; while true; do sleep 0.05; done"
STUBBORN = "trap '' TERM; {more}echo $$ > pid.new; mv pid.new pid; while true; do sleep 0.05; done"


def over(server: SyncServer) -> dict[str, Any] | None:
    """How the command ended."""
    return next((request["over"] for request in list(server.outputs) if request.get("over")), None)


@pytest.mark.parametrize(
    ("terminal", "more", "number"),
    [(TERMINAL, "", signal.SIGHUP), (TERMINAL, "trap '' HUP; ", signal.SIGKILL), (None, "", signal.SIGKILL)],
    ids=["a terminal is hung up", "a terminal that ignores it", "no terminal"],
)
def test_a_command_ends_with_the_ranks(tmp_path: Path, terminal: Any, more: str, number: int) -> None:
    """A shell that ignores SIGTERM held the attempt, and its GPUs, for the whole grace period of an eviction."""
    with sync_server(tmp_path / "api.sock") as server:
        line = f"trap 'exit 0' TERM; {WAITS}"
        with agent(tmp_path / "a", line, server_socket=str(tmp_path / "api.sock"), credential="") as it:
            it.printed("ready")
            command = ["sh", "-c", STUBBORN.format(more=more)]
            server.give(KEY, {"order": "exec", "id": "e1", "command": command, "terminal": terminal, "stdin": False})
            pid = it.pid_of("pid")
            began_s = time.monotonic()
            it.stop(60.0)
            record = it.ended()
            assert time.monotonic() - began_s < 15.0
            assert gone(pid)
        told = deadline(lambda: over(server), "how it ended")
    assert told == {"exit_code": None, "signal": number, "error": None, "with_attempt": True}
    assert [(rank["exit_code"], rank["stopped_by_us"]) for rank in record["ranks"]] == [(0, True)]


HALF = "(echo half; echo > half; exec sleep 60) > model_40.txt"
DIES = "trap '' TERM; while [ ! -e go ]; do sleep 0.02; done; sleep 0.5; exec > model_40.txt; echo half; exec sleep 60"


@pytest.mark.parametrize("beside", ["command", "role"])
@pytest.mark.parametrize("line", [HALF, DIES], ids=["open when it is told to end", "opened after that, and killed"])
def test_what_was_being_written_beside_the_ranks_may_be_cut_short(tmp_path: Path, beside: str, line: str) -> None:
    """Every rank succeeded, so all that matched counted as complete: also what a command was still copying."""
    argv = ["sh", "-c", f"echo > begun; {line}"]
    roles = [{"name": "copier", "command": argv, "shell": False, "devices": None, "cpus": 1.0}] if beside == "role" else []
    with sync_server(tmp_path / "api.sock") as server:
        waits = f"echo ready; while [ ! -e {'half' if line == HALF else 'begun'} ]; do sleep 0.05; done; touch go"
        orders: dict[str, Any] = {"checkpoint_path": "model_*.txt", "roles": roles, "grace_s": 2.0}
        with agent(tmp_path / "a", waits, server_socket=str(tmp_path / "api.sock"), credential="", **orders) as it:
            it.printed("ready")
            if beside == "command":
                server.give(KEY, {"order": "exec", "id": "e1", "command": argv, "stdin": False})
            record = it.ended()
    assert [(rank["exit_code"], rank["stopped_by_us"]) for rank in record["ranks"]] == [(0, False)]
    texts = [one["text"] for one in record["warned"] if one["topic"] == "checkpoint"]
    assert (record["staged"], ["what wrote it ended before it was seen closed" in text for text in texts]) == ([], [True])
