"""The channel between a rank and its agent: a file of messages (one JSON line each) and a file of flags from the agent.

Each line is one `write` to a descriptor in append mode, so lines of forked children and threads never mix.
"""

import os
import warnings
from contextlib import suppress
from json import dumps
from typing import Any, Dict, Mapping, Optional, Set, Union

from trainmaster.wire.names import ARTIFACT_KINDS, ENV_RESUME_STEP, ENV_SDK, FLAG_CHECKPOINT, FLAG_LOST, FLAG_STOP, SDK_FLAGS

_RETRY_EVERY = 256  # calls between two tries to open the flags
_VALUES_MAX = 4000  # per line: the agent ignores lines over 4 MiB


class _Opened:
    """An open file of the agent.

    A program may close its descriptor, like daemons that close all descriptors, and reuse the number for another file. So
    the descriptor is checked before each use.
    """

    __slots__ = ("_device", "_inode", "descriptor")

    def __init__(self, path: str, flags: int) -> None:
        """Raises: OSError."""
        self.descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        status = os.fstat(self.descriptor)
        self._device, self._inode = status.st_dev, status.st_ino

    def ours(self) -> bool:
        """Whether the descriptor still refers to the opened file."""
        try:
            status = os.fstat(self.descriptor)
        except OSError:
            return False
        return status.st_ino == self._inode and status.st_dev == self._device


class _Channel:
    """The open files of one process, opened at first use."""

    def __init__(self) -> None:
        self.line: Optional[_Opened] = None
        self.flags: Optional[_Opened] = None
        self.dropped = 0
        self.torn = False  # the last line was cut short: start the next one with a line end
        self.step: Optional[int] = None  # of the last report
        self.counts = False  # reports have no step, so steps are counted
        self.seen = b""  # the last value of the checkpoint flag
        self.asks = 0
        self.told: Set[bool] = set()  # about the restored checkpoint

    def send(self, message: Dict[str, Any]) -> bool:
        """Append one line. If it could not be written completely, count it as dropped and return False."""
        if self.line is None or not self.line.ours():
            path = os.environ.get(ENV_SDK)
            self.line = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            if self.line is None:
                return self._lost() if path else False
        data = dumps(message, separators=(",", ":")).encode() + b"\n"
        if self.torn:
            data = b"\n" + data
        try:
            written = os.write(self.line.descriptor, data)
        except OSError:
            return self._lost()
        self.torn = written < len(data)
        return self._lost() if self.torn else True

    def _lost(self) -> bool:
        """Count a message as dropped, and tell the agent, as far as that is possible."""
        self.dropped += 1
        with suppress(OSError):
            flags = os.open(_flags_path(), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if os.fstat(flags).st_size > FLAG_LOST:  # a byte more would need the space that is missing
                    os.pwrite(flags, b"1", FLAG_LOST)
            finally:
                os.close(flags)
        return False

    def flag(self, offset: int) -> bytes:
        """One byte of the agent's flags; empty outside a job."""
        if self.flags is None or not self.flags.ours():
            path = os.environ.get(ENV_SDK)
            if path and (self.flags is not None or self.asks % _RETRY_EVERY == 0):
                self.flags = _open(_flags_path(), os.O_RDONLY)
            self.asks += 1
            if self.flags is None:
                return b""
        try:
            return os.pread(self.flags.descriptor, 1, offset)
        except OSError:
            return b""


CHANNEL = _Channel()


def _flags_path() -> str:
    return os.path.join(os.path.dirname(os.environ.get(ENV_SDK, "")), SDK_FLAGS)


def _open(path: Optional[str], flags: int) -> Optional[_Opened]:
    """None outside a job, or if the file cannot be opened."""
    if not path:
        return None
    try:
        return _Opened(path, flags)
    except OSError:
        return None


def report(step: Optional[int] = None, **values: Any) -> None:
    """Report metric values at a step. Without `step`, each call counts one step further than the one before.

    After a restart the count continues at the step of the restored checkpoint. That is correct if there is one call per
    step of the checkpoints. If there are fewer calls (every tenth step, or every epoch), pass the step: otherwise the curve
    jumps after a restart.

    A value is a number, or an object for which `float()` works, such as a tensor with one element. A tensor on a device is
    waited for. Raises: TypeError if a value is no number or the step is no integer.
    """
    report_values(step, values)


def report_values(step: Optional[int], values: Mapping[str, Any]) -> None:
    """`report` for an adapter: a framework may name a metric like a parameter of it, such as `step`."""
    channel = CHANNEL
    numbers = {}
    for name, value in values.items():
        if type(value) is not float:
            value = _number(name, value)
        numbers[name] = value
    counted = {"counted": True} if step is None else {}
    if step is None:
        if channel.step is None:
            channel.step = _first_step()
        step, channel.counts = channel.step + 1, True
    elif type(step) is not int:
        step = whole(step, "report")
    channel.step = step
    if len(numbers) <= _VALUES_MAX:
        channel.send({"t": "m", "step": step, "values": numbers, **counted})
        return
    names = list(numbers)
    for at in range(0, len(names), _VALUES_MAX):
        some = {name: numbers[name] for name in names[at : at + _VALUES_MAX]}
        channel.send({"t": "m", "step": step, "values": some, **counted})


def tell_restored(loaded: bool) -> None:
    """Tell the agent that the restored checkpoint was loaded, or that the program asked where it is. Each is told once."""
    if loaded not in CHANNEL.told:
        CHANNEL.told.add(loaded)
        CHANNEL.send({"t": "r", "loaded": loaded})


def whole(step: Any, of: str) -> int:
    """A step as an integer. Raises: TypeError that names the function to which it was passed."""
    try:
        number = int(step)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{of}(step={step!r}): a step is a whole number") from error
    if number != step and not isinstance(step, str):  # 0.5, which int() cuts off
        raise TypeError(f"{of}(step={step!r}): a step is a whole number")
    return number


def _number(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"report({name}={value!r}): a metric is a number")
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"report({name}=…): a metric is one number, not {type(value).__name__}: {error}") from error


