"""Every figure, one after the other: `make bench`, or `python benchmarks/run.py [--quick] [NAME …]`."""

import argparse
import subprocess
import sys
from pathlib import Path

BENCHMARKS = (
    "start_latency", "cold_start", "throughput", "recovery", "submits",
    "listing", "compare", "memory", "sdk_report",
    "metric_ingest", "tracking_cost", "agent_start", "adoption", "survival", "mirror_lag", "storage",
    "hostile_lines", "under_attack", "standing_still",
    "scheduling_speed", "scheduling_quality", "scheduling_openb", "scheduling_eta", "scheduling_fairness",
)  # fmt: skip


def main() -> int:
    """Run them; the exit code is that of the last one that failed, 0 when none did."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {' '.join(BENCHMARKS)}")
    arguments.add_argument("--quick", action="store_true", help="small: that they work, and their ratios")
    options = arguments.parse_args()
    failed = 0
    for name in options.names or BENCHMARKS:
        if name not in BENCHMARKS:
            arguments.error(f"there is no benchmark {name}; there are {', '.join(BENCHMARKS)}")
        script = Path(__file__).with_name(f"{name}.py")
        command = [sys.executable, script, *(["--quick"] if options.quick else [])]
        failed = subprocess.run(command, check=False).returncode or failed
    return failed


if __name__ == "__main__":
    sys.exit(main())
