"""The spawner: a small detached process that has imported the agent's code and forks agents on request.

`python -P -m trainmaster.engines.local.spawner HOME`. Requests and answers are JSON lines over `home.socket("spawner")`:
`{"directory", "version"}` -> `{"pid", "start_ticks"}`; `{"exit": true}` -> `{"pid"}`, and it exits. It holds no state that
is needed. It may die at any time: agents continue, and the engine starts agents by exec until there is a new spawner.

It imports as little as possible, because every agent inherits its memory.
"""

import contextlib
import fcntl
import gc
import json
import os
import signal
import socket
import struct
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from trainmaster.agent import main as agent
from trainmaster.engines.local.code_version import version
from trainmaster.home import Home
from trainmaster.wire import names, processes

_LOOK_S = 5.0  # how often it checks that its home still exists
_REQUEST_S = 2.0
_REQUEST_MAX_BYTES = 65536


def main(root: str) -> int:
    """Serve until told to exit. Exits at once if a spawner runs already, or if no spawner is wanted.

    The lock file means that a spawner is wanted: starting a spawner creates it, stopping one removes it.
    """
    home = Home(Path(root))
    try:
        lock = os.open(home.lock("spawner"), os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return 0
    os.chdir("/")
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended agents do not become zombies
    code = version()
    agent.preload()
    path = home.socket("spawner")
    listener = _listen(path)
    inode, owner = path.stat().st_ino, os.getpid()
    gc.collect()
    gc.freeze()  # keeps the collector from touching shared memory, which the children would copy
    try:
        while _wanted(home, lock) and _ours(path, inode):
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                if not _serve(connection, code):
                    return 0
        return 0
    finally:
        if os.getpid() == owner and _ours(path, inode):
            path.unlink(missing_ok=True)  # while the lock is still held: the next spawner binds a new socket


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # stale: a live owner would hold the lock
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    listener.listen(256)
    listener.settimeout(_LOOK_S)
    return listener


def _wanted(home: Home, lock: int) -> bool:
    """Whether the lock file still exists under its name. If the home was removed, moved or replaced, no spawner is needed."""
    try:
        there = os.stat(home.lock("spawner"))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # unknown
        return True
    return os.path.samestat(there, os.fstat(lock))


def _ours(path: Path, inode: int) -> bool:
    """Whether the path still leads to our socket."""
    try:
        return path.stat().st_ino == inode
    except OSError:
        return False


def _serve(connection: socket.socket, code: str) -> bool:
    """Answer one request; False if it was the last one."""
    connection.settimeout(_REQUEST_S)
    try:
        _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        request = _read(connection)
        if uid not in (os.getuid(), 0) or request is None:
            return True
        if request.get("exit"):
            _answer(connection, {"pid": os.getpid()})
            return False
        if request.get("version") != code:
            _answer(connection, {"error": "version"})
            return False
        pid = _fork_agent(str(request["directory"]))
        _answer(connection, {"pid": pid, "start_ticks": processes.start_ticks(pid)})
    except (OSError, KeyError) as error:
        print(f"spawner: request failed: {error!r}", file=sys.stderr, flush=True)  # noqa: T201 - its log
    return True


def _read(connection: socket.socket) -> dict[str, Any] | None:
    data = b""
    while not data.endswith(b"\n") and len(data) < _REQUEST_MAX_BYTES:
        part = connection.recv(4096)
        if not part:
            break
        data += part
    try:
        request = json.loads(data)
    except ValueError:
        return None
    return request if isinstance(request, dict) else None


def _answer(connection: socket.socket, answer: dict[str, Any]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _fork_agent(directory: str) -> int:
    """Fork an agent; returns its pid. It is our child until we exit, and init's after that; it is never waited for."""
    pid = os.fork()
    if pid == 0:
        _become_agent(directory)
    return pid


def _become_agent(directory: str) -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _streams(os.path.join(directory, names.AGENT_LOG))
        os.closerange(3, max(int(name) for name in os.listdir("/proc/self/fd")) + 1)
        code = agent.run(directory)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # no exit handler of the spawner may run in an agent


def _streams(log: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(words, 1)
    os.dup2(words, 2)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
