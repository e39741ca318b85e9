"""The rank's own file to the agent (one JSON line per message) and the agent's flags to the rank.

A line is one `write` to a descriptor opened for appending, so that forked children and threads never mix theirs.
"""

import os
import warnings
from json import dumps
from typing import Any, Dict, Optional, Union

from trainmaster.wire.names import ARTIFACT_KINDS, ENV_RESUME_STEP, ENV_SDK, FLAG_CHECKPOINT, FLAG_STOP, SDK_FLAGS

_UNOPENED = -2  # not tried yet
_CLOSED = -1  # no job, or the file cannot be opened
_RETRY_EVERY = 256  # asks between two tries to open the flags


class _Channel:
    """The descriptors of one process, opened at the first use."""

    def __init__(self) -> None:
        self.line = _UNOPENED
        self.flags = _UNOPENED
        self.dropped = 0
        self.torn = False  # the last line was cut short: the next one begins anew
        self.step: Optional[int] = None  # of the last report
        self.counts = False  # reports name no step and are counted
        self.seen = b""  # the checkpoint flag last answered
        self.asks = 0

    def send(self, message: Dict[str, Any]) -> bool:
        """Append one line; False, and counted, if it could not be written whole."""
        if self.line == _UNOPENED:
            self.line = _open(os.environ.get(ENV_SDK), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        if self.line == _CLOSED:
            if os.environ.get(ENV_SDK):
                self.dropped += 1
            return False
        data = dumps(message, separators=(",", ":")).encode() + b"\n"
        if self.torn:
            data = b"\n" + data
        try:
            written = os.write(self.line, data)
        except OSError:
            self.dropped += 1
            return False
        self.torn = written < len(data)
        self.dropped += self.torn
        return not self.torn

    def flag(self, offset: int) -> bytes:
        """One byte of the agent's flags; empty outside a job."""
        if self.flags < 0:
            path = os.environ.get(ENV_SDK)
            self.asks += 1
            if path and (self.flags == _UNOPENED or self.asks % _RETRY_EVERY == 0):
                self.flags = _open(os.path.join(os.path.dirname(path), SDK_FLAGS), os.O_RDONLY)
        if self.flags < 0:
            return b""
        try:
            return os.pread(self.flags, 1, offset)
        except OSError:
            return b""


CHANNEL = _Channel()


def _open(path: Optional[str], flags: int) -> int:
    if not path:
        return _CLOSED
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)
    except OSError:
        return _CLOSED


def report(step: Optional[int] = None, **values: Any) -> None:
    """Tell metric values at a step. Without `step` each call is one step further than the one before.

    After a restart that counting goes on from the step of the checkpoint put back. That is right where there is one call
    for each of the steps that checkpoints are named by; where there are fewer (one in ten steps, one an epoch), give the
    step: the curve would leap to it otherwise.

    A value is a number or anything with one (`float()` of it works: a tensor of one element; one on a device is waited
    for). Raises: TypeError if it is not.
    """
    channel = CHANNEL
    numbers = {}
    for name, value in values.items():
        if type(value) is not float:
            value = _number(name, value)
        numbers[name] = value
    if step is None:
        if channel.step is None:
            channel.step = _first_step()
        step, channel.counts = channel.step + 1, True
    elif type(step) is not int:
        step = int(step)
    channel.step = step
    channel.send({"t": "m", "step": step, "values": numbers})


def _number(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"report({name}={value!r}): a metric is a number")
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"report({name}=…): a metric is one number, not {type(value).__name__}: {error}") from error


def _first_step() -> int:
    """Where counting begins: after a restart, at the step of the checkpoint put back."""
    try:
        return int(os.environ.get(ENV_RESUME_STEP, "0"))
    except ValueError:
        return 0


def artifact(path: "Union[str, os.PathLike[str]]", kind: Optional[str] = None, name: Optional[str] = None) -> None:
    """Keep a file as it is now or a little later: do not change it afterwards.

    `kind`: "file", "metrics", "plot", "confusion_matrix" or "model"; by default judged by name and content. A model that
    is a pickle is kept as a file alone, unless the project allows it. `name`: under which it is kept; by default its path
    from the current directory, or its file name if it lies elsewhere. A file that is not there and a kind that is none
    are warned about, not raised: a missing plot shall not end a training.
    """
    if kind is not None and kind not in ARTIFACT_KINDS:
        known = ", ".join(ARTIFACT_KINDS)
        warnings.warn(f"sdk.artifact: {kind!r} is none of {known}: it is judged by name and content", stacklevel=2)
        kind = None
    place = os.path.abspath(os.fspath(path))
    if not os.path.isfile(place):
        warnings.warn(f"sdk.artifact: there is no file {place}", stacklevel=2)
        return
    if name is None:
        name = os.path.relpath(place)
        if name.startswith(os.pardir):
            name = os.path.basename(place)
    message = {"t": "a", "path": place, "name": name}
    CHANNEL.send(message if kind is None else {**message, "kind": kind})


def should_checkpoint() -> bool:
    """Whether a checkpoint is asked for now: true once for each time it is asked.

    Each rank is told for itself, perhaps a step apart: where all must save together, let rank 0 ask and tell the others.
    """
    channel = CHANNEL
    now = channel.flag(FLAG_CHECKPOINT)
    if not now:
        return False
    before = channel.seen or (now if now == b"0" else b"\0")  # asked before the first look counts as asked
    channel.seen = now
    return now != before


def should_stop() -> bool:
    """Whether the program should save and end: it will be ended anyway when its grace is over."""
    return CHANNEL.flag(FLAG_STOP) == b"1"


def dropped() -> int:
    """How many messages of this process were lost (a full disk, a channel that could not be opened)."""
    return CHANNEL.dropped