def _first_step() -> int:
    """Where the count begins: after a restart, at the step of the restored checkpoint."""
    try:
        return int(os.environ.get(ENV_RESUME_STEP, "0"))
    except ValueError:
        return 0


def artifact(
    path: "Union[str, bytes, os.PathLike[str]]", kind: Optional[str] = None, name: "Union[str, os.PathLike[str], None]" = None
) -> None:
    """Keep a file as an artifact. It is read now or a little later, so do not change it afterwards.

    `kind`: "file", "metrics", "plot", "confusion_matrix" or "model"; by default determined by name and content. A model
    that is a pickle is kept as a plain file, unless the project allows pickles. `name`: the artifact's name; by default the
    path from the current directory, or the file name if the file is elsewhere. A missing file or an unknown kind gives a
    warning and no exception, because a missing plot must not end a training.
    """
    if kind is not None and kind not in ARTIFACT_KINDS:
        known = ", ".join(ARTIFACT_KINDS)
        warnings.warn(f"sdk.artifact: {kind!r} is none of {known}: it is judged by name and content", stacklevel=2)
        kind = None
    path = os.fsdecode(path)
    try:
        place = os.path.abspath(path)
        there = os.path.isfile(place)
        own = os.path.relpath(place) if there else path
    except OSError:  # the current directory was removed
        place = own = path
        there = os.path.isabs(path) and os.path.isfile(path)
    if not there:
        warnings.warn(f"sdk.artifact: there is no file {place}", stacklevel=2)
        return
    if name is None:
        name = os.path.basename(place) if own.startswith((os.pardir, os.sep)) else own
    elif not isinstance(name, str):
        name = os.fsdecode(name) if isinstance(name, (bytes, os.PathLike)) else str(name)
    message: Dict[str, Any] = {"t": "a", "path": place, "name": name}
    CHANNEL.send(message if kind is None else {**message, "kind": kind})


def should_checkpoint() -> bool:
    """Whether a checkpoint is requested now. Returns true once per request.

    Each rank gets the request separately, perhaps a step apart. If all ranks must save together, let rank 0 call it and
    broadcast the answer.
    """
    channel = CHANNEL
    now = channel.flag(FLAG_CHECKPOINT)
    if not now:
        return False
    before = channel.seen or (now if now == b"0" else b"\0")  # a request before the first call counts
    channel.seen = now
    return now != before


def should_stop() -> bool:
    """Whether the program should save and end. It is killed when its grace period is over."""
    return CHANNEL.flag(FLAG_STOP) == b"1"


def dropped() -> int:
    """How many messages of this process were lost (full disk, or a channel that could not be opened)."""
    return CHANNEL.dropped
