"""What an agent says on its standard error can be lost: on a full disk, `agent.log` takes nothing."""

import os
import subprocess
import sys
from pathlib import Path

from agents import Agent

SAVES = "echo step 1; mkdir out; echo weights > out/new; mv out/new out/ck-1; sleep 1.5"


def test_a_checkpoint_that_cannot_be_stored_is_told_although_the_log_of_the_agent_is_full(tmp_path: Path) -> None:
    store = tmp_path / "no directory"
    store.write_text("")
    made = Agent(tmp_path / "agent", SAVES, checkpoint_path="out/ck-{step}", checkpoint_store=str(store / "job"))
    with open("/dev/full", "wb") as full:
        made.process = subprocess.Popen(
            [sys.executable, "-m", "trainmaster.agent", str(made.directory)], stdin=subprocess.DEVNULL, stdout=full, stderr=full
        )
    try:
        ended = made.ended()
    finally:
        made.process.kill()
    assert [rank["exit_code"] for rank in ended["ranks"]] == [0]
    told = [warned["text"] for warned in ended["warned"] if warned["topic"] == "checkpoint"]
    assert len(told) == 1
    assert "out/ck-1 is not in the store" in told[0] or "{step}=1 is not in the store" in told[0]
    assert os.strerror(20) in told[0]  # why it is not, and no other reason
