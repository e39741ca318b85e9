"""Calls into the C library that Python does not wrap. If a call is not available, the function returns False."""

from __future__ import annotations

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_FALLOC_FL_KEEP_SIZE_PUNCH_HOLE = 3


def die_with_parent(signal_number: int) -> bool:
    """Send this process the signal when the thread that forked it ends."""
    return _prctl(_PR_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> bool:
    """Adopt descendants whose parents end, including daemons (PR_SET_CHILD_SUBREAPER)."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def punch_hole(descriptor: int, length_bytes: int) -> bool:
    """Free the disk space of a file's first bytes; its size and offsets stay."""
    import ctypes  # noqa: PLC0415 - start-up time

    try:
        fallocate = ctypes.CDLL(None).fallocate64
    except AttributeError:
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return bool(fallocate(descriptor, _FALLOC_FL_KEEP_SIZE_PUNCH_HOLE, 0, length_bytes) == 0)


def _prctl(option: int, argument: int) -> bool:
    """Call prctl without the `ctypes` package, whose import takes half as long as the rest of the start; fall back to it."""
    try:
        import _ctypes  # noqa: PLC0415 - private to CPython, so it may be missing

        address = _ctypes.dlsym(_ctypes.dlopen("", 0), "prctl")
        return bool(_ctypes.call_cdeclfunction(address, (option, argument, 0, 0, 0)) == 0)
    except (ImportError, AttributeError, OSError):
        return _prctl_by_ctypes(option, argument)


def _prctl_by_ctypes(option: int, argument: int) -> bool:
    import ctypes  # noqa: PLC0415 - start-up time

    try:
        return bool(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(argument), 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
