"""A rank that waits for what never comes: told after a while, taken back when it goes on."""

from pathlib import Path

from trainmaster.agent.metrics.output import RankOutput
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.rank import Rank
from trainmaster.agent.supervise.inactivity import TOLD_S, Standstill
from trainmaster.agent.transport.outbox import Outbox


def test_ranks_that_stand_still_are_told_until_they_go_on(tmp_path: Path) -> None:
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    outputs = [RankOutput(Rank(number, str(tmp_path)), None, 1 << 20, Progress(outbox)) for number in range(2)]
    works: list[bool] = []
    it = Standstill(outbox, outputs, lambda: bool(works))

    def told(now_s: float, cpu_s: float) -> str:
        it.look(now_s, cpu_s)
        return str(outbox.warned["standstill"]["text"]) if "standstill" in outbox.warned else ""

    assert told(0.0, 0.0) == ""
    assert told(TOLD_S - 1, 2.0) == ""  # what a loop that tries again takes
    works.append(True)
    assert told(TOLD_S + 1, 2.0) == ""  # an accelerator works; from now on it counts anew
    works.clear()
    assert told(2 * TOLD_S - 1, 2.0) == ""
    text = told(2 * TOLD_S + 2, 2.0)
    assert text.startswith("rank 0 and 1 more: no output, no report and hardly any processor time for 5 min; it may wait for another")
    assert told(2 * TOLD_S + 3, 2.0) == text
    (tmp_path / "rank1.log").write_text("met")
    outputs[1].turn(0.0)
    assert told(2 * TOLD_S + 4, 2.0) == ""
    assert told(3 * TOLD_S + 5, 100.0) == ""  # it computes
    assert told(4 * TOLD_S + 6, 100.5) != ""
    assert told(4 * TOLD_S + 7, 200.0) == ""
