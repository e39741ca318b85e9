"""Projections with tables of their own: artifacts, notes, lineage, labels, and the cluster rules.

They are not part of the job, so that an event of a job with ten thousand files costs no more than one without any. They are
written in the transaction of their events, by `write_record` and nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Float, Select, bindparam, cast, delete, func, insert, select

from trainmaster.model import redaction
from trainmaster.model.checkpoints import Artifact, ArtifactKind
from trainmaster.model.cluster import Cluster
from trainmaster.model.events import ArtifactKept, ClusterConfigured, Noted, Submitted, Updated
from trainmaster.model.job import Job
from trainmaster.ports.store import ArtifactTotals, NewEvent, Note, NoteQuery
from trainmaster.store import schema
from trainmaster.store.codec import dump, load, load_event
from trainmaster.store.database import Database, upsert

_artifact, _note, _child, _label, _event = schema.artifact, schema.note, schema.child, schema.label, schema.event
_UPSERT_ARTIFACT = upsert(_artifact, ["job", "path"])
_UPSERT_RULES = upsert(schema.rules, ["id"])
_UNLABEL = delete(_label).where(_label.c.seq == bindparam("job_seq"))
_BYTES_MAX = 2**63 - 1
OWNER, TAG = "owner", "tag:"  # names of labels


class RecordReader:
    """Reads these projections: part of `trainmaster.ports.store.EventStore`."""

    _database: Database

    def artifacts(self, job_id: str, limit: int, after: str = "", kind: ArtifactKind | None = None) -> list[Artifact]:
        """See the port."""
        query = select(_artifact.c.data).where(_artifact.c.job == job_id, _artifact.c.path > after)
        if kind is not None:
            query = query.where(_artifact.c.kind == kind.value)
        with self._database.reading() as connection:
            found = connection.scalars(query.order_by(_artifact.c.path).limit(limit)).all()
        return [load(Artifact, data) for data in found]

    def artifact(self, job_id: str, path: str) -> Artifact | None:
        """See the port."""
        query = select(_artifact.c.data).where(_artifact.c.job == job_id, _artifact.c.path == path)
        with self._database.reading() as connection:
            data = connection.scalar(query)
        return None if data is None else load(Artifact, data)

    def artifact_totals(self, job_id: str) -> ArtifactTotals:
        """See the port. Linear in the artifacts of the job."""
        size = func.coalesce(func.sum(cast(_artifact.c.bytes, Float)), 0.0)  # an integer sum can overflow
        query = select(func.count(), size).where(_artifact.c.job == job_id)
        with self._database.reading() as connection:
            files, total = connection.execute(query).one()
        return ArtifactTotals(files, int(min(total, _BYTES_MAX)))

    def rival_artifacts(self, job_id: str, attempt: int, limit: int) -> list[str]:
        """See the port. Linear in the events of the job."""
        stored = (_event.c.job == job_id) & (_event.c.type == ArtifactKept.__name__) & (_event.c.attempt == attempt)
        query = select(_event.c.type, _event.c.data).where(stored).order_by(_event.c.seq.desc()).limit(limit)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        newest: dict[str, dict[int, str]] = {}  # path -> node -> digest of its last file
        for kept in (load_event(*row) for row in rows):
            if isinstance(kept, ArtifactKept):
                newest.setdefault(kept.artifact.path, {}).setdefault(kept.node_index, kept.artifact.digest)
        return sorted(path for path, digests in newest.items() if len(set(digests.values())) > 1)

    def children(self, job_id: str) -> list[str]:
        """See the port."""
        query = select(_child.c.job).where(_child.c.parent == job_id).order_by(_child.c.seq)
        with self._database.reading() as connection:
            return list(connection.scalars(query))

    def labels(self, job: Job) -> list[tuple[str, str]]:
        """The labels that this job is found by, as (name, value) in order."""
        query = select(_label.c.name, _label.c.value).where(_label.c.seq == job.seq).order_by(_label.c.name)
        with self._database.reading() as connection:
            return [(name, value) for name, value in connection.execute(query)]

    def notes(self, query: NoteQuery) -> list[Note]:
        """See the port."""
        with self._database.reading() as connection:
            rows = connection.execute(_newest(query)).all()
        return [Note(seq, job, load(Noted, data)) for seq, job, data in reversed(rows)]

    def rules(self) -> Cluster:
        """See the port."""
        with self._database.reading() as connection:
            return read_rules(connection)


def read_rules(connection: Connection) -> Cluster:
    """The cluster rules."""
    data = connection.scalar(select(schema.rules.c.data).where(schema.rules.c.id == 1))
    return Cluster() if data is None else load(Cluster, data)


def write_record(connection: Connection, events: Iterable[tuple[int, NewEvent]]) -> None:
    """Write the rows for events, given with their sequence numbers, in order."""
    artifacts: list[dict[str, object]] = []
    notes: list[dict[str, object]] = []
    children: list[dict[str, object]] = []
    rules: list[dict[str, object]] = []
    for seq, new in events:
        if isinstance(new.event, ArtifactKept) and new.job is not None:
            artifacts.append(_artifact_row(new.job, new.event.artifact))
        elif isinstance(new.event, Noted):
            notes.append(_note_row(seq, new.job, new.event))
        elif isinstance(new.event, Submitted) and new.event.lineage is not None:
            children.append({"job": new.job, "parent": new.event.lineage.job, "seq": seq})
        elif isinstance(new.event, ClusterConfigured):
            rules = [{"id": 1, "data": dump(new.event.cluster)}]
    kinds = ((_UPSERT_ARTIFACT, artifacts), (insert(_note), notes), (insert(_child), children), (_UPSERT_RULES, rules))
    for statement, rows in kinds:
        if rows:
            connection.execute(statement, rows)


def write_labels(connection: Connection, events: Sequence[NewEvent], jobs: Mapping[str, Job]) -> None:
    """Write the labels of jobs that are new or whose tags were changed. `jobs`: their values after all events."""
    told = [(str(new.job), new.event) for new in events if isinstance(new.event, Submitted | Updated)]
    changed = {id: isinstance(event, Updated) for id, event in told}
    found = [(jobs[id], again) for id, again in changed.items() if id in jobs]
    if again := [{"job_seq": job.seq} for job, again in found if again]:
        connection.execute(_UNLABEL, again)
    if rows := [{"name": name, "value": value, "seq": job.seq} for job, _ in found for name, value in labels_of(job)]:
        connection.execute(insert(_label), rows)


def labels_of(job: Job) -> list[tuple[str, str]]:
    """What a job is found by besides its columns: its owner, and its tags as they are shown. In order of their names."""
    tags = redaction.values(job.spec.tags)
    return sorted([(OWNER, storable(job.owner)), *((storable(TAG + name), storable(value)) for name, value in tags.items())])


def storable(text: str) -> str:
    """Text that a column can hold: lone surrogates become `?`, as they do in `data`."""
    return text.encode("utf-8", "replace").decode()


def _artifact_row(job: str, kept: Artifact) -> dict[str, object]:
    return {
        "job": job,
        "path": storable(kept.path),
        "kind": kept.kind.value,
        "bytes": min(max(kept.bytes, 0), _BYTES_MAX),
        "data": dump(kept),
    }


def _note_row(seq: int, job: str | None, noted: Noted) -> dict[str, object]:
    experiment = None if noted.experiment is None else storable(noted.experiment)
    return {"seq": seq, "job": job, "project": storable(noted.project), "experiment": experiment, "data": dump(noted)}


def _newest(query: NoteQuery) -> Select[Any]:
    wanted: Sequence[Any] = [
        column == value
        for column, value in (
            (_note.c.job, query.job),
            (_note.c.project, query.project),
            (_note.c.experiment, query.experiment),
        )
        if value is not None
    ]
    if query.before_seq is not None:
        wanted = [*wanted, _note.c.seq < query.before_seq]
    return select(_note.c.seq, _note.c.job, _note.c.data).where(*wanted).order_by(_note.c.seq.desc()).limit(query.limit)
