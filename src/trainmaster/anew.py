"""Beginning a new log on purpose in a home whose old one is lost: what belonged to the old one is set aside, nothing removed.

Standard library only: `tm up` reads it before anything heavy is loaded.
"""

import os
import time
from pathlib import Path

from trainmaster.home import Home

_OF_THE_LOG = ("events.db", "inbox.db", "metrics.db", "mirror.db", "secret", "points", "home.json")


def begin(home: Home) -> Path | None:
    """Move the databases, the id and the secret of the old log into a folder of the home; None where there was nothing.

    What jobs left stays where it is, since agents of the old log may still write there: the new log gives out no number
    twice (`store.identity`), and the new secret keeps reports of the old agents out. Called while no server runs.
    Raises: OSError.
    """
    found = [path for name in _OF_THE_LOG for path in (home.root / name, home.root / f"{name}-wal", home.root / f"{name}-shm")]
    found = [path for path in found if path.exists()]
    if not found:
        return None
    aside = home.root / time.strftime("former-log-%Y%m%d-%H%M%S")
    aside.mkdir(mode=0o700)
    # The log goes first and the id last: a crash in between leaves a home that is refused, as it was before.
    for path in found:
        os.rename(path, aside / path.name)
    return aside
