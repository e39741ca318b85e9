"""The agent's protocol: `POST /agent/sync`, JSON both ways, the agent always the one who calls.

Reports are kept in the agent's spool until acknowledged and may arrive twice (`n` counts up per agent and makes them
idempotent). Points are no events: they are kept too (`agent.points`), have numbers of their own, and each number is stored
once. Both are told in the order of their numbers, so whatever is told has all that came before it. The heartbeat is sent once.
Agents send readings of their own monotonic clock and durations, never times of day. Either side may be of another version:
fields and kinds of report that one does not know it passes over, and what one lacks has a default.
"""

from typing import Any, Dict, List, Optional, TypedDict, Union


class RankReport(TypedDict):
    """How one rank ended. Mirrors `model.job.RankEnd`."""

    rank: int
    exit_code: Optional[int]
    signal: Optional[int]
    stopped_by_us: bool
    ended_after_s: float
    last_lines: List[str]
    error: Optional[str]
    peak_memory_bytes: int
    cpu_s: float


class RoleReport(RankReport):
    """How one role ended; its `rank` is -1."""

    role: str


class Preparing(TypedDict):
    """Something that takes long has to be done before the ranks can run."""

    kind: str  # "preparing"
    n: int
    doing: str


class Started(TypedDict):
    """All ranks of this node run."""

    kind: str  # "started"
    n: int
    restored: Optional[str]
    step: Optional[int]
    bad: List[str]
    environment: Optional[str]  # SHA-256 of the record of what they run in; None: not known yet


class EnvironmentFound(TypedDict):
    """What the ranks of this node run in is on record; told apart from the start only where no job ran in it before."""

    kind: str  # "environment"
    n: int
    environment: str


class Rendezvous(TypedDict):
    """Node 0 chose where the ranks meet."""

    kind: str  # "rendezvous"
    n: int
    address: str
    port: int


class Staged(TypedDict):
    """This node's part of a checkpoint is durable in the store."""

    kind: str  # "staged"
    n: int
    id: str
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
    artifact_kind: str  # "file" "metrics" "plot" "confusion_matrix" "model", or "pickle": refused as a model


class NotKept(TypedDict):
    """A checkpoint or an artifact could not be brought into the store: refused there, or given up."""

    kind: str  # "not_kept"
    n: int
    what: str  # "checkpoint" "artifact"
    name: str
    why: str


class Warned(TypedDict):
    """Something that a person would want to know; a later one of the same topic replaces it."""

    kind: str  # "warned"
    n: int
    topic: str
    text: str  # empty: it no longer holds


class RunLogged(TypedDict):
    """Parameters and tags that the program logged through a tracker's own calls, those told before left out."""

    kind: str  # "run"
    n: int
    params: Dict[str, str]
    tags: Dict[str, Optional[str]]  # None: the tag was removed


class Ended(TypedDict):
    """This agent's part is over; also the content of exit.json (with "home", "n" is 0 there). Mirrors `model.job.Outcome`."""

    kind: str  # "ended"
    n: int
    ranks: List[RankReport]
    roles: List[RoleReport]
    launch_error: Optional[str]  # the program or the spec cannot be started: another try would fail likewise
    machine_error: Optional[str]  # the machine could not start it: another try may succeed
    launch_lines: List[str]  # what a program said that should have prepared the start
    over_memory: bool
    memory_limit_bytes: Optional[int]
    peak_memory_bytes: int
    port_in_use: bool
    last_step: Optional[int]
    first_step: Optional[int]
    ran_s: float
    staged: List[Staged]  # in exit.json only: everything told, so that an unreachable server loses nothing
    kept: List[Kept]
    run: List[RunLogged]
    not_kept: List[NotKept]
    warned: List[Warned]
    restored: Optional[str]
    restored_step: Optional[int]
    bad: List[str]  # checkpoints whose digest differed
    doubted: List[str]  # checkpoints that could not be read
    environment: Optional[str]
    killed_for_memory: bool
    failed_ago_s: float


Report = Union[Preparing, Started, EnvironmentFound, Rendezvous, Staged, Kept, NotKept, Warned, RunLogged, Ended]


class Point(TypedDict):
    """Metric values of one rank at one step; a later point of the same rank, step and name supersedes the earlier."""

    n: int
    rank: int
    step: Optional[int]
    values: Dict[str, float]
    at_s: float  # on the agent's monotonic clock, which the server maps once, at the first heartbeat or point
    age_s: float  # how long ago, at sending


class Heartbeat(TypedDict):
    """How the agent's part is doing."""

    at_s: float  # on the agent's monotonic clock
    running_s: float
    step: Optional[int]
    memory_bytes: int
    cpu_s: float
    gpu: List[Dict[str, Any]]


class SyncRequest(TypedDict):
    """Up. `wait_s` > 0 asks the server to hold the answer until there are orders (a long poll)."""

    key: str
    reports: List[Dict[str, Any]]
    points: List[Point]
    heartbeat: Optional[Heartbeat]
    wait_s: float
    orders_seen: int  # `version` of the orders last received


class Order(TypedDict, total=False):
    """Down. Orders are a state to be reached, so receiving one twice is harmless."""

    order: str  # "rendezvous" (address, port) | "stop" (grace_s, reason) | "checkpoint" (n) | "exec" (from `id` on)
    address: str
    port: int
    grace_s: float
    reason: str
    n: int
    id: str  # of a command to run beside the ranks, once; what it prints goes to `POST /agent/exec/output`
    command: List[str]
    rank: Optional[int]  # whose environment it gets; without rank and role the first rank's of this node
    role: Optional[str]
    stacks: bool  # dump the Python stacks of the ranks in place of a command
    py_spy: Optional[str]  # the server's, for a job that has none
    stdin: bool  # its input comes from `POST /agent/exec/input`
    stop: bool  # end it


class SyncResponse(TypedDict):
    """Down. `ack` is the highest report number that is durable; `stale` means: stop, a later attempt is live."""

    ack: int
    orders: List[Order]
    version: int
    stale: bool


class FileEntry(TypedDict):
    """One file of a part of a checkpoint, relative to the work directory (or to sdk.checkpoint's directory)."""

    path: str
    bytes: int
    sha256: str
    mode: int


class _Links(TypedDict, total=False):
    links: Dict[str, str]  # symbolic links in the directories that lead to no file, and what they say


class Manifest(_Links):
    """MANIFEST.json of one part: what restoring verifies, file by file."""

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

    t: str  # "m" metrics | "c" checkpoint written | "a" artifact
    step: Optional[int]
    values: Dict[str, float]  # m
    directory: str  # c: the staged directory, complete when the line is there
    ranks: str  # c: "one" | "all"
    path: str  # a: absolute
    name: str  # a: under which it is kept
    kind: str  # a: what it is, as the program says
