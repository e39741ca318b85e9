"""Says if data that a job declares has changed since its submit: what was recorded of it is then not what the program reads.

The look begins when the ranks have been started: a large directory does not delay them.
"""

from __future__ import annotations

import os

from trainmaster.wire import data
from trainmaster.wire.names import DATA_CHANGED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.transport.outbox import Outbox
    from trainmaster.wire.launch import DataLaunch, Launch


def look(launch: Launch, outbox: Outbox) -> None:
    """Warn of data that has changed, and of data that cannot be read now, of which nobody knows whether it has."""
    changed, unknown = [], []
    for one in launch["data"]:
        try:
            same = _same(one)
        except OSError:
            same = None
        if same is None:
            unknown.append(one["name"])
        elif not same:
            changed.append(one["name"])
    at, texts = f"when attempt {launch['attempt']} began", []
    if changed:
        texts.append(f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed since the submit, as seen {at}")
    if unknown:
        texts.append(f"{', '.join(unknown)} could not be read {at}, so it is not known whether it is as it was at the submit")
    if texts:
        outbox.warn(DATA_CHANGED, "; ".join(texts))


def _same(one: DataLaunch) -> Optional[bool]:
    """Whether it is as it was at the submit; None if not known. A stamp that differs proves nothing where the bytes can tell.

    Raises: OSError.
    """
    real = os.path.realpath(one["path"])
    found = data.find(real)
    if found.unread:
        return None
    if one["stamp"] in (data.stamp(found.files), data.stamp(found.files, strict=True)):
        return True
    size = sum(status.st_size for status in found.files.values())
    if not one.get("digest") or found.special or found.cut or size != one["bytes"]:
        return False
    root = real if os.path.isdir(real) else os.path.dirname(real)
    return data.digest(real, found.files, lambda name, _: data.sha256(os.path.join(root, name))) == one["digest"]
