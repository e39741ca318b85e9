"""A program that is told to end saves, and exits 0: what it saved is stored, unless the end may have cut it short."""

from pathlib import Path

import pytest
from agents import agent

WAITS = "echo ready; while true; do sleep 0.05; done"
SAVES = "trap 'echo whole > model_40.txt; exit 0' TERM"
BEGUN = "while [ ! -s model_40.txt ]; do sleep 0.05; done"
MAY_BE_CUT = "what wrote it ended before it was seen closed"
SEVERAL = "it was still being written, or not yet seen unchanged, when the attempt ended"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (f"{SAVES}; {WAITS}", None),
        (f"exec 3> model_40.txt; echo half >&3; trap 'exit 0' TERM; {WAITS}", MAY_BE_CUT),
        (f"(echo half; sleep 60) > model_40.txt & trap 'exit 0' TERM; {BEGUN}; {WAITS}", MAY_BE_CUT),
        (f"trap '(echo half; sleep 60) > model_40.txt & {BEGUN}; exit 0' TERM; {WAITS}", MAY_BE_CUT),
        (f"(trap '' TERM; while true; do sleep 0.05; done) & {SAVES}; {WAITS}", SEVERAL),
        (f"trap 'mkdir model_40; echo part > model_40/part; exit 0' TERM; {WAITS}", SEVERAL),
    ],
    ids=["saved", "open", "open in a saver", "open in a saver left behind", "another is killed", "the first of several files"],
)
def test_what_is_saved_in_the_grace_period_is_stored(tmp_path: Path, command: str, told: str | None) -> None:
    with agent(tmp_path, command, checkpoint_path="model_*") as it:
        it.printed("ready")
        it.stop(1.0)
        record = it.ended()
    assert [(rank["exit_code"], rank["stopped_by_us"]) for rank in record["ranks"]] == [(0, True)]
    assert [one["step"] for one in record["staged"]] == ([40] if told is None else [])
    texts = [one["text"] for one in record["warned"] if one["topic"] == "checkpoint"]
    assert [told in text for text in texts] == ([True] if told else [])
