"""What a launcher (torchrun, mpiexec) prints of the process that made it end."""

import re
from collections.abc import Sequence

_TORCHRUN_RANK = re.compile(r"  rank +: (\d{1,9}) \(local_rank: \d{1,9}\)\Z")
_TORCHRUN_EXIT = re.compile(r"  exitcode +: (-?)(\d{1,9}) \(pid: \d{1,9}\)")
_MPICH = re.compile(r"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: .{1,40} \(signal (\d{1,3})\)\Z")
_OPEN_MPI = re.compile(r"\w{1,20} noticed that process rank (\d{1,9}) with PID .{1,300} exited on signal (\d{1,3})\b")


def reported(last_lines: Sequence[str], signal_names: dict[int, str]) -> str | None:
    """`rank 1 under torchrun was killed by SIGKILL`; None where no launcher said anything of the kind.

    Of torchrun's report the last entry counts: it is the root cause.
    """
    rank, told = "", None
    for line in map(str.rstrip, last_lines):
        if match := _TORCHRUN_RANK.match(line):
            rank = match[1]
        elif match := _TORCHRUN_EXIT.match(line):
            end = _killed(match[2], signal_names) if match[1] else f"exited with code {match[2]}"
            told = f"rank {rank} under torchrun {end}"
        elif match := _MPICH.match(line):
            told = f"a rank under mpiexec {_killed(match[1], signal_names)}"
        elif match := _OPEN_MPI.match(line):
            told = f"rank {match[1]} under mpirun {_killed(match[2], signal_names)}"
    return told


def _killed(number: str, signal_names: dict[int, str]) -> str:
    return f"was killed by {signal_names.get(int(number), f'signal {number}')}"
