"""A disk that fails for a second at one call of the code: no law breaks, wherever it is.

Every run tries a few places that matter most; `make nightly` tries each place that any process of ours ever asks a disk
from, with each error that can be, one job for each (hours).
"""

from collections.abc import Iterator

import pytest
from disk_trial import Trial, trial
from effort import NIGHTLY, cases

ERRORS = {
    "stat": ("EIO", "EACCES"), "open": ("EIO", "EMFILE", "ENOSPC"), "write": ("ENOSPC", "short"), "pwrite": ("ENOSPC", "short"),
    **dict.fromkeys(("lstat", "scandir", "listdir", "read", "readlink"), ("EIO",)),
}  # fmt: skip
FEW = (  # file, call, error
    ("agent/checkpoints/restore_files.py", "open", "EIO"),
    ("agent/files/stage.py", "open", "EMFILE"),
    ("agent/files/stage.py", "fsync", "ENOSPC"),
    ("agent/supervise/exit_record.py", "pwrite", "short"),
    ("engines/local/starting.py", "open", "ENOSPC"),
    ("engines/local/attempts.py", "open", "EIO"),
)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with trial(tmp_path_factory.mktemp("disk")) as prepared:
        assert prepared.run() == []
        yield prepared


@pytest.mark.parametrize(("file", "call", "error"), cases(FEW[::2], FEW))
def test_no_law_breaks_where_the_disk_fails(failing: Trial, file: str, call: str, error: str) -> None:
    """R1, R3, R5, R6, R8: doubt ends and deletes nothing, whichever call it comes from."""
    sites = [site for site in failing.sites() if site.startswith(f"{file}:") and site.endswith(f":{call}")]
    assert sites, f"nothing in {file} calls {call} any more: choose another place"
    assert broken(failing, sites[0], error) == []


def broken(failing: Trial, site: str, error: str) -> list[str]:
    """The laws that one job breaks while `site` fails, and afterwards."""
    failing.fail(site, error)
    try:
        return failing.run()
    finally:
        failing.heal()


@pytest.mark.skipif(not NIGHTLY, reason="hours: make nightly")
@pytest.mark.timeout(6 * 3600)
def test_no_law_breaks_wherever_the_disk_fails(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All places, found by running; each batch on a server of its own, so that one that is stuck spoils no other."""
    tried: set[str] = set()
    found: dict[str, list[str]] = {}
    while True:
        with trial(tmp_path_factory.mktemp("disk")) as prepared:
            prepared.run()
            batch = [site for site in prepared.sites() if site not in tried][:40]
            tried.update(batch)
            for site in batch:
                for error in ERRORS.get(site.rpartition(":")[2], ("EIO", "ENOSPC")):
                    if problems := broken(prepared, site, error):
                        found[f"{site} {error}"] = problems
        if not batch:
            break
    assert found == {}
