"""Checkpoints and artifacts as the control plane knows them; the bytes and manifests are in the blob store."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Part:
    """What one node contributed. `digest` is the SHA-256 of its MANIFEST.json, which lists every file's digest."""

    node_index: int
    digest: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint (or, in `Job.staged`, one whose parts are not all there yet)."""

    id: str
    step: int | None
    attempt: int
    parts: tuple[Part, ...]
    parts_expected: int = 1
    approximate: bool = False  # the step is the last one printed before it, not one the program named
    committed_s: float = 0.0
    good: bool = True  # False once a restore read it and its digest differed
    doubts: int = 0  # attempts since it was last read that could not read it: it may be whole all the same

    @property
    def bytes(self) -> int:
        """Bytes of all its parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"checkpoint {self.id}" + ("" if self.step is None else f" of step {self.step}")

    @property
    def proven(self) -> bool:
        """Whether a restart may rely on it: neither found corrupt, nor impossible to read the last time."""
        return self.good and not self.doubts


class ArtifactKind(StrEnum):
    """What a kept file is, as its program said or as the agent judged by name and content."""

    FILE = "file"
    METRICS = "metrics"
    PLOT = "plot"
    CONFUSION_MATRIX = "confusion_matrix"
    MODEL = "model"
    PICKLE = "pickle"  # would be a model, but loading it executes what is in it: kept as bytes, refused as a model


@dataclass(frozen=True, slots=True)
class Artifact:
    """A kept file: content-addressed, immutable once the job has ended."""

    path: str
    digest: str
    bytes: int
    attempt: int
    kind: ArtifactKind = ArtifactKind.FILE
