"""Names shared by agent, SDK, engines and server: files of an attempt's directory, environment variables, limits."""

import struct

# Files in an attempt's directory (`<home>/attempts/<job>/<attempt>/n<i>/`, mode 0700).
LAUNCH = "launch.json"  # what to start (`wire.launch.Launch`); written before the agent, mode 0600
LOCK = "lock"  # flock held by the agent for its whole life
AGENT = "agent.json"  # {"home", "pid", "start_ticks", "boot_id", "started_monotonic_s"} of the agent that holds the lock
EXIT = "exit.json"  # the exit record (`wire.messages.Ended`), by rename of EXIT_PART, durable before it is reported
EXIT_PART = "exit.part"  # its space is allocated at the start, so that the end can be recorded on a full disk
STOP = "stop.json"  # {"home", "grace_s", "reason"}: tombstone; an agent that finds it stops, a later launch starts nothing
AGENT_LOG = "agent.log"  # the agent's own messages; shown by `Engine.logs`
SPOOL = "spool.jsonl"  # reports not acknowledged yet
TREE = "tree.pids"  # "pid start_ticks" lines: every process ever seen in the ranks' trees, for cleanup by the engine
RANKS = "ranks.pids"  # of a gang: "pid start_ticks" lines of this node's ranks, written when all of them run
SDK_FLAGS = "sdk.flags"  # one byte each at fixed offsets, see FLAG_*; the SDK polls it with pread

RESTORED_EPOCH = "r"  # begins the last part of the id of a home that was restored from a backup; all others are hexadecimal
_EPOCH_MARK = 5  # characters


def checkpoint_prefix(attempt: int, home: str) -> str:
    """What the ids of an attempt's checkpoints begin with. `home` is the id of the server's home.

    In a restored home it is of that home only: after the backup, the lost one may have given the same number to another
    attempt, whose checkpoints are still in the store.
    """
    mark = restored_mark(home)
    return f"{attempt:04d}-{mark}-" if mark else f"{attempt:04d}-"


def restored_mark(home: str) -> str:
    """What the checkpoint ids of a restored home contain; empty for another home."""
    epoch = home.rpartition(".")[2]
    return epoch[:_EPOCH_MARK] if epoch.startswith(RESTORED_EPOCH) else ""


COPY_WHOLE_BYTES = 64 * 1024 * 1024  # of a file that an agent copies in one piece: its records, which name each artifact
APART = "apart"  # marks a directory at the server that holds copies: nothing in it says whether the agent lives
TIMES_RECORD = struct.Struct("<Qd")  # of `times_path`
TIMES_RECORDS_MAX = 65_536  # 1 MiB for each log

FLAG_STOP = 0  # offset in SDK_FLAGS: b"1" when the program should save and end
FLAG_CHECKPOINT = 1  # offset in SDK_FLAGS: counts up (one byte, wraps) each time a checkpoint is requested
FLAG_LOST = 2  # offset in SDK_FLAGS: b"1" by the SDK when it could not write a message; a full disk takes a byte that exists


def data_variable(name: str) -> str:
    """The environment variable with the path or URL of an entry of `data`."""
    return ENV_DATA + name.upper().replace("-", "_")


def is_url(uri: str) -> bool:
    """Whether an entry of `data` is a URL, which is passed on unchanged, and not a path."""
    scheme, mark, _ = uri.partition("://")
    return bool(mark) and scheme[:1].isalpha() and all(c.isalnum() or c in "+-." for c in scheme)

def rank_log(rank: int) -> str:
    """The file with a rank's standard output and error, interleaved as written (binary, any encoding)."""
    return f"rank{rank}.log"


def rank_sdk(rank: int) -> str:
    """The file to which the SDK of a rank appends one JSON line per message (`wire.messages.SdkMessage`)."""
    return f"rank{rank}.sdk"


def role_log(role: str) -> str:
    """The file with a role's standard output and error."""
    return f"role-{role}.log"


def role_sdk(role: str) -> str:
    """The file to which the SDK of a role appends."""
    return f"role-{role}.sdk"


def times_path(log_path: str) -> str:
    """The file beside a log that says when its bytes were written: `rank0.log.times`, from the agent, for the server.

    It has records (`TIMES_RECORD`), each an offset and a time in seconds since the epoch: what lies between the offset of the
    record before it and its own was written by that time. Offsets grow. A file whose last offset is beyond the end of the log
    belongs to the log as it was before it was cut or emptied, and is about to be replaced.
    """
    return log_path + ".times"


def code_archive(digest: str) -> str:
    """What an agent without the server's disk asks for: the tree and all objects of a code copy, as a tar archive."""
    return f"code/{digest}.tar"


def is_copied(name: str) -> bool:
    """Whether an agent copies this file of its directory to a server with which it shares no disk (`PUT /agent/file`)."""
    is_log = name.startswith(("rank", "role-")) and name.endswith((".log", ".log.times"))
    return name in (AGENT_LOG, EXIT) or (is_log and "/" not in name and name.isprintable())


def torch_error(rank: int) -> str:
    """The file in TORCHELASTIC_ERROR_FILE of a rank."""
    return f"rank{rank}.error.json"


