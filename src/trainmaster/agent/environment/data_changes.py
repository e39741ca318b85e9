"""Says whether data that a job declares has changed since its submit, so that the program reads other data than was recorded.

The look begins when the ranks have been started: a large directory does not delay them.
"""

from __future__ import annotations

import errno
import os

from trainmaster.wire import data
from trainmaster.wire.names import DATA_CHANGED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainmaster.agent.transport.outbox import Outbox
    from trainmaster.wire.launch import DataLaunch, Launch


def look(launch: Launch, outbox: Outbox) -> None:
    """Report what is seen of each entry, with a warning of those that have changed or cannot be read now."""
    seen: dict[str, str] = {}
    unread = []
    for one in launch["data"]:
        try:
            seen[one["name"]] = _seen(one)
        except OSError:
            seen[one["name"]] = data.UNKNOWN
            unread.append(one["name"])
    changed = [name for name, result in seen.items() if result == data.CHANGED]
    at, texts = f"when attempt {launch['attempt']} began", []
    if changed:
        texts.append(f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed since the submit, as seen {at}")
    if unread:
        texts.append(f"{', '.join(unread)} could not be read {at}, so it is not known whether it is as it was at the submit")
    outbox.warned[DATA_CHANGED] = outbox.report("warned", topic=DATA_CHANGED, text="; ".join(texts), data=seen)


def _seen(one: DataLaunch) -> str:
    """Whether it is as it was at the submit. A stamp that differs proves nothing where the bytes can tell. Raises: OSError."""
    real = os.path.realpath(one["path"])
    found = data.find(real)
    if found.unread:
        raise OSError(errno.EIO, "cannot be read", found.unread[0])
    digest, listing = one.get("digest"), one.get("listing")
    if listing not in (None, data.listing(found)) or (digest and (found.special or found.cut)):
        return data.CHANGED  # what has a digest of its bytes had nothing special, and was seen whole
    if one["stamp"] in (data.stamp(found.files), data.stamp(found.files, strict=True)):
        return data.UNKNOWN if found.cut or (found.special and listing is None) else data.SAME
    if not digest or sum(status.st_size for status in found.files.values()) != one["bytes"]:
        return data.CHANGED
    root = real if os.path.isdir(real) else os.path.dirname(real)
    now = data.digest(real, found.files, lambda name, _: data.sha256(os.path.join(root, name)))
    return data.SAME if now == digest else data.CHANGED
