"""TensorBoard as a tracker: event files, one directory per job, written without TensorFlow.

`tensorboard --logdir DIRECTORY` shows them while they grow. Params and tags are a text summary in a separate file.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from trainmaster.ports.tracker import Begun, Run, RunPoint
from trainmaster.tracking.run_directories import RunDirectories, grow, replace_file

_SCALARS = "events.out.tfevents.0000000001.trainmaster"
_ABOUT = "events.out.tfevents.0000000000.trainmaster.about"


class TensorboardTracker:
    """`trainmaster.ports.tracker.Tracker`; a run's mark is the length of its event file."""

    def __init__(self, directory: Path) -> None:
        self._runs = RunDirectories(directory)

    def begin(self, run: Run) -> Begun:
        """See the port. A file without stored state is written again."""
        path = str(self._runs.begin(run))
        return Begun(path, path)

    def tell(self, ref: str, run: Run, before: Run | None) -> None:
        """See the port."""
        wall_s = run.started_s or run.created_s
        about = [("status", run.status.value), ("params", _table(run.params)), ("tags", _table(run.tags))]
        events = [_first(wall_s), *(_text(name, text, wall_s) for name, text in about if text)]
        replace_file(self._runs.open(ref) / _ABOUT, _records(events))

    def log(self, ref: str, points: Sequence[RunPoint], mark: str) -> str:
        """See the port."""
        head = _records([_first(points[0].time_s if points else 0.0)])
        values = ((p, Summary(value=[Summary.Value(tag=p.name, simple_value=p.value)])) for p in points)
        data = _records([Event(wall_time=p.time_s, step=p.step, summary=value) for p, value in values])
        return grow(self._runs.open(ref) / _SCALARS, mark, data, head)

    def named(self, metric: str) -> str:
        """See the port."""
        return metric

    def keep(self, ref: str, path: str, source: Path) -> None:
        """See the port. TensorBoard does not show artifacts; they are stored in the run's directory."""
        self._runs.keep(ref, path, source)

    def settle(self, ref: str, run: Run, mark: str) -> None:
        """See the port. Nothing is left to write."""
        self._runs.open(ref)

    def holds(self, ref: str) -> bool:
        """See the port."""
        return self._runs.holds(ref)

    def close(self) -> None:
        """See the port."""


def _first(wall_s: float) -> Event:
    return Event(wall_time=wall_s, file_version="brain.Event:2")


def _text(tag: str, text: str, wall_s: float) -> Event:
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode(errors="replace")], tensor_shape=shape)
    return Event(wall_time=wall_s, step=0, summary=Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)]))


def _table(values: object) -> str:
    if not isinstance(values, dict) or not values:
        return ""
    cells = ((_cell(name), _cell(json.dumps(value, ensure_ascii=False)[1:-1])) for name, value in values.items())
    rows = "\n".join(f"| {name} | {value} |" for name, value in cells)
    return f"| name | value |\n|---|---|\n{rows}"


def _cell(text: str) -> str:
    """A text as a cell of a Markdown table."""
    return text.replace("|", "\\|")


def _records(events: Sequence[Event]) -> bytes:
    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    for event in events:
        writer.write(event.SerializeToString())
    return buffer.getvalue()
