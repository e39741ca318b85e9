"""Says if data that a job declares has changed since its submit: what was recorded of it is then not what the program reads.

The look begins when the ranks have been started: a large directory does not delay them.
"""

from __future__ import annotations

import os

from trainmaster.wire import disks
from trainmaster.wire.names import DATA_CHANGED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainmaster.agent.transport.outbox import Outbox
    from trainmaster.wire.launch import Launch


def look(launch: Launch, outbox: Outbox) -> None:
    """Warn of data that has changed, and of data that cannot be read now, of which nobody knows whether it has."""
    changed, unknown = [], []
    for one in launch["data"]:
        unread: list[str] = []
        try:
            stamp = disks.stamp(disks.regular_files(os.path.realpath(one["path"]), unread))
        except OSError:
            unread, stamp = [one["path"]], ""
        if unread:
            unknown.append(one["name"])
        elif stamp != one["stamp"]:
            changed.append(one["name"])
    at, texts = f"when attempt {launch['attempt']} began", []
    if changed:
        texts.append(f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed since the submit, as seen {at}")
    if unknown:
        texts.append(f"{', '.join(unknown)} could not be read {at}, so it is not known whether it is as it was at the submit")
    if texts:
        outbox.warn(DATA_CHANGED, "; ".join(texts))
