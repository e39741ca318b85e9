"""Signs in to a server of another machine: finds out what proves it, checks the token, and keeps both in the user's file."""

import http.client
import ssl
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import tomlkit

from trainmaster.client.connection import Call, Connection
from trainmaster.client.servers.settings import own_file
from trainmaster.client.servers.settings_file import read, write
from trainmaster.errors import AuthenticationError, OperationError, UnreachableError, UsageError
from trainmaster.wire import rest
from trainmaster.wire.answers import Answer
from trainmaster.wire.tls import fingerprint, unverified

_TIMEOUT_S = 10.0
_CERTIFICATE_MAX = 100_000  # bytes


class Member(NamedTuple):
    """Who a token is."""

    name: str
    role: str


def normal(url: str) -> str:
    """The URL as it is kept and compared. Raises: UsageError for one that no later command could use."""
    parts = _parts(url.strip())
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/').removesuffix(rest.ROOT)}"


def is_trusted(url: str) -> bool:
    """Whether the certificates of this system prove the server. Raises: UsageError, UnreachableError."""
    parts = _parts(url)
    if parts.scheme == "http":
        return True
    connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    try:
        connection.connect()
        return True
    except ssl.SSLCertVerificationError:
        return False
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"{url} does not answer: {error}", "check the address and its port") from error
    finally:
        connection.close()


def authority_of(url: str) -> str:
    """The certificate of the server's own authority (PEM), as the one that answers there gives it. Compare its fingerprint.

    Raises: UsageError, UnreachableError, OperationError if there is none.
    """
    parts = _parts(url)
    connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S, context=unverified())
    connection.response_class = Answer  # an end to answers that trickle
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/authority")
        answer = connection.getresponse()
        data = answer.read(_CERTIFICATE_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"{url} does not answer: {error}", "check the address and its port") from error
    finally:
        connection.close()
    try:
        if answer.status != 200:
            raise ValueError(f"it answers {answer.status}")
        certificate = data.decode("ascii")
        fingerprint(certificate)
    except ValueError as error:
        what = f"the certificate of {url} is not trusted, and it has no authority of its own: {error}"
        raise OperationError(what, "set SSL_CERT_FILE to the certificates that prove it") from error
    return certificate


def check(url: str, token: str, authority: str) -> Member:
    """Who the token is. Raises: AuthenticationError, UnreachableError, and what the server says."""
    if not token:
        raise AuthenticationError("there is no token", "an administrator makes one: tm token create NAME")
    found = Connection(url, token, authority=authority).json(Call("GET", "/me"))
    return Member(str(found.get("name")), str(found.get("role")))


def keep(url: str, token: str, authority: str) -> str:
    """Write the server, its token and its authority into the user's file, mode 0600. Returns its path.

    Raises: UsageError if the file is not TOML, OperationError if it cannot be written.
    """
    document = read(own_file())
    before, short = document.get("server"), document.pop("token", None)
    document["server"] = url
    for table, value in (("tokens", token), ("authorities", authority)):
        if not isinstance(document.get(table), dict):
            document[table] = tomlkit.table()
        if table == "tokens" and isinstance(before, str) and isinstance(short, str):
            document[table].setdefault(before, short)  # it belongs to the server that it was written beside
        for name in [name for name in document[table] if name.rstrip("/") == url]:
            del document[table][name]
        if value:
            document[table][url] = tomlkit.string(value, multiline="\n" in value)
        elif not document[table]:
            del document[table]
    write(own_file(), document, private=True)
    return str(own_file())


def forget(url: str | None) -> str | None:
    """Remove a server (None: the default one) with its token and authority from the user's file. Returns its URL, None if
    the file does not have it. Raises: UsageError, OperationError.
    """
    document = read(own_file())
    default = str(document.get("server") or "").rstrip("/")
    wanted = {default} - {""} if url is None else {url.rstrip("/"), normal(url)}
    gone = wanted & {default}
    for table in ("tokens", "authorities"):
        if isinstance(document.get(table), dict):
            for name in [name for name in document[table] if name.rstrip("/") in wanted]:
                del document[table][name]
                gone |= {name.rstrip("/")}
            if not document[table]:
                del document[table]
    if not gone:
        return None
    if default in gone:
        document.pop("server")
        document.pop("token", None)
    write(own_file(), document, private=True)
    return gone.pop()


def _parts(url: str) -> SplitResult:
    """Raises: UsageError."""
    try:
        parts = urlsplit(url)
        problem = "it has no scheme or no host"
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            parts.hostname.encode("idna")
            problem = "it may have a path, and no name, password, query or blank"
            if not set(url) & set("@?#") and not any(map(str.isspace, url)):
                return parts
    except ValueError as error:
        problem = str(error)
    raise UsageError(f"{url!r} is no URL of a server: {problem}", "write https://HOST:PORT")
