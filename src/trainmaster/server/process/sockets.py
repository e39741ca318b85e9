"""The sockets of the api on this machine: a TCP port for users, a Unix socket for agents, whose path outlives the port."""

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path

from trainmaster.errors import OperationError
from trainmaster.home import Home, open_regular, write_atomic

_BACKLOG = 2048
_LOOPBACK = "127.0.0.1"
_PORT_DIGITS = 5


def bind_tcp(home: Home, port: int | None) -> socket.socket:
    """Bind the requested port of this machine's own address, else the previous one, else any. Raises: OperationError."""
    remembered = home.root / "port"
    if port:
        listener = bind(_LOOPBACK, port)
    else:
        try:
            listener = bind(_LOOPBACK, _port_in(remembered))
        except OperationError:
            listener = bind(_LOOPBACK, 0)
    with suppress(OSError):  # remembering the port is optional; a full disk must not prevent the start
        write_atomic(remembered, str(listener.getsockname()[1]).encode())
    return listener


def _port_in(path: Path) -> int:
    """The port number in a file; 0 (any port) if there is no valid one."""
    try:
        with open_regular(path) as file:
            named = int(file.read(_PORT_DIGITS + 1))
    except (OSError, ValueError):
        return 0
    return named if 0 < named < 1 << 16 else 0


def url_of(listener: socket.socket) -> str:
    """The URL under which this machine reaches the listener."""
    host, port = listener.getsockname()
    return f"http://{host}:{port}"


def bind_unix(path: Path) -> socket.socket:
    """Bind a Unix socket, replacing one of an earlier process. Only this user may connect. Raises: OperationError."""
    prepare_directory(path)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    except OSError as error:
        raise OperationError(f"{path} cannot be bound: {error.strerror}") from error
    finally:
        os.umask(mask)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def prepare_directory(path: Path) -> None:
    """Create the directory of a socket; it may be outside the home. Raises: OperationError if another user owns it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Check a symbolic link too: its owner could redirect agents, with their credentials, to another socket.
    if {path.parent.stat().st_uid, path.parent.lstat().st_uid} != {os.geteuid()}:
        hint = "set XDG_RUNTIME_DIR, or choose a shorter TRAINMASTER_HOME"
        raise OperationError(f"{path.parent} belongs to another user", hint)


def bind(host: str, port: int, option: str = "--port") -> socket.socket:
    """Bind and listen. `option` of `tm up` chooses another address. Raises: OperationError with a readable message."""
    hint = f"choose another with {option}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, OverflowError, UnicodeError) as error:
        raise OperationError(f"there is no address {host}:{port}: {error}", hint) from error
    listener = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY only if the protocol is given
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise OperationError(f"port {port} is taken by {_owner(port)}", hint) from error
        raise OperationError(f"port {port} of {host} cannot be used: {error.strerror}", hint) from error
    listener.setblocking(False)
    return listener


def _owner(port: int) -> str:
    """The process that listens on a TCP port, as far as this user may see it (Linux only)."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
            inodes |= {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1].split(":")[-1], 16) == port}
    for pid in filter(str.isdecimal, os.listdir("/proc")) if inodes else ():
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{descriptor}") in inodes:
                        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return "another process"
