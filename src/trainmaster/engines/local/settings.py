"""What a person may say of the local engine, and what it must know of the machine to write a launch."""

from dataclasses import dataclass, field, fields
from typing import Any

from trainmaster.home import Home
from trainmaster.wire import names

_KINDS: dict[str, tuple[type, ...]] = {
    "nodes": (int,),
    "gpus_per_node": (int,),
    "cpus_per_node": (int, float),
    "gpu_kind": (str,),
    "log_max_bytes": (int,),
    "grace_s": (int, float),
}


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """`tm up`'s options. With `nodes` or `gpus_per_node` the nodes are virtual: declared, sharing this machine."""

    nodes: int | None = None  # 0: none are declared
    gpus_per_node: int | None = None  # stand-in devices of each virtual node
    cpus_per_node: float | None = None  # default: the machine's, for each virtual node
    gpu_kind: str = "stand-in"  # kind of the stand-in devices
    log_max_bytes: int = names.LOG_MAX_BYTES
    grace_s: float = names.GRACE_S

    @classmethod
    def of(cls, settings: dict[str, Any]) -> "LocalSettings":
        """Those of the server's settings that are the engine's. Raises: ValueError for a value of another kind."""
        given = {f.name: settings[f.name] for f in fields(cls) if f.name in settings}
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
    real_devices: bool = False  # the machine has accelerators: a job that asked for none is shown none
