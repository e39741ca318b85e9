"""Names that agent, SDK, engines and server share: files of an attempt's directory, environment variables, limits."""

# Files in an attempt's directory (`<home>/attempts/<job>/<attempt>/n<i>/`, mode 0700).
LAUNCH = "launch.json"  # what to start (`wire.launch.Launch`); written before the agent, mode 0600
LOCK = "lock"  # flock held by the agent for its whole life
AGENT = "agent.json"  # {"home", "pid", "start_ticks", "boot_id", "started_monotonic_s"} of the agent that holds the lock
EXIT = "exit.json"  # how it ended (`wire.messages.Ended`), by rename of EXIT_PART, durable before anything is told
EXIT_PART = "exit.part"  # allocated at start, so that a full disk cannot hide an end
STOP = "stop.json"  # {"home", "grace_s", "reason"}: tombstone; an agent that finds it stops, a later launch starts nothing
AGENT_LOG = "agent.log"  # the agent's own words; `Engine.logs` shows them
SPOOL = "spool.jsonl"  # reports not acknowledged yet
TREE = "tree.pids"  # "pid start_ticks" lines: every process ever seen in the ranks' trees, for cleaning up after us
RANKS = "ranks.pids"  # of a gang: "pid start_ticks" lines, the ranks of this node once all of them run
SDK_FLAGS = "sdk.flags"  # one byte each at fixed offsets, see FLAG_*; the SDK polls it with pread

FLAG_STOP = 0  # offset in SDK_FLAGS: b"1" when the program should save and end
FLAG_CHECKPOINT = 1  # offset in SDK_FLAGS: counts up (one byte, wraps) each time a checkpoint is asked for


def data_variable(name: str) -> str:
    """The variable that tells a program where an entry of `data` is."""
    return ENV_DATA + name.upper().replace("-", "_")


def is_url(uri: str) -> bool:
    """Whether an entry of `data` is a URL, which is taken as it is, and no path."""
    scheme, mark, _ = uri.partition("://")
    return bool(mark) and scheme[:1].isalpha() and all(c.isalnum() or c in "+-." for c in scheme)


def rank_log(rank: int) -> str:
    """The file that holds a rank's standard output and error, interleaved as written (binary, any encoding)."""
    return f"rank{rank}.log"


def rank_sdk(rank: int) -> str:
    """The file to which the SDK of a rank appends one JSON line per message (`wire.messages.SdkMessage`)."""
    return f"rank{rank}.sdk"


def role_log(role: str) -> str:
    """The same of a role, which runs beside the ranks."""
    return f"role-{role}.log"


def role_sdk(role: str) -> str:
    """The file to which the SDK of a role appends."""
    return f"role-{role}.sdk"


def torch_error(rank: int) -> str:
    """The file named by TORCHELASTIC_ERROR_FILE for a rank."""
    return f"rank{rank}.error.json"


# Environment of the ranks (design: agent and SDK environment).
ENV_JOB = "TRAINMASTER_JOB"
ENV_ATTEMPT = "TRAINMASTER_ATTEMPT"  # the number
ENV_KEY = "TRAINMASTER_KEY"  # the agent's key; also how leftovers of a dead agent are found
ENV_CHECKPOINT_DIR = "TRAINMASTER_CHECKPOINT_DIR"  # where sdk.checkpoint stages
ENV_RESUME_DIR = "TRAINMASTER_RESUME_DIR"  # the checkpoint put back, as a directory; unset when there is none
ENV_RESUME_STEP = "TRAINMASTER_RESUME_STEP"  # the step of the checkpoint put back; unset when there is none or it is unknown
ENV_RESUME_ARGUMENTS = "TRAINMASTER_RESUME_ARGUMENTS"  # empty when there is none
ENV_PARAMS = "TRAINMASTER_PARAMS"  # JSON
ENV_DATA = "TRAINMASTER_DATA_"  # and the name of an entry of `data`: its path or URL
ENV_SDK = "TRAINMASTER_SDK"  # path of the rank's .sdk file; its directory holds SDK_FLAGS
ENV_ROLE = "TRAINMASTER_ROLE"  # the name of a role; unset for ranks
ENV_TRACKER = "MLFLOW_TRACKING_URI"  # MLflow's own: where a script's `mlflow` writes; ours on rank 0 unless the spec sets it
ENV_FAILPOINT = "TRAINMASTER_FAILPOINT"  # name:n, tests only

# Names in the stores below a blob root.
MANIFEST = "MANIFEST.json"  # of one part of a checkpoint (`wire.messages.Manifest`)


def stored_name(name: str) -> str:
    """Where a file of the manifest lies below its part: never outside it, and never where the manifest is."""
    parts = ["__" if part == ".." else part for part in name.lstrip("/").split("/")]
    return "/".join(parts) if parts != [MANIFEST] else f"{MANIFEST}.file"


def printable(name: str) -> str:
    """A file's name as text that can be sent and shown: bytes that are not UTF-8 as `\\xe9`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def blob_name(name: str) -> str:
    """`stored_name` of the same file in a store of objects, whose names are UTF-8: bytes that are not are written out."""
    stored = stored_name(name)
    if stored.isascii():
        return stored
    parts = [(part, printable(part)) for part in stored.split("/")]
    return "/".join(part if part == shown else f"{shown}\\" for part, shown in parts)


def part_lock(place: str) -> str:
    """Beside a checkpoint's part in a node's cache: held (flock) by whoever reads it, so that nobody removes it."""
    return f"{place}.lock"


def part_stored(place: str) -> str:
    """Beside it too: there once the store has the part, so that the cache may give up its copy."""
    return f"{place}.stored"


LOG_MAX_BYTES = 256 * 1024 * 1024  # per rank; beyond it the middle is given up and said
LAST_LINES = 20  # kept of every rank for `show`
GRACE_S = 30.0  # TERM to KILL

SYSTEM = "system/"  # before the names of metrics that tell of the machine, not of the training

METRIC_NAME_MAX = 250  # characters, as trackers have it
ARTIFACT_NAME_MAX = 4096  # characters

STALLED = "standstill"  # topic of the trouble that a node's ranks may hang; agents of earlier versions call it so

ARTIFACT_KINDS = ("file", "metrics", "plot", "confusion_matrix", "model")  # what a program may call an artifact


def is_metric_name(name: str) -> bool:
    """Whether a metric can be recorded under this name: not too long, and nothing in it that moves a terminal's cursor."""
    return 0 < len(name) <= METRIC_NAME_MAX and name.isprintable()


def is_artifact_name(name: str) -> bool:
    """Whether a file can be kept under this name: a path that stays below a directory when the artifacts are fetched."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return bool(parts) and ".." not in parts and "\0" not in name and len(name) <= ARTIFACT_NAME_MAX
