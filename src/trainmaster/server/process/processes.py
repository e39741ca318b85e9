"""Entry points of the server's processes, started by `trainmaster.daemons`, by systemd or by hand.

Heavy imports that only the api needs (FastAPI, uvicorn) are in `serving`: without them control starts twice as fast.
"""

import json
import logging
import os
import sys
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from trainmaster import __version__, compose, live_processes
from trainmaster.errors import OperationError, TrainmasterError
from trainmaster.home import Home
from trainmaster.server.process.sockets import prepare_directory
from trainmaster.server.process.startup import refuse_if_stopping, resume_collector
from trainmaster.server.process.watchdog import watch

_LOG_MAX_BYTES = 4 * 1024 * 1024


def run(which: str, root: str, pipe: int | None) -> int:
    """Run one process until it is told to end. `pipe`: if started detached, the pipe for status messages."""
    home = Home(Path(root).absolute())
    try:
        home.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        _log_to(home.logs / f"{which}.log")
        if which == "control":
            return _control(home, pipe is not None)
        if which == "mirror":
            return _mirror(home, pipe is not None)
        from trainmaster.server.process.serving import api_main  # noqa: PLC0415  slow import that control does not need

        return api_main(home, pipe is not None)
    except TrainmasterError as error:
        return _report_failure(which, pipe, error)
    except OSError as error:  # an unusable file in the home, or a failing disk
        logging.getLogger("trainmaster").exception("%s ends", which)
        hint = f"check that file and its disk; details are in {home.logs / which}.log"
        return _report_failure(which, pipe, OperationError(f"{which} cannot work on {home.root}: {error}", hint))


def _report_failure(which: str, pipe: int | None, error: TrainmasterError) -> int:
    """Report why this process ends, also to its parent; returns the exit code."""
    print(f"{which}: {error.message}", file=sys.stderr)  # noqa: T201
    _write_status(pipe, {"code": error.code, "message": error.message, "hint": error.hint})
    return error.exit_code


def _control(home: Home, detached: bool) -> int:
    def started() -> None:
        resume_collector()
        refuse_if_stopping(home, detached)
        live_processes.announce(home, "control", __version__)
        if detached:
            watch(home, "api")

    prepare_directory(home.socket("control.wake"))
    return compose.control_main(home, started)


def _mirror(home: Home, detached: bool) -> int:
    """The third process: it copies the event log to trackers. No job waits for it. The api restarts it."""

    def started() -> None:
        resume_collector()
        refuse_if_stopping(home, detached)
        live_processes.announce(home, "mirror", __version__)

    from trainmaster.compose_mirror import mirror_main  # noqa: PLC0415  only this process loads tracker libraries

    return mirror_main(home, started)


def _log_to(path: Path) -> None:
    """Send the process's log to a file of bounded size."""
    handler = RotatingFileHandler(path, maxBytes=_LOG_MAX_BYTES, backupCount=1, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _write_status(pipe: int | None, said: dict[str, Any]) -> None:
    """Write one line to the parent, which may not be reading any more."""
    if pipe is not None:
        with suppress(OSError):
            os.write(pipe, json.dumps(said).encode() + b"\n")
