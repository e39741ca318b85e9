"""The agent's protocol: `POST /agent/sync`, JSON in both directions. The agent always sends the request.

Reports are kept in the agent's spool until acknowledged and may arrive twice. The number `n` counts up per agent and makes
them idempotent. Metric points are not events. They are kept too (`agent.transport.points`), have their own numbers, and each
number is stored once. Both are sent in the order of their numbers, so everything before a received number has arrived. A
heartbeat is sent only once. Agents send readings of their own monotonic clock and durations, never times of day. Either side
may have another version: unknown fields and kinds of reports are ignored, and missing fields have defaults.
"""

from typing import Any, Dict, List, Optional, TypedDict, Union


class RankReport(TypedDict):
    """The end of one rank. Mirrors `model.job.RankEnd`."""

    rank: int
    exit_code: Optional[int]
    signal: Optional[int]
    stopped_by_us: bool
    ended_after_s: float
    last_lines: List[str]
    error: Optional[str]
    raised: Optional[str]
    peak_memory_bytes: int
    cpu_s: float
    outside: Optional[str]


class RoleReport(RankReport):
    """The end of one role; its `rank` is -1."""

    role: str


class Preparing(TypedDict):
    """A long step of the preparation, before the ranks can run."""

    kind: str  # "preparing"
    n: int
    doing: str


class _Marked(TypedDict, total=False):
    approximate: bool  # the step of the restored checkpoint is
    read: bool  # all of this node's part of it was read from the store, and has its digests
    at_s: float  # when they were started, on the agent's monotonic clock: only in its own files
    ago_s: float  # for how long they have run, when it is sent


class Started(_Marked):
    """All ranks of this node run."""

    kind: str  # "started"
    n: int
    restored: Optional[str]
    step: Optional[int]
    bad: List[str]
    environment: Optional[str]  # SHA-256 of the environment's record; None: not known yet


class EnvironmentFound(TypedDict):
    """The environment of this node's ranks is recorded. Sent separately only if no earlier job ran in this environment."""

    kind: str  # "environment"
    n: int
    environment: str


class Rendezvous(TypedDict):
    """Node 0 has chosen the rendezvous address."""

    kind: str  # "rendezvous"
    n: int
    address: str
    port: int


class _EpochCounts(TypedDict, total=False):
    epoch_first: Optional[int]
    epoch_steps: Optional[int]
    epoch_anew: Optional[bool]


class Progress(_EpochCounts):
    """What the program has shown so far in this attempt. Mirrors `model.progress.Progress`."""

    steps: List[int]
    last_step: Optional[int]
    fell_to: Optional[int]
    first: Dict[str, float]
    last: Dict[str, float]
    sdk: Optional[str]  # "asked" "loaded"


class _Timed(TypedDict, total=False):
    after_s: float  # if the step is unknown: when it was saved, in seconds since this node's ranks started
    progress: Progress  # by then


class Staged(_Timed):
    """This node's part of a checkpoint is durable in the store."""

    kind: str  # "staged"
    n: int
    id: str
    name: str  # its path in the work directory; "" for one of the SDK
    step: Optional[int]
    approximate: bool
    parts_expected: int
    digest: str
    files: int
    bytes: int


class Kept(TypedDict):
    """An artifact is durable in the store."""

    kind: str  # "kept"
    n: int
    path: str
    digest: str
    bytes: int
    artifact_kind: str  # "file" "metrics" "plot" "confusion_matrix" "model", or "pickle": rejected as a model


class NotKept(TypedDict):
    """A checkpoint or an artifact is not in the store: rejected there, or dropped."""

    kind: str  # "not_kept"
    n: int
    what: str  # "checkpoint" "artifact"
    name: str
    why: str


class _Looked(TypedDict, total=False):
    data: Dict[str, str]  # topic `names.DATA_CHANGED`: each entry that was looked at -> `wire.data.SAME`, CHANGED or UNKNOWN


class Warned(_Looked):
    """A warning for the user. A later one of the same topic replaces it."""

    kind: str  # "warned"
    n: int
    topic: str
    text: str  # empty: it is over


class RunLogged(TypedDict):
    """New parameters and tags that the program logged with a tracker's own API."""

    kind: str  # "run"
    n: int
    params: Dict[str, str]
    tags: Dict[str, Optional[str]]  # None: the tag was removed
    prefixes: Dict[str, str]  # new ones, see `RunIdentity` (missing in reports of older versions)


class ProgressShown(TypedDict):
    """What the program of a restarted attempt, or of one with a checkpoint, has shown so far. Sent when it says more."""

    kind: str  # "progress"
    n: int
    progress: Progress


class _EndedMarked(TypedDict, total=False):
    restored_approximate: bool  # as in `Started`
    restored_read: bool


