"""Names a file of metrics that the program writes, if no metric was read of the program: some print nothing into a pipe."""

from __future__ import annotations

import os
import shlex
import time
from itertools import islice

from trainmaster.agent.files.glob_names import literal
from trainmaster.agent.files.new_files import new_files, pattern_of
from trainmaster.agent.metric_files.event_file import MARK, is_event_file
from trainmaster.agent.metric_files.reader import metric_file
from trainmaster.agent.metric_files.rows import ENDINGS, named_by
from trainmaster.agent.metrics.pairs import head
from trainmaster.agent.metrics.vocabulary import measured
from trainmaster.wire.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

_TIME_MAX_S = 1.0
_OPENED_MAX = 20  # files, the newest
_BYTES_MAX = 64 << 20  # a larger file is not opened
_ROWS = 20  # of a file, in which a measured value is looked for
_NAMED_MAX, _NAME_MAX = 4, 60  # metrics named, characters of a name


def advice(work: str, since_s: float) -> str:
    """What to write to have a file below `work` read; "" if none has metrics.

    Only of files written at `since_s` (seconds since the epoch) or later.
    """
    until_s = time.monotonic() + _TIME_MAX_S
    files = new_files(work, int(since_s * 1e9), until_s)
    found = [(at_ns, path) for path, at_ns in files if path.endswith(ENDINGS) or is_event_file(path)]
    for _, path in sorted(found, reverse=True)[:_OPENED_MAX]:
        if time.monotonic() > until_s:
            break
        names = list(dict.fromkeys(_measured(os.path.join(work, path))))
        if names:
            several = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
            unread = "no metric was read from what it printed in its first half minute"  # a bar of rich is printed at the end
            told = f"{unread}, but {printable(path)} has {', '.join(names[:_NAMED_MAX])}{several}"
            pattern = pattern_for(path)
            if names == [named_by(path)]:  # each metric has a file, in `train` or `eval` perhaps
                directory, part = os.path.split(os.path.dirname(pattern))
                part = "*" if part == "train" or head(f"{part}:") else part
                pattern = os.path.join(directory, part, f"*{os.path.splitext(path)[1]}")
            return f"{told}; these are read with --metrics-file {shlex.quote(printable(pattern))}"
    return ""


def pattern_for(path: str) -> str:
    """A pattern for this file and those that other starts write. TensorBoard's are in directories of any name and depth."""
    if not is_event_file(path):
        return pattern_of(path)
    top = literal(path.split("/")[0])
    return f"{top}/**/*{MARK}*" if "/" in path else f"*{MARK}*"


def _measured(path: str) -> Iterator[str]:
    """The measured values in the first rows that have a step or an epoch."""
    try:
        if os.path.getsize(path) > _BYTES_MAX:
            return
        for step, values in islice(metric_file(path).news(), _ROWS):
            if step is not None:
                yield from (name for name in values if len(name) <= _NAME_MAX and name.isprintable() and measured(name))
    except (OSError, ValueError):
        return  # gone, or no such file
