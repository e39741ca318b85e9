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


class Launch(TypedDict):
    """One agent's orders. Paths are absolute; durations in seconds; sizes in bytes."""

    key: str
    job: str
    attempt: int
    node_index: int
    nodes: int  # of the gang
    ranks: int  # on this node
    command: List[str]  # argv; a shell line is already ["bash", "-o", "pipefail", "-c", line]
    shell: bool  # exit 128+n of the command counts as signal n; resume arguments are appended to the line
    environment: Dict[str, str]  # of every rank, before torchrun's and our own variables
    devices: Optional[List[int]]  # CUDA_VISIBLE_DEVICES; None leaves it unset, [] hides all
    work: str  # the job's work directory on this node
    in_place: bool  # `work` is the person's own directory: nothing is laid out or set aside in it
    fresh: bool  # an older attempt may still be alive on this node: lay out anew
    code: Optional[CodeLayout]
    checkpoint_path: Optional[str]
    resume_arguments: Optional[str]
    checkpoint_store: str  # <blob root>/checkpoints/<job>
    resume: List[ResumePoint]
    metrics_pattern: Optional[str]
    artifacts: List[str]
    artifact_store: str  # <blob root>/artifacts/<job>
    params: Dict[str, object]
    memory_bytes: Optional[int]
    cgroup: Optional[str]  # cgroup v2 directory made for this attempt, limit set; None: the agent watches
    address: str  # this node's address, for the rendezvous
    address_shared: bool  # the whole gang is on this machine: meet on loopback
    server_socket: Optional[str]  # Unix socket of the api
    server_url: Optional[str]  # or its address
    credential: str  # of this attempt's agent alone
    log_max_bytes: int
    grace_s: float
