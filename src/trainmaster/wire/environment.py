"""What an attempt's ranks ran in, on one node: recorded once under the SHA-256 of its canonical JSON, named by events."""

import hashlib
import json
from typing import Dict, List, Optional, TypedDict


class Interpreter(TypedDict):
    """The Python that the command names, else the one on its PATH."""

    path: str
    version: str  # "3.11.9"; "3.11" where only that much can be read


class Torch(TypedDict):
    """What the installed torch was built for."""

    version: str
    cuda: Optional[str]
    hip: Optional[str]


class Accelerator(TypedDict):
    """One device of the machine."""

    index: int
    name: str
    uuid: str


class Machine(TypedDict):
    """One node."""

    host: str
    system: str  # "Debian GNU/Linux 12 (bookworm)"
    kernel: str
    architecture: str
    libc: Optional[str]
    cpu: str  # its model
    cpus: int
    memory_bytes: int
    driver: Optional[str]  # of the accelerators
    driver_cuda: Optional[str]  # the newest CUDA that the driver can serve
    devices: List[Accelerator]


class EnvironmentRecord(TypedDict):
    """The whole record."""

    python: Optional[Interpreter]  # None: no Python was found
    packages: Dict[str, str]  # normalized name -> version
    editable: List[str]  # those of `packages` whose code lies elsewhere and may change without the version
    torch: Optional[Torch]
    machine: Machine


def encoded(record: EnvironmentRecord) -> bytes:
    """Canonical JSON."""
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


def digest(data: bytes) -> str:
    """The name of an encoded record."""
    return hashlib.sha256(data).hexdigest()
