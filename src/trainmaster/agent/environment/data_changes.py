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
    """Warn of data that has changed. What cannot be read now is not called changed."""
    changed = []
    for one in launch["data"]:
        unread: list[str] = []
        try:
            stamp = disks.stamp(disks.regular_files(os.path.realpath(one["path"]), unread))
        except OSError:
            continue
        if not unread and stamp != one["stamp"]:
            changed.append(one["name"])
    if changed:
        has, at = "has" if len(changed) == 1 else "have", f"when attempt {launch['attempt']} began"
        outbox.warn(DATA_CHANGED, f"{', '.join(changed)} {has} changed since the submit, as seen {at}")
