"""Checkpoints and artifacts as the control plane knows them. Their bytes and manifests are in the blob store."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainmaster.model.progress import Progress


@dataclass(frozen=True, slots=True)
class Part:
    """One node's part. `digest` is the SHA-256 of its MANIFEST.json, which lists the digest of every file."""

    node_index: int
    digest: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SavedAfter:
    """When a checkpoint of unknown step was saved: seconds since the ranks of this attempt started."""

    attempt: int
    after_s: float


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint, or an incomplete one (in `Job.staged`)."""

    id: str
    step: int | None
    attempt: int
    parts: tuple[Part, ...]
    parts_expected: int = 1
    approximate: bool = False  # the step is the last one printed before the save; the program did not name one
    committed_s: float = 0.0
    good: bool = True  # False once a restore found a different digest
    at_least: int | None = None  # if the step is unknown: the step that its attempt was given
    after_s: float | None = None  # if the step is unknown: when it was saved, in seconds since the ranks of its attempt started
    progress: Progress | None = None  # what the program had shown when its first part was stored
    name: str = ""  # its path in the work directory; "" for one of the SDK
    doubts: int = 0  # attempts that could not read it since the last successful read; it may still be intact

    @property
    def bytes(self) -> int:
        """Total size of its parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"checkpoint {self.id}" + (f" of {self.place}" if self.place else "")

    @property
    def place(self) -> str:
        """`step 12`, or `about step 12` for an approximate one; "" if no step is known."""
        return "" if self.step is None else f"{'about ' if self.approximate else ''}step {self.step}"

    @property
    def proven(self) -> bool:
        """Whether a restart may rely on it: not corrupt, and readable at the last try."""
        return self.good and not self.doubts


def likeliest(found: Sequence[Checkpoint]) -> Checkpoint:
    """Which of these of one step is meant: a good one, with an exact step, not a copy of the best; of several the newest."""
    return max(reversed(found), key=lambda one: (one.good, not one.approximate, "best" not in one.name.lower()))


class ArtifactKind(StrEnum):
    """Kind of a kept file: named by the program, or detected by the agent from name and content."""

    FILE = "file"
    METRICS = "metrics"
    PLOT = "plot"
    CONFUSION_MATRIX = "confusion_matrix"
    MODEL = "model"
    PICKLE = "pickle"  # loading it as a model would execute code from it: kept as a file, never served as a model


@dataclass(frozen=True, slots=True)
class Artifact:
    """A kept file: content-addressed, immutable once the job has ended."""

    path: str
    digest: str
    bytes: int
    attempt: int
    kind: ArtifactKind = ArtifactKind.FILE
