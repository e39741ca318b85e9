"""Begins a new log in a home whose old log is lost. Files of the old log are moved aside; nothing is deleted.

Standard library only: `tm up` imports it before anything heavy is loaded.
"""

import os
import time
from pathlib import Path

from trainmaster.home import Home

_OF_THE_LOG = ("events.db", "inbox.db", "metrics.db", "mirror.db", "secret", "points", "restores.json", "home.json")


def begin(home: Home) -> Path | None:
    """Move the databases, the id and the secret of the old log into a folder of the home; None if there was nothing.

    Files of jobs stay where they are, because agents of the old log may still write there. The new log reuses no job number
    (`compose`), and the new secret rejects reports of the old agents. Call it while no server runs.
    Raises: OSError.
    """
    found = [path for name in _OF_THE_LOG for path in (home.root / name, home.root / f"{name}-wal", home.root / f"{name}-shm")]
    found = [path for path in found if path.exists()]
    if not found:
        return None
    home.numbers_unknown.touch()
    aside = home.root / time.strftime("former-log-%Y%m%d-%H%M%S")
    aside.mkdir(mode=0o700)
    # The log moves first and the id last. After a crash in between the home is still rejected at start, as before.
    for path in found:
        os.rename(path, aside / path.name)
    return aside
