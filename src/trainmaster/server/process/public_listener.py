"""The listener for other machines: a TCP address of its own, with TLS unless `tm up --insecure` says so."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from trainmaster.errors import OperationError, UsageError
from trainmaster.home import Home
from trainmaster.server.process import certificates
from trainmaster.server.process.handshakes import Handshakes
from trainmaster.server.process.sockets import bind

PORT = 8470  # unless the address names another
_RENEW_S = 3600.0
_ANY = {"0.0.0.0", "::"}


class PublicListener(NamedTuple):
    """A bound socket. `context` is None without TLS, `authority` is empty unless it is our own."""

    socket: socket.socket
    url: str
    context: ssl.SSLContext | None
    authority: str
    certificate: Callable[[], certificates.Certificate] | None  # the files now, renewed if they are ours

    async def serve(self, protocol: Callable[[], asyncio.Protocol]) -> asyncio.Server | Handshakes:
        """Accept connections."""
        if self.context is None:
            return await asyncio.get_running_loop().create_server(protocol, sock=self.socket)
        return Handshakes(self.socket, protocol, self.context)

    async def renew(self) -> float | None:
        """Use the certificate as it is now. Returns when to look again, in seconds; None: never."""
        if self.context is None or self.certificate is None:
            return None
        await asyncio.to_thread(lambda: certificates.load(self.context, self.certificate()))  # type: ignore[misc,arg-type]
        return _RENEW_S


def listen(home: Home, settings: Mapping[str, Any]) -> PublicListener | None:
    """Bind the address that `tm up --listen` names; None if there is none. Raises: OperationError, OSError."""
    address = settings.get("listen")
    if not address:
        return None
    host, port = split(address)
    if settings.get("insecure"):
        listener = bind(host, port, "--listen")
        return PublicListener(listener, _url("http", host, listener), None, "", None)
    chain, key = settings.get("tls_cert"), settings.get("tls_key")
    if chain and key:
        files = certificates.Certificate(Path(chain), Path(key))
        current: Callable[[], certificates.Certificate] = lambda: files  # noqa: E731
    else:
        own = _authority()
        current = lambda: own(home, certificates.names_of_machine() | ({host} - _ANY))  # noqa: E731
    certificate = current()
    context = certificates.context_of(certificate)
    listener = bind(host, port, "--listen")
    return PublicListener(listener, _url("https", host, listener), context, certificate.authority, current)


def _authority() -> Callable[[Home, AbstractSet[str]], certificates.Certificate]:
    """What signs for this home. Raises: UsageError if its package is not installed."""
    try:
        return import_module("trainmaster.server.process.authority").own  # type: ignore[no-any-return]
    except ImportError as error:
        hint = "install it in the environment of tm: pip install cryptography; or give a certificate: --tls-cert, --tls-key"
        raise UsageError("--listen needs the package cryptography to make a certificate", hint) from error


def split(address: str) -> tuple[str, int]:
    """The host and the port of HOST, HOST:PORT, [V6]:PORT or V6. Raises: OperationError."""
    is_v6 = "[" not in address and address.count(":") > 1
    try:
        parts = urlsplit(f"//[{address}]" if is_v6 else f"//{address}")
        port = PORT if parts.port is None else parts.port
        if parts.hostname and not set(address) & set("/@?# "):
            return parts.hostname, port
    except ValueError:
        pass
    raise OperationError(f"--listen {address}: it is no address", "write HOST, HOST:PORT or [V6]:PORT: 0.0.0.0:8470")


def _url(scheme: str, host: str, listener: socket.socket) -> str:
    """Where others reach it: under the machine's name, if it listens on all addresses."""
    port = listener.getsockname()[1]
    name = os.uname().nodename if host in _ANY else host
    return f"{scheme}://[{name}]:{port}" if ":" in name else f"{scheme}://{name}:{port}"
