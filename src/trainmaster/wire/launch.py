"""The content of `launch.json`: everything that an agent needs from its engine, with nothing left to look up."""

from typing import Dict, List, Optional, TypedDict


class ResumePoint(TypedDict):
    """A checkpoint that the agent may restore. Resume points are tried in the given order."""

    id: str
    step: Optional[int]
    approximate: bool
    root: str  # directory of this checkpoint in the store; parts are in root/n<i>/ with their MANIFEST.json
    digests: Dict[str, str]  # "n<i>" -> SHA-256 of that part's MANIFEST.json


class CodeLayout(TypedDict):
    """The location of the code copy: a tree file (`wire.code.Tree` as JSON) and its objects."""

    tree: str  # path of the tree file
    objects: str  # directory: objects/<2 hex>/<62 hex> by SHA-256
    source: str  # the submitter's directory, the target of links


class RunIdentity(TypedDict):
    """The job's run as a script's own `mlflow` sees it, with what earlier attempts logged into it."""

    id: str  # `wire.runs.run_id`
    experiment_id: str
    experiment: str
    name: str
    params: Dict[str, str]
    tags: Dict[str, str]
    prefixes: Dict[str, str]  # of names in the record -> what they belong to: `names.RUN`, `MODEL`, `OWN`, `FILES`, or "role"


class RoleLaunch(TypedDict):
    """A program that runs beside the ranks of node 0 and ends with them."""

    name: str
    command: List[str]  # like Launch.command
    shell: bool
    devices: Optional[List[int]]  # like Launch.devices, for this role
    cpus: float  # of this role (missing in launches of older versions)


class Requirements(TypedDict):
    """The virtual environment in which ranks and roles run; built if it does not exist."""

    file: str  # for pip, relative to `work` or absolute
    python: Optional[str]  # its interpreter: a path, or a name on the PATH; None: `python3`, else `python`
    root: str  # directory of all such environments of this node
    max_bytes: int  # limit of all of them together; the least recently used are evicted


class DataLaunch(TypedDict):
    """One entry of the spec's data on a file system, as it was at the submit."""

    name: str
    path: str
    stamp: str  # `wire.data.stamp`
    digest: str  # of the bytes (missing in launches of older versions); "": not known
    bytes: int  # (missing likewise)
    listing: Optional[str]  # `wire.data.listing`; None: not known (missing likewise)


class Launch(TypedDict):
    """The orders for one agent. Paths are absolute; durations in seconds; sizes in bytes."""

    key: str
    home: str  # the id of the server's home; empty if it has none
    job: str
    attempt: int
    node_index: int
    nodes: int  # of the gang
    ranks: int  # on this node
    cpus: float  # of all ranks of this node (missing in launches of older versions)
    distributed: bool  # the spec asks for a gang: set torchrun's variables (launches of older versions always did)
    command: List[str]  # argv; a shell line is already ["bash", "-o", "pipefail", "-c", line]
    shell: bool  # exit 128+n of the command counts as signal n; resume arguments are appended to the line
    environment: Dict[str, str]  # of every rank, before torchrun's and our own variables
    sdk: Optional[str]  # directory on this node for the end of PYTHONPATH (`agent.pack.lay_out_sdk`; missing in older launches)
    devices: Optional[List[int]]  # CUDA_VISIBLE_DEVICES; None leaves it unset, [] hides all
    work: str  # the job's work directory on this node
    umask: Optional[int]  # of the programs; None: that of the agent
    in_place: bool  # `work` is the user's own directory: nothing is laid out in it, and only what the job wrote is set aside
    before: str  # file for the list of what was there before the job (missing in launches of older versions)
    fresh: bool  # an older attempt may still run on this node: lay out a new work directory
    code: Optional[CodeLayout]
    checkpoint_path: Optional[str]
    checkpoint_interval_s: Optional[float]  # how often the SDK is told to save; None: only on request
    resume_arguments: Optional[str]
    checkpoint_store: str  # <blob root>/checkpoints/<job>
    resume: List[ResumePoint]
    forked: bool  # one of `resume` belongs to another job, and the job cannot start without any of them
    metrics_pattern: Optional[str]
    metrics_automatic: bool  # also read lines that no pattern matches (missing in launches of older versions)
    metrics_files: List[str]  # globs of files whose rows are metrics (likewise)
    metrics_primary: Optional[str]  # what the spec calls the primary metric (likewise)
    epoch_first: Optional[int]  # how its earlier attempts number epochs, as `model.progress.Progress` (likewise)
    epoch_steps: Optional[int]
    epoch_anew: Optional[bool]
    pattern_engine: Optional[str]  # directory on this node with the package re2; None: no pattern, or unknown
    artifacts: List[str]
    artifact_store: str  # <blob root>/artifacts/<job>
    pickle_models: bool  # whether the job's project allows to keep a pickle as a model
    environment_store: str  # directory of environment records (`agent.environment`), shared by all agents of the node
    params: Dict[str, object]
    data: List[DataLaunch]  # (missing in launches of older versions)
    roles: List[RoleLaunch]  # of node 0; empty on other nodes
    requirements: Optional[Requirements]
    memory_bytes: Optional[int]
    cgroup: Optional[str]  # cgroup v2 directory of this attempt with its memory limit; None: the agent checks the memory
    contained: List[str]  # cgroups for all processes of this attempt (`wire.cgroups`); empty: not available
    address: str  # this node's address, for the rendezvous
    address_shared: bool  # the whole gang is on this machine: use loopback for the rendezvous
    server_socket: Optional[str]  # Unix socket of the api
    server_url: Optional[str]  # or its address
    server_authority: Optional[str]  # the certificate in PEM that proves it; None: the node's own certificates do (likewise)
    credential: str  # valid only for the agent of this attempt
    log_max_bytes: int
    points: str  # file for the metric points that the server has not acknowledged (`agent.transport.points`)
    run: Optional[RunIdentity]  # None: the job names its own tracking server, and the agent does not listen for `mlflow`
    grace_s: float
    apart: bool  # this node shares no disk with the server, so `remote` is true, too (missing in launches of older versions)
    remote: bool  # remote store: the paths above are in this node's cache (`agent.transport.remote_store`)