# Environment of the ranks (design: agent and SDK environment).
ENV_JOB = "TRAINMASTER_JOB"
ENV_ATTEMPT = "TRAINMASTER_ATTEMPT"  # the number
ENV_NODES = "TRAINMASTER_NODES"  # how many nodes the attempt has
ENV_NODE_RANK = "TRAINMASTER_NODE_RANK"  # which of them this one is, from 0
ENV_KEY = "TRAINMASTER_KEY"  # the agent's key; also identifies processes left by a dead agent
ENV_CHECKPOINT_DIR = "TRAINMASTER_CHECKPOINT_DIR"  # where sdk.checkpoint writes
ENV_RESUME_DIR = "TRAINMASTER_RESUME_DIR"  # directory of the restored checkpoint; unset if there is none
ENV_RESUME_STEP = "TRAINMASTER_RESUME_STEP"  # step of the restored checkpoint; unset if there is none or it is unknown
ENV_RESUME_ARGUMENTS = "TRAINMASTER_RESUME_ARGUMENTS"  # empty if there are none
ENV_PARAMS = "TRAINMASTER_PARAMS"  # JSON
ENV_ARRAY_INDEX = "TRAINMASTER_ARRAY_INDEX"  # of a task of an array
ENV_DATA = "TRAINMASTER_DATA_"  # prefix of the name of an entry of `data`: its path or URL
ENV_SDK = "TRAINMASTER_SDK"  # path of the rank's .sdk file; its directory holds SDK_FLAGS
ENV_ROLE = "TRAINMASTER_ROLE"  # the name of a role; unset for ranks
ENV_TRACKER = "MLFLOW_TRACKING_URI"  # MLflow's own variable; set by us on rank 0 unless the spec sets it
METRICS_LOST = "metric values that were stored before"  # begins a note of a job
METRICS_THINNED = "its curves were thinned to free space"  # likewise
METRICS_UNREAD = "metrics may lack what was printed last"  # likewise
METRICS_ELSEWHERE = "values that only another rank has since a restart are not shown"  # likewise
METRICS_ARRIVING = "its last metric values are still arriving"  # likewise
METRICS_MISSING = (METRICS_LOST, METRICS_THINNED, METRICS_UNREAD, METRICS_ELSEWHERE, METRICS_ARRIVING)
MESSAGES_LOST = "messages lost"  # topic of a warning: what the SDK could not write
UNRECORDED = ("output", MESSAGES_LOST, "metrics dropped")  # topics of warnings: metric points are missing
ENV_FAILPOINT = "TRAINMASTER_FAILPOINT"  # name:n, tests only

# Names in the stores below a blob root.
MANIFEST = "MANIFEST.json"  # of one part of a checkpoint (`wire.messages.Manifest`)


def stored_name(name: str) -> str:
    """The path of a manifest's file below its part: never outside the part, and never that of the manifest."""
    parts = ["__" if part == ".." else part for part in name.lstrip("/").split("/")]
    return "/".join(parts) if parts != [MANIFEST] else f"{MANIFEST}.file"


def printable(name: str) -> str:
    """A file name as text that can be sent and displayed: bytes that are not UTF-8 become `\\xe9`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def blob_name(name: str) -> str:
    """`stored_name` for an object store, whose names must be UTF-8: other bytes are escaped."""
    stored = stored_name(name)
    if stored.isascii():
        return stored
    parts = [(part, printable(part)) for part in stored.split("/")]
    return "/".join(part if part == shown else f"{shown}\\" for part, shown in parts)


def part_lock(place: str) -> str:
    """The lock file (flock) of a checkpoint part in a node's cache: held by readers, so that the part is not evicted."""
    return f"{place}.lock"


def part_stored(place: str) -> str:
    """The marker of a checkpoint part in a node's cache: it exists once the store has the part, which may then be evicted."""
    return f"{place}.stored"


LOG_MAX_BYTES = 256 * 1024 * 1024  # per rank; beyond it, the middle of the log is dropped and a notice says so
LAST_LINES = 20  # kept per rank for `show`
GRACE_S = 30.0  # from SIGTERM to SIGKILL

SYSTEM = "system/"  # prefix of metrics about the machine, not the training
GPU_PERCENT, GPU_MEMORY = "percent", "memory_bytes"  # of the device with the index n: SYSTEM + "gpun_" + one of these

# What a prefix of names in the record belongs to: `OWN` to values of the job's own run, `FILES` to its files.
RUN, MODEL, OWN, FILES = "run", "model", "own", "files"
METRIC_NAME_MAX = 250  # characters, the limit of trackers
ARTIFACT_NAME_MAX = 4096  # characters

STALLED = "standstill"  # topic of the warning that ranks may hang; the name is that of earlier versions
DATA_CHANGED = "data"  # topic of the warning that data differs from what was recorded at the submit

ARTIFACT_KINDS = ("file", "metrics", "plot", "confusion_matrix", "model")  # kinds that a program may give


def is_metric_name(name: str) -> bool:
    """Whether a metric may have this name: not too long, and without characters that control a terminal."""
    return 0 < len(name) <= METRIC_NAME_MAX and name.isprintable()


def is_artifact_name(name: str) -> bool:
    """Whether an artifact may have this name: a path that stays inside a directory when artifacts are downloaded."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return bool(parts) and ".." not in parts and "\0" not in name and len(name) <= ARTIFACT_NAME_MAX
