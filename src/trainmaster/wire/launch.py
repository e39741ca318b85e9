"""What an engine hands to an agent: the whole of `launch.json`, complete, with nothing left to look up."""

from typing import Dict, List, Optional, TypedDict


class ResumePoint(TypedDict):
    """One checkpoint an agent may put back; they are tried in the order given."""

    id: str
    step: Optional[int]
    approximate: bool
    root: str  # directory of this checkpoint in the store; parts lie in root/n<i>/ with their MANIFEST.json
    digests: Dict[str, str]  # "n<i>" -> SHA-256 of that part's MANIFEST.json


class CodeLayout(TypedDict):
    """Where the code copy is: a tree file (`wire.code.Tree` as JSON) and the objects it names."""

    tree: str  # path of the tree file
    objects: str  # directory: objects/<2 hex>/<62 hex> by SHA-256
    source: str  # the submitter's directory, which links point into


class RunIdentity(TypedDict):
    """The job's one run as a script's own `mlflow` sees it, with what earlier attempts logged into it."""

    id: str  # `wire.runs.run_id`
    experiment_id: str
    experiment: str
    name: str
    params: Dict[str, str]
    tags: Dict[str, str]


class RoleLaunch(TypedDict):
    """A program that runs beside the ranks of node 0 and ends with them."""

    name: str
    command: List[str]  # as Launch.command
    shell: bool
    devices: Optional[List[int]]  # as Launch.devices, of this role alone


class Requirements(TypedDict):
    """The virtual environment that ranks and roles are to run in; built where it is not there yet."""

    file: str  # as pip reads it, relative to `work` or absolute
    python: Optional[str]  # the interpreter it is made of: a path, or a name on the PATH; None: `python3`, else `python`
    root: str  # directory of all such environments of this node
    max_bytes: int  # of all of them, beyond which those not used for longest are removed


class Launch(TypedDict):
    """One agent's orders. Paths are absolute; durations in seconds; sizes in bytes."""

    key: str
    home: str  # the id of the home that this launch is of; empty where it has none
    job: str
    attempt: int
    node_index: int
    nodes: int  # of the gang
    ranks: int  # on this node
    distributed: bool  # the spec asks for a gang: set torchrun's variables, as all launches of earlier versions do
    command: List[str]  # argv; a shell line is already ["bash", "-o", "pipefail", "-c", line]
    shell: bool  # exit 128+n of the command counts as signal n; resume arguments are appended to the line
    environment: Dict[str, str]  # of every rank, before torchrun's and our own variables
    devices: Optional[List[int]]  # CUDA_VISIBLE_DEVICES; None leaves it unset, [] hides all
    work: str  # the job's work directory on this node
    in_place: bool  # `work` is the person's own directory: nothing is laid out or set aside in it
    fresh: bool  # an older attempt may still be alive on this node: lay out anew
    code: Optional[CodeLayout]
    checkpoint_path: Optional[str]
    checkpoint_interval_s: Optional[float]  # how often the SDK is told to save; None: only when somebody asks
    resume_arguments: Optional[str]
    checkpoint_store: str  # <blob root>/checkpoints/<job>
    resume: List[ResumePoint]
    forked: bool  # one of `resume` is another job's, and without any of them there is nothing to start from
    metrics_pattern: Optional[str]
    pattern_engine: Optional[str]  # directory on this node that holds the package re2; None: no pattern, or not known
    artifacts: List[str]
    artifact_store: str  # <blob root>/artifacts/<job>
    pickle_models: bool  # whether the job's project allows a pickle to be kept as a model
    environment_store: str  # directory of the records that `agent.environment` keeps, shared by all agents of the node
    params: Dict[str, object]
    roles: List[RoleLaunch]  # of node 0; empty on the others
    requirements: Optional[Requirements]
    memory_bytes: Optional[int]
    cgroup: Optional[str]  # cgroup v2 directory made for this attempt, memory limit set; None: the agent watches
    contained: List[str]  # cgroups that everything started for this attempt enters (`wire.cgroups`); empty: none can be had
    address: str  # this node's address, for the rendezvous
    address_shared: bool  # the whole gang is on this machine: meet on loopback
    server_socket: Optional[str]  # Unix socket of the api
    server_url: Optional[str]  # or its address
    credential: str  # of this attempt's agent alone
    log_max_bytes: int
    points: str  # file for the metric points that the server has not acknowledged (`agent.points`)
    run: Optional[RunIdentity]  # None: the job names a tracker of its own, and no door is opened for `mlflow`
    grace_s: float
    remote: bool  # the store is no directory: the paths above lie in this node's cache, bytes move as `agent.remote` says