class Ended(_EndedMarked):
    """This agent's part is over; also the content of exit.json (with "home", and `n` is 0). Mirrors `model.job.Outcome`."""

    kind: str  # "ended"
    n: int
    ranks: List[RankReport]
    roles: List[RoleReport]
    launch_error: Optional[str]  # the program or the spec cannot be started: a retry would fail too
    machine_error: Optional[str]  # the machine could not start it: a retry may succeed
    launch_lines: List[str]  # output of a program that prepared the start
    over_memory: bool
    memory_limit_bytes: Optional[int]
    peak_memory_bytes: int
    port_in_use: bool
    last_step: Optional[int]
    first_step: Optional[int]
    ran_s: float
    staged: List[Staged]  # in exit.json only: everything reported, so that an unreachable server loses nothing
    kept: List[Kept]
    run: List[RunLogged]
    not_kept: List[NotKept]
    warned: List[Warned]
    restored: Optional[str]
    restored_step: Optional[int]
    bad: List[str]  # checkpoints with a wrong digest
    doubted: List[str]  # checkpoints that could not be read
    environment: Optional[str]
    killed_for_memory: bool
    failed_ago_s: float
    progress: Progress
    unread: str  # why output was not read or searched, so that steps may be missing; empty: it was
    terminated: bool  # the agent had SIGTERM or SIGINT without an order, so its ranks were stopped or not started


Report = Union[Preparing, Started, EnvironmentFound, Rendezvous, Staged, Kept, NotKept, Warned, RunLogged, ProgressShown, Ended]


class Point(TypedDict):
    """Metric values of one rank at one step. A later point of the same rank, step and name supersedes an earlier one."""

    n: int
    rank: int
    step: Optional[int]
    values: Dict[str, float]
    at_s: float  # on the agent's monotonic clock; the server maps it once, at the first heartbeat or point
    age_s: float  # age of the point when it is sent


class Heartbeat(TypedDict):
    """The current state of the agent's part."""

    at_s: float  # on the agent's monotonic clock
    running_s: float
    step: Optional[int]
    memory_bytes: int
    cpu_s: float
    gpu: List[Dict[str, Any]]


class SyncRequest(TypedDict):
    """From agent to server. `wait_s` > 0 asks the server to hold the answer until there are orders (a long poll)."""

    key: str
    reports: List[Dict[str, Any]]
    points: List[Point]
    heartbeat: Optional[Heartbeat]
    wait_s: float
    orders_seen: int  # `version` of the orders last received


class Terminal(TypedDict):
    """The terminal of the user that runs a command. It may be resized meanwhile."""

    rows: int
    columns: int
    term: str  # the variable TERM


class Order(TypedDict, total=False):
    """From server to agent. Orders describe a state to reach, so receiving one twice is harmless."""

    order: str  # "rendezvous" (address, port) | "stop" (grace_s, reason) | "checkpoint" (n) | "exec" (from `id` on)
    address: str
    port: int
    grace_s: float
    reason: str
    n: int
    id: str  # of a command to run once beside the ranks; its output goes to `POST /agent/exec/output`
    command: List[str]
    rank: Optional[int]  # the rank whose environment it gets; without rank and role, the node's first rank
    role: Optional[str]
    stacks: bool  # dump the Python stacks of the ranks instead of a command
    py_spy: Optional[str]  # the server's py-spy, for a job without its own
    stdin: bool  # its input comes from `POST /agent/exec/input`
    terminal: Terminal  # the command gets a terminal of its own instead of pipes
    stop: bool  # end it


class SyncResponse(TypedDict):
    """From server to agent. `ack`: the highest durable report number. `stale`: stop, because a later attempt is live.

    `gang_step`: the highest step that a node of the gang told in its last heartbeat. Only answers to a heartbeat have it, and
    only in a gang of several nodes.
    """

    ack: int
    orders: List[Order]
    version: int
    stale: bool
    gang_step: Optional[int]


class FileEntry(TypedDict):
    """One file of a part of a checkpoint, relative to the work directory (or to sdk.checkpoint's directory)."""

    path: str
    bytes: int
    sha256: str
    mode: int


class PointerEntry(TypedDict):
    """The content of a file beside a checkpoint that names it (`latest`)."""

    text: str  # "\0" stands for the work directory
    linked: bool  # a symbolic link, of which `text` is the target


class _Optional(TypedDict, total=False):
    links: Dict[str, str]  # path -> target of symbolic links in the directories that lead to no file
    pointers: Dict[str, PointerEntry]  # path -> what it must say if this checkpoint is restored
    temporary: List[str]  # ends that the program was seen to take off names when it had written what has them


class Manifest(_Optional):
    """MANIFEST.json of one part. A restore verifies every file against it."""

    id: str
    job: str
    attempt: int
    node_index: int
    step: Optional[int]
    approximate: bool
    kind: str  # "glob": paths are relative to the work directory; "sdk": to the checkpoint's own directory
    directories: List[str]  # empty directories and the roots that matched
    files: List[FileEntry]


class SdkMessage(TypedDict, total=False):
    """One JSON line of a rank's .sdk file."""

    t: str  # "m" metrics | "c" checkpoint written | "a" artifact | "r" about the restored checkpoint
    step: Optional[int]
    counted: bool  # m: the SDK counted the step itself
    loaded: bool  # r: the SDK loaded it; false: the program asked where it is
    values: Dict[str, float]  # m
    directory: str  # c: the staged directory, complete when the line is there
    ranks: str  # c: "one" | "all"
    path: str  # a: absolute
    name: str  # a: the artifact's name
    kind: str  # a: the kind given by the program
