"""Settings of the local engine, and the facts about the machine that a launch needs."""

from collections.abc import Callable
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
    """Options of `tm up`. With `nodes` or `gpus_per_node` the nodes are virtual: declared, and sharing this machine."""

    nodes: int | None = None  # 0: none is declared
    gpus_per_node: int | None = None  # stand-in devices of each virtual node
    cpus_per_node: float | None = None  # of each virtual node; default: all CPUs of the machine
    gpu_kind: str = "stand-in"  # kind of the stand-in devices; kinds separated by commas are assigned to nodes in turn
    log_max_bytes: int = names.LOG_MAX_BYTES
    grace_s: float = names.GRACE_S
    environments_max_bytes: int = 20 * 1024**3  # of virtual environments from requirements files
    blob_root: str | None = None  # directory of the store, or of its local cache; from `server.toml`
    remote_store: bool = False  # likewise
    run_server: Callable[[int], str] | None = None  # `compose.run_server`; None: runs have the home's path in their ids
    pickle_projects: tuple[str, ...] = ()  # projects whose models may be pickles; from `server.toml`
    declared: NodeSettings = field(default_factory=NodeSettings)  # resources that cannot be measured; from `server.toml`

    @classmethod
    def of(cls, settings: dict[str, Any]) -> "LocalSettings":
        """The engine's part of the server's settings. Raises: ValueError for a value of a wrong type."""
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
    """Everything besides the submission that a launch depends on, so that rendering is a pure function."""

    home: Home
    settings: LocalSettings = LocalSettings()
    basics: dict[str, str] = field(default_factory=dict)  # HOME USER SHELL TMPDIR of the server's user
    home_id: str = ""  # `Home.identity`
    real_devices: bool = False  # the machine has GPUs, which are hidden from jobs that did not request any
    sdk: str | None = None  # directory with the SDK, for a job whose Python has no Trainmaster

    @property
    def blobs(self) -> Path:
        """The directory in which agents read and write checkpoints, artifacts and code copies."""
        return Path(self.settings.blob_root) if self.settings.blob_root is not None else self.home.blobs
