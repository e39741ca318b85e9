"""`make fuzz` in a few seconds: hostile requests against a server, hostile text and archives against an agent's reading."""

from pathlib import Path

import fuzzing
from api_server import SECRET, serving
from hostile_agent import AgentRequests

from trainmaster.model import events as ev
from trainmaster.model.nodes import Allocation, NodeShare


def test_nothing_that_can_be_sent_is_a_fault_or_holds_the_server(tmp_path: Path) -> None:
    """S9: the same draws each time; ten minutes of others: `make fuzz`."""
    with serving(tmp_path / "home") as api:
        job = api.submit()
        api.take_up()
        api.control.record(job, ev.Placed(1, Allocation((NodeShare("node0", "127.0.0.1", 1.0),))), ev.NodeStarted(1, 0))
        agent = AgentRequests(SECRET, f"{job}.1/n0")
        server = fuzzing.Server(str(api.http.base_url), api.home.token_file.read_text().strip(), held_max_s=5.0)
        try:
            fuzzing.rounds(server, [job, "train"], agent, 1, 300)
        finally:
            server.close()
        assert server.asked >= 300
    fuzzing.examine(tmp_path)
