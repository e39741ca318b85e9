"""`python -m trainmaster.server api|control|mirror HOME [--detach FD]`: runs one process of the server.

With `--detach` the process leaves its parent at once. It writes its identity to the pipe FD, and the error if it fails.
The pipe stays open as long as the process lives.
"""

import gc
import json
import os
import signal
import sys
from contextlib import suppress

from trainmaster.wire.processes import own_identity


def main(arguments: list[str]) -> int:
    """Detach before the heavy imports, so that the parent waits only a few milliseconds."""
    if len(arguments) not in (2, 4) or arguments[0] not in ("api", "control", "mirror"):
        print(__doc__, file=sys.stderr)  # noqa: T201
        return 2
    pipe = None
    if len(arguments) == 4:
        if os.fork():
            os._exit(0)
        pipe = int(arguments[3])
        os.set_inheritable(pipe, False)
        with suppress(OSError):  # the reader may have closed the pipe
            os.write(pipe, json.dumps(own_identity()).encode() + b"\n")
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.umask(0o077)
    gc.disable()  # until everything is loaded (`startup.resume_collector`); this saves an eighth of the start-up time

    from trainmaster.server.process.processes import run  # noqa: PLC0415  after the fork: this import takes 0.3 s

    return run(arguments[0], arguments[1], pipe)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
