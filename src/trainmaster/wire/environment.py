"""The environment of an attempt's ranks on one node: stored once under the SHA-256 of its canonical JSON, named by events."""

import hashlib
import json
from typing import Dict, List, Optional, TypedDict

UNNAMED = "unknown"  # the name of a device that its driver does not tell


class _Found(TypedDict):
    path: str
    version: str  # "3.11.9"; "3.11" if the rest is unknown


class Interpreter(_Found, total=False):
    """The Python of the command, else the one on its PATH."""

    certain: bool  # the command surely starts it and no other one (missing in records of older versions)


class Torch(TypedDict):
    """Build variant of the installed torch."""

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
    driver_cuda: Optional[str]  # the newest CUDA that the driver supports
    devices: List[Accelerator]


class _Environment(TypedDict):
    python: Optional[Interpreter]  # None: no Python was found
    packages: Dict[str, str]  # normalized name -> version
    editable: List[str]  # those of `packages` whose code is elsewhere and may change without the version
    torch: Optional[Torch]
    machine: Machine


class EnvironmentRecord(_Environment, total=False):
    """The whole record."""

    built_from: Dict[str, str]  # those of `packages` that no index has -> what identifies their code (missing in older records)
    unread: List[str]  # what could not be read, if anything, the first few: packages may be missing (likewise)
    unnamed: List[str]  # directories on its path with code of no package, if there are any (missing in older records)


def encoded(record: EnvironmentRecord) -> bytes:
    """Canonical JSON."""
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


def digest(data: bytes) -> str:
    """The name of an encoded record."""
    return hashlib.sha256(data).hexdigest()
