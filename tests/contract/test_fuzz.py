"""`make fuzz` in a few seconds: hostile requests against a server, hostile text and archives against an agent's reading."""

from pathlib import Path

import fuzzing
from api_server import serving


def test_nothing_that_can_be_sent_is_a_fault_or_holds_the_server(tmp_path: Path) -> None:
    """S9: the same draws each time; ten minutes of others: `make fuzz`."""
    with serving(tmp_path / "home") as api:
        job = api.submit()
        server = fuzzing.Server(str(api.http.base_url), api.home.token_file.read_text().strip(), held_max_s=5.0)
        try:
            fuzzing.rounds(server, [job, "train"], 1, 300)
        finally:
            server.close()
        assert server.asked >= 300
    fuzzing.examine(tmp_path)
