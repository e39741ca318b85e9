"""Where everything of one server lies, and whose it is: the layout of `TRAINMASTER_HOME`, and nothing but the layout.

Standard library only: the command line reads it before anything heavy is loaded.
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

_SOCKET_PATH_MAX = 100  # bytes; the kernel takes 107


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
        """What `tm up` was told: host, port, nodes, gpus_per_node, failpoints; read by both processes."""
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
    def id_file(self) -> Path:
        """`{"id", "path", "device", "inode"}`: which home this is (`store.identity`), and where it lay when it last began."""
        return self.root / "home.json"

    def identity(self) -> str:
        """The id that this home, its databases and its launches bear; empty before the first start.

        Raises: OSError where it cannot be read: that is no proof of another home.
        """
        return str((self.read_json(self.id_file) or {}).get("id") or "")

    @property
    def events_db(self) -> Path:
        """Written by control alone."""
        return self.root / "events.db"

    @property
    def inbox_db(self) -> Path:
        """Written by api alone."""
        return self.root / "inbox.db"

    @property
    def metrics_db(self) -> Path:
        """Written by api alone."""
        return self.root / "metrics.db"

    @property
    def mirror_db(self) -> Path:
        """Written by mirror alone."""
        return self.root / "mirror.db"

    @property
    def mirror_json(self) -> Path:
        """How the trackers that are mirrored into fare, as of the last second in which something changed."""
        return self.root / "mirror.json"

    @property
    def reserve(self) -> Path:
        """Room on the disk that is kept for ending things (`trainmaster.reserve`)."""
        return self.root / "reserve"

    @property
    def tracking(self) -> Path:
        """TensorBoard and offline W&B files, unless `server.toml` says where."""
        return self.root / "tracking"

    @property
    def mlflow(self) -> Path:
        """All that belongs to the MLflow server of `tm up --mlflow`."""
        return self.root / "mlflow"

    @property
    def blobs(self) -> Path:
        """Code copies, checkpoints and artifacts."""
        return self.root / "blobs"

    @property
    def environments(self) -> Path:
        """What ranks of this machine ran in: `<SHA-256>.json`, and notes of what each was made from (local engine)."""
        return self.root / "environments"

    @property
    def virtual_environments(self) -> Path:
        """Virtual environments made of requirements, by digest (local engine)."""
        return self.root / "venvs"

    @property
    def cache(self) -> Path:
        """What this machine keeps of a store that is no directory here; bounded, and may be lost."""
        return self.root / "cache"

    @property
    def agent_zipapp(self) -> Path:
        """The agent as one file, for where it is started by exec."""
        return self.root / "agent.pyz"

    @property
    def logs(self) -> Path:
        """What the server's own processes say."""
        return self.root / "logs"

    def lock(self, name: str) -> Path:
        """A lock file: `up`, `control`, `api`, `migrate`."""
        return self.root / f"{name}.lock"

    @property
    def live(self) -> Path:
        """One empty file per agent not known to have ended (local engine): what is alive, at no cost of history."""
        return self.root / "live"

    def attempt(self, job: str, attempt: int, node_index: int) -> Path:
        """The directory of one agent (`wire.names` lists its files)."""
        return self.attempts(job) / str(attempt) / f"n{node_index}"

    def attempts(self, job: str) -> Path:
        """The directories of all attempts of a job."""
        return self.root / "attempts" / job

    def points(self, key: str) -> Path:
        """The metric points of one agent that the server has not acknowledged; what is there after its end is for the api."""
        return self.root / "points" / f"{key.replace('/', '~')}.jsonl"  # no name of ours holds a "~"

    def work(self, job: str, node: str) -> Path:
        """The job's work directory on a node of this machine, kept across attempts."""
        return self.jobs_work(job) / node

    def jobs_work(self, job: str) -> Path:
        """The job's work directories on all nodes of this machine, and what was set aside beside them."""
        return self.root / "work" / job

    def socket(self, name: str) -> Path:
        """A Unix socket (`api`, `spawner`, `control.wake`, `api.wake`): in the home unless its path would be too long.

        Then in the first of `$XDG_RUNTIME_DIR`, `$TMPDIR` and `/tmp` where it is not.
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
        """A JSON file of ours; None when it is absent or half-written.

        Raises: OSError where it cannot be read: that does not say that there is none.
        """
        try:
            with open_regular(path) as file:
                value = json.loads(file.read())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return value if isinstance(value, dict) else None


def account_name(uid: int | None = None) -> str:
    """The name of an account, of the one this process runs as if none is given; `user 1000` where it has none."""
    uid = os.getuid() if uid is None else uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's user without an entry
        return f"user {uid}"


def open_regular(path: str | Path) -> BinaryIO:
    """A file of an attempt, to read. Its program may put something else there: a pipe would be waited for without end.

    Raises: OSError, for what is no regular file too.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return open(descriptor, "rb")


def write_atomic(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` whole and durably: temporary file, fsync, rename, fsync of the directory."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident():x}.part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:  # one `os.write` may write a part only, where the disk is nearly full
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
