"""The histories detect planted bugs: some of them in every run, all of them in `make nightly`."""

import pytest
from effort import NIGHTLY, examples
from mutants import MUTANTS
from test_world import play

SEEDS = examples(200, 2000)
EARLY = (  # those that the first seeds show
    "no checkpoint is ever staged",
    "every checkpoint that was put back is called bad",
    "a start that fails counts as success",
    "R7: only the newest checkpoint is handed out",
    "R11: what a dead agent had kept is lost",
    "R12: a warning is dropped",
    "R13: a report that comes twice is taken twice",
    "R17: the same key makes a second job",
    "the second node of a gang is not counted",
)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", MUTANTS if NIGHTLY else EARLY)
def test_the_histories_notice_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert any(noticed(seed) for seed in range(SEEDS)), f"no history of {SEEDS} notices it"


def noticed(seed: int) -> bool:
    """Whether the history violates a law, or ends the control process."""
    try:
        return bool(play(seed)[0])
    except Exception:  # noqa: BLE001 - whatever a planted bug ends the process with
        return True
