"""What a person may say of the local engine, and what it must know of the machine to write a launch."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from trainmaster.configuration import NodeSettings
from trainmaster.home import Home
from trainmaster.wire import names

_KINDS: dict[str, tuple[type, ...]] = {
    "nodes": (int,),
    "gpus_per_node": (int,),
    "cpus_per_node": (int, float),
    "gpu_kind": (str,),
    "log_max_bytes": (int,),
    "grace_s": (int, float),
    "environments_max_bytes": (int,),
}


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """`tm up`'s options. With `nodes` or `gpus_per_node` the nodes are virtual: declared, sharing this machine."""

    nodes: int | None = None  # 0: none are declared
    gpus_per_node: int | None = None  # stand-in devices of each virtual node
    cpus_per_node: float | None = None  # default: the machine's, for each virtual node
    gpu_kind: str = "stand-in"  # kind of the stand-in devices; of several, after commas, each node in turn has one
    log_max_bytes: int = names.LOG_MAX_BYTES
    grace_s: float = names.GRACE_S
    environments_max_bytes: int = 20 * 1024**3  # of virtual environments made of requirements
    blob_root: str | None = None  # where the store is a directory, or its cache on this machine; from `server.toml`
    remote_store: bool = False  # likewise
    server: str = ""  # which server this is, for the ids of runs; empty: the one of its home's path
    pickle_projects: tuple[str, ...] = ()  # whose models may be pickles; from `server.toml`
    declared: NodeSettings = field(default_factory=NodeSettings)  # what cannot be measured; from `server.toml`

    @classmethod
    def of(cls, settings: dict[str, Any]) -> "LocalSettings":
        """Those of the server's settings that are the engine's. Raises: ValueError for a value of another kind."""
        given = {f.name: settings[f.name] for f in fields(cls) if f.name in settings and f.name in _KINDS}
        for name, value in given.items():
            kinds = _KINDS[name]
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise ValueError(f"{name} is {value!r}, not {'a text' if kinds == (str,) else 'a number'}")
        return cls(**given)

    @property
    def virtual(self) -> bool:
        """Whether the nodes are declared rather than found."""
        return bool(self.nodes) or self.gpus_per_node is not None


@dataclass(frozen=True, slots=True)
class Site:
    """Everything a launch depends on besides the submission, so that rendering is a function."""

    home: Home
    settings: LocalSettings = LocalSettings()
    basics: dict[str, str] = field(default_factory=dict)  # HOME USER SHELL TMPDIR of the server's user
    home_id: str = ""  # `Home.identity`
    real_devices: bool = False  # the machine has accelerators: a job that asked for none is shown none

    @property
    def blobs(self) -> Path:
        """Where agents find and leave checkpoints, artifacts and code copies."""
        return Path(self.settings.blob_root) if self.settings.blob_root is not None else self.home.blobs
