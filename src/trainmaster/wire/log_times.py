"""The file beside a log that tells when its bytes were written: `rank0.log.times`, written by the agent, read by the server.

It has records of 16 bytes, each an offset and a time in seconds since the epoch: what lies between the offset of the record
before it and its own was written by that time. Offsets grow. A file whose last offset is beyond the end of the log belongs to
the log as it was before it was cut or emptied, and is about to be replaced.
"""

from __future__ import annotations

import struct

RECORD = struct.Struct("<Qd")
RECORDS_MAX = 65_536  # 1 MiB for each log


def times_path(log_path: str) -> str:
    """The path of the file that belongs to a log."""
    return log_path + ".times"
