"""Says whether data that a job declares has changed since its submit, so that the program reads other data than was recorded.

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
    """Report what is seen of each entry, with a warning of those that have changed or cannot be read now."""
    seen = {one["name"]: _seen(one) for one in launch["data"]}
    changed = [name for name, result in seen.items() if result == data.CHANGED]
    unknown = [name for name, result in seen.items() if result == data.UNKNOWN]
    at, texts = f"when attempt {launch['attempt']} began", []
    if changed:
        texts.append(f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed since the submit, as seen {at}")
    if unknown:
        texts.append(f"{', '.join(unknown)} could not be read {at}, so it is not known whether it is as it was at the submit")
    outbox.warned[DATA_CHANGED] = outbox.report("warned", topic=DATA_CHANGED, text="; ".join(texts), data=seen)


def _seen(one: DataLaunch) -> str:
    try:
        same = _same(one)
    except OSError:
        return data.UNKNOWN
    return data.UNKNOWN if same is None else data.SAME if same else data.CHANGED


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
