"""HTTP server of the job's own MLflow API: reads requests, checks the token, stores uploads. `run_api` has the answers."""

from __future__ import annotations

import contextlib
import hmac
import http.server
import json
import os
import posixpath
import re
import socket
import socketserver
import sys
import threading
import time
from urllib.parse import parse_qsl, unquote, urlsplit

from trainmaster.agent.mlflow.fields import Fault, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedIOBase
    from typing import Any, Iterator

    from trainmaster.agent.mlflow.run_api import Runs

_TIMEOUT_S = 120.0  # for an idle connection
_STRANGER_S = 5.0  # for a connection that has not sent the job's token yet
_STRANGERS_MAX = 64  # of those in parallel: then the oldest is closed, so that they cannot lock out the job's own calls
_BODY_MAX = 16 * 1024 * 1024  # of a request that is not a file upload
_CHUNK = 1024 * 1024
_ARTIFACTS = "mlflow-artifacts/artifacts"
_PREFIXES = ("api", "ajax-api")
_PART = re.compile(r"\.\d{5,20}\.part\Z")  # a file on its way


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves a socket that is already bound and listening."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, descriptor: int, runs: Runs, token: str, files: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = socket.socket(fileno=descriptor)
        self.runs = runs
        self.expected = f"Bearer {token}".encode()
        self.files = files
        self._lock = threading.Lock()
        self._strangers: dict[Any, None] = {}  # connections that have not sent the token, oldest first

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accept a connection; any user of the machine can open one."""
        with self._lock:
            if len(self._strangers) >= _STRANGERS_MAX:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread sees end-of-file and closes it
            self._strangers[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.no_stranger(request)

    def no_stranger(self, request: Any) -> None:
        """This connection has sent the token, or is over."""
        with self._lock:
            self._strangers.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A script that ends during a call is no error; any other error is logged."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            sys.stderr.write(f"the MLflow listener: {error!r}\n")


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = _STRANGER_S
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one piece

    def do_GET(self) -> None:
        """Read."""
        self._handle("GET")

    def do_POST(self) -> None:
        """Log, create, search."""
        self._handle("POST")

    def do_PATCH(self) -> None:
        """Change a model."""
        self._handle("PATCH")

    def do_PUT(self) -> None:
        """Upload a file."""
        self._handle("PUT")

    def do_DELETE(self) -> None:
        """Remove a tag."""
        self._handle("DELETE")

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""

    def _handle(self, method: str) -> None:
        given = (self.headers.get("Authorization") or "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, self.server.expected):
            self.close_connection = True
            self._json(401, {"error_code": "UNAUTHENTICATED", "message": "this address serves only the job's own script"})
            return
        self.server.no_stranger(self.connection)
        self.connection.settimeout(_TIMEOUT_S)
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        try:
            name = _name(url.path)
            if name == _ARTIFACTS and method == "GET":
                place = self._file(self.server.runs.artifact_name(query.get("path", "")))
                self._json(200, {"files": _listing(place)})
            elif name == "mlflow/artifacts/list" and method == "GET":
                self._json(200, self._run_files(query))
            elif name.startswith(_ARTIFACTS + "/"):
                self._artifact(method, unquote(name[len(_ARTIFACTS) + 1 :]))
            else:
                body = query if method == "GET" else {**query, **self._body()}
                self._json(*self.server.runs.answer(method, name[len("mlflow/") :], body, int(time.time() * 1000)))
        except Fault as fault:
            self.close_connection = True  # the request's body may not have been read
            self._json(*fault.answer)
        except (AttributeError, KeyError, TypeError) as error:
            self.close_connection = True
            self._json(*invalid(f"the request has another shape than MLflow's ({type(error).__name__})").answer)
        except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            self.close_connection = True
            at = os.path.relpath(str(error.filename), self.server.files)
            self._json(*invalid(f"a file and a directory of the run would have one name: {at}").answer)
        except OSError as error:
            self.close_connection = True
            words = f"the job's agent could not keep it: {error.strerror or error}; free some space in the server's home"
            self._json(507, {"error_code": "RESOURCE_EXHAUSTED", "message": words})

    def _body(self) -> dict[str, Any]:
        data = b"".join(self._pieces(_BODY_MAX))
        if not data:
            return {}
        try:
            body = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise invalid(f"the request is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise invalid("the request is not a JSON object")
        return body

    def _pieces(self, most: int) -> Iterator[bytes]:
        """The request's body in pieces, with a content length or chunked. Raises: Fault, OSError."""
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            yield from _chunks(self.rfile, most)
            return
        try:
            left = int(self.headers.get("Content-Length") or 0)
        except ValueError as error:
            raise invalid("Content-Length is not a number") from error
        if left < 0:
            raise invalid("Content-Length is below 0")
        if left > most:
            raise invalid(f"a request holds {most} bytes at most")
        while left:
            data = self.rfile.read(min(left, _CHUNK))
            if not data:
                raise ConnectionResetError("the request ended in the middle")
            left -= len(data)
            yield data

    def _artifact(self, method: str, path: str) -> None:
        name = self.server.runs.artifact_name(path)
        place = self._file(name)
        if method == "PUT":
            os.makedirs(os.path.dirname(place), exist_ok=True)
            part = f"{place}.{threading.get_ident()}.part"
            try:
                with open(part, "wb") as file:
                    for piece in self._pieces(1 << 62):
                        file.write(piece)
                os.replace(part, place)
            finally:
                if os.path.lexists(part):
                    os.unlink(part)
            self.server.runs.uploaded(place, path)
            self._json(200, {})
        elif method == "GET" and os.path.isfile(place):
            self._send_file(place)
        elif method == "GET":
            self._json(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"this attempt logged no file {name}"})
        else:
            self._json(501, {"error_code": "NOT_IMPLEMENTED", "message": "what a job has kept stays: choose another name"})

    def _file(self, name: str) -> str:
        """The path of a file of that name, always below the directory for uploads. Raises: Fault."""
        parts = name.split("/") if name else []
        if any(part in ("", ".", "..") or "\0" in part for part in parts) or len(name) > 1000:
            raise invalid(f"{name!r} is not a path below the run")
        return os.path.join(self.server.files, *parts)

    def _run_files(self, query: dict[str, str]) -> dict[str, Any]:
        """The answer to `artifacts/list`: paths relative to the run's root."""
        run, below = query.get("run_id") or query.get("run_uuid") or "", query.get("path", "").strip("/")
        root = f"-/{run}/artifacts"
        found = _listing(self._file(self.server.runs.artifact_name(f"{root}/{below}" if below else root)))
        return {"root_uri": "", "files": [{**entry, "path": posixpath.join(below, entry["path"])} for entry in found]}

    def _send_file(self, place: str) -> None:
        with open(place, "rb") as file:
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            while True:
                data = file.read(_CHUNK)
                if not data:
                    break
                self.wfile.write(data)
        self.wfile.flush()

    def _json(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


def _name(path: str) -> str:
    """`/api/2.0/mlflow/runs/get` -> `mlflow/runs/get`. Raises: Fault."""
    parts = path.strip("/").split("/", 2)
    if len(parts) == 3 and parts[0] in _PREFIXES and parts[2].startswith(("mlflow/", "mlflow-artifacts/")):
        return parts[2]
    raise Fault(404, "ENDPOINT_NOT_FOUND", f"there is no {path} here: this address serves only the job's own `mlflow`")


def _chunks(file: BufferedIOBase, most: int) -> Iterator[bytes]:
    """Decode a chunked body. Raises: Fault, OSError."""
    while True:
        try:
            left = int(file.readline(64).split(b";")[0], 16)
        except ValueError as error:
            raise invalid("the length of a chunk is not a number") from error
        if left == 0:
            while file.readline(8192).strip():
                pass
            return
        most -= left
        if left < 0 or most < 0:
            raise invalid("the request is too long")
        data = file.read(left)
        if len(data) < left:
            raise ConnectionResetError("the request ended in the middle")
        file.readline(8)
        yield data


def _listing(place: str) -> list[dict[str, Any]]:
    """Files and subdirectories of a directory, in MLflow's format."""
    if not os.path.isdir(place):
        return []
    with os.scandir(place) as found:
        entries = sorted((entry for entry in found if not _PART.search(entry.name)), key=lambda entry: entry.name)
        return [
            {"path": entry.name, "is_dir": True} if entry.is_dir() else
            {"path": entry.name, "is_dir": False, "file_size": entry.stat().st_size}
            for entry in entries
        ]  # fmt: skip
