"""Pairs of blocks of the same work, one with ten reports a second and one without: processor seconds of each block.

`reporting.py PAIRS BLOCK_S ANSWER`: a rank under Trainmaster as it stands, its agent reading what it reports. The two blocks
of a pair are done in slices, in turns, since a machine shared with others changes its speed within seconds. Also the cost of
a report itself, over and over. Writes JSON to ANSWER.
"""

import json
import os
import sys
import time

from trainmaster import sdk

REPORTS, PER_BATCH = 200, 50
EVERY_S = 0.1
SLICES = 6  # of a block


def work() -> int:
    """Some milliseconds of arithmetic."""
    value = 1
    for n in range(20_000):
        value = (value * 1103515245 + n) & 0x7FFFFFFF
    return value


def block(rounds: int, reports: bool) -> float:
    """Processor seconds of so many rounds of work; both kinds look at the clock after each round."""
    due_s, step = time.monotonic() + EVERY_S, 0
    began_s = time.process_time()
    for _ in range(rounds):
        loss = work() / 0x7FFFFFFF
        if time.monotonic() >= due_s:
            due_s += EVERY_S
            step += 1
            if reports:
                sdk.report(step=step, loss=loss, accuracy=1.0 - loss)
    return time.process_time() - began_s


def cost() -> float:
    """Seconds of one report, the mean of a few."""
    began_s = time.perf_counter()
    for step in range(PER_BATCH):
        sdk.report(step=step, loss=0.25, accuracy=0.75)
    return (time.perf_counter() - began_s) / PER_BATCH


def main() -> None:
    """Measure and write down."""
    pairs, block_s, answer = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    block(20, True)  # warm
    rounds = max(1, round(block_s / SLICES / (block(50, False) / 50)))
    without, reporting = [], []
    for _ in range(pairs):
        spent_s = {True: 0.0, False: 0.0}
        for n in range(SLICES):
            for reports in (True, False) if n % 2 else (False, True):
                spent_s[reports] += block(rounds, reports)
        reporting.append(spent_s[True])
        without.append(spent_s[False])
    costs = [cost() for _ in range(REPORTS)]
    with open(answer + ".part", "w") as file:
        json.dump({"with": reporting, "without": without, "costs": costs, "dropped": sdk.dropped()}, file)
    os.replace(answer + ".part", answer)


if __name__ == "__main__":
    main()
