"""The layout of `TRAINMASTER_HOME`, the state directory of one server: paths, their owner, and reading and writing its files.

Standard library only: the command line imports it before anything heavy is loaded.
"""

import errno
import hashlib
import json
import os
import pwd
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

_SOCKET_PATH_MAX = 100  # bytes; the kernel allows 107


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory of one server."""

    root: Path

    @classmethod
    def default(cls) -> "Home":
        """`$TRAINMASTER_HOME`, else `$XDG_STATE_HOME/trainmaster`, else `~/.local/state/trainmaster`."""
        named = os.environ.get("TRAINMASTER_HOME")
        if named:
            return cls(Path(named).expanduser().absolute())
        state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        return cls(Path(state) / "trainmaster")

    @property
    def server_json(self) -> Path:
        """`{"url", "pids": {"api", "control"}, "ticks": {...}, "boot_id", "version"}` while a server runs."""
        return self.root / "server.json"

    @property
    def settings_json(self) -> Path:
        """The settings given to `tm up`: host, port, nodes, gpus_per_node, failpoints; read by both processes."""
        return self.root / "settings.json"

    @property
    def token_file(self) -> Path:
        """The first admin token, mode 0600."""
        return self.root / "token"

    @property
    def secret_file(self) -> Path:
        """32 random bytes from which agents' credentials are derived, mode 0600."""
        return self.root / "secret"

    @property
    def tls(self) -> Path:
        """The server's own authority and certificate (`server.process.certificates`), mode 0700."""
        return self.root / "tls"

    @property
    def id_file(self) -> Path:
        """`{"id", "path", "device", "inode"}`: the id of this home (`store.identity`), and its place at the last start."""
        return self.root / "home.json"

    @property
    def restores_json(self) -> Path:
        """`{id: n}`: the ids that restores gave to this home, oldest first, each with the number of the last job before it."""
        return self.root / "restores.json"

    def identity(self) -> str:
        """The id in this home, its databases and its launches; empty before the first start.

        Raises: OSError if it cannot be read, which does not prove that this is another home.
        """
        return str((self.read_json(self.id_file) or {}).get("id") or "")

    @property
    def events_db(self) -> Path:
        """Only control writes it."""
        return self.root / "events.db"

    @property
    def inbox_db(self) -> Path:
        """Only api writes it."""
        return self.root / "inbox.db"

    @property
    def metrics_db(self) -> Path:
        """Only api writes it."""
        return self.root / "metrics.db"

    @property
    def mirror_db(self) -> Path:
        """Only the mirror writes it."""
        return self.root / "mirror.db"

    @property
    def mirror_json(self) -> Path:
        """State of the trackers that are mirrored into, at most a second old."""
        return self.root / "mirror.json"

    @property
    def reserve(self) -> Path:
        """Disk space reserved for ending jobs (`trainmaster.reserve`)."""
        return self.root / "reserve"

    @property
    def tracking(self) -> Path:
        """TensorBoard and offline W&B files, unless `server.toml` names another directory."""
        return self.root / "tracking"

    @property
    def mlflow(self) -> Path:
        """Files of the MLflow server of `tm up --mlflow`."""
        return self.root / "mlflow"

    @property
    def blobs(self) -> Path:
        """Code copies, checkpoints and artifacts."""
        return self.root / "blobs"

    @property
    def environments(self) -> Path:
        """Environment records of this machine's ranks: `<SHA-256>.json`, and notes with fingerprints (local engine)."""
        return self.root / "environments"

    @property
    def virtual_environments(self) -> Path:
        """Virtual environments from requirements files, by digest (local engine)."""
        return self.root / "venvs"

    @property
    def cache(self) -> Path:
        """The local cache of a remote store; bounded, and may be deleted."""
        return self.root / "cache"

    @property
    def agent_zipapp(self) -> Path:
        """The agent as one file, for engines that start it by exec."""
        return self.root / "agent.pyz"

    @property
    def sdk(self) -> Path:
        """The SDK for jobs whose Python has no Trainmaster (local engine), one directory per version of it."""
        return self.root / "sdk"

    @property
    def numbers_unknown(self) -> Path:
        """An empty file: the log is older than the store, or new. The next start keeps new job numbers above those in use."""
        return self.root / "numbers-unknown"

    @property
    def logs(self) -> Path:
        """Logs of the server's own processes."""
        return self.root / "logs"

    def lock(self, name: str) -> Path:
        """A lock file: `up`, `control`, `api`, `migrate`."""
        return self.root / f"{name}.lock"

    @property
    def live(self) -> Path:
        """One empty file per agent that is not known to have ended (local engine). Its size does not grow with history."""
        return self.root / "live"

    def attempt(self, job: str, attempt: int, node_index: int) -> Path:
        """The directory of one agent (`wire.names` lists its files)."""
        return self.attempts(job) / str(attempt) / f"n{node_index}"

    def attempts(self, job: str) -> Path:
        """The directories of all attempts of a job."""
        return self.root / "attempts" / job

    def points(self, key: str) -> Path:
        """Metric points of one agent that the server has not acknowledged; after the agent's end, api reads them."""
        return self.root / "points" / f"{key.replace('/', '~')}.jsonl"  # our names never contain "~"

    def work(self, job: str, node: str) -> Path:
        """The job's work directory on a node of this machine, kept across attempts."""
        return self.jobs_work(job) / node

    def jobs_work(self, job: str) -> Path:
        """The job's work directories on all nodes of this machine, and files that were set aside beside them."""
        return self.root / "work" / job

    def socket(self, name: str) -> Path:
        """A Unix socket (`api`, `spawner`, `control.wake`, `api.wake`): in the home, unless its path would be too long.

        Then in the first of `$XDG_RUNTIME_DIR`, `$TMPDIR` and `/tmp` in which the path is short enough.
        """
        path = self.root / f"{name}.sock"
        if len(os.fsencode(path)) <= _SOCKET_PATH_MAX:
            return path
        import tempfile  # noqa: PLC0415  # most homes have a short path

        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        private = f"trainmaster-{os.getuid()}"
        given = os.environ.get("XDG_RUNTIME_DIR")
        places = [Path(given)] if given else []
        places += [Path(directory, private) for directory in (tempfile.gettempdir(), "/tmp")]
        found = [place / f"tm-{digest}-{name}.sock" for place in places]
        return next((path for path in found if len(os.fsencode(path)) <= _SOCKET_PATH_MAX), found[-1])

    def read_json(self, path: Path) -> dict[str, Any] | None:
        """A JSON file of ours; None if it is missing or half-written.

        Raises: OSError if it cannot be read, which does not mean that it is missing.
        """
        try:
            with open_regular(path) as file:
                value = json.loads(file.read())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return value if isinstance(value, dict) else None


def account_name(uid: int | None = None) -> str:
    """The name of an account, by default of the one that runs this process; `user 1000` if it has no name."""
    uid = os.getuid() if uid is None else uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a user in a container without an entry
        return f"user {uid}"


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file of an attempt for reading. A program may have put a pipe in its place, on which `open` would block.

    Raises: OSError, also if it is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return open(descriptor, "rb")


def write_atomic(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` atomically and durably: temporary file, fsync, rename, fsync of the directory."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident():x}.part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:  # a single `os.write` may write only a part if the disk is nearly full
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
