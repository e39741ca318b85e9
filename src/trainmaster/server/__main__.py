"""`python -m trainmaster.server api|control|mirror HOME [--detach FD]`: one process of the server.

With `--detach` it leaves its parent at once and tells over the pipe FD who it is, and with which error it ended; the
pipe stays open while it lives.
"""

import gc
import json
import os
import signal
import sys
from contextlib import suppress

from trainmaster.wire.processes import own_identity


def main(arguments: list[str]) -> int:
    """Detach before anything heavy is imported, so that whoever starts us waits a few milliseconds only."""
    if len(arguments) not in (2, 4) or arguments[0] not in ("api", "control", "mirror"):
        print(__doc__, file=sys.stderr)  # noqa: T201
        return 2
    pipe = None
    if len(arguments) == 4:
        if os.fork():
            os._exit(0)
        pipe = int(arguments[3])
        os.set_inheritable(pipe, False)
        with suppress(OSError):  # nobody may be listening any more
            os.write(pipe, json.dumps(own_identity()).encode() + b"\n")
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.umask(0o077)
    gc.disable()  # until all is loaded (`startup.settle`): an eighth of the start

    from trainmaster.server.process.processes import run  # noqa: PLC0415  after the fork: it takes a third of a second

    return run(arguments[0], arguments[1], pipe)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
