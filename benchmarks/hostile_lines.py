"""How long a printed line of 4 kB holds its agent, at worst. Goal: 1 ms; and the slowest pattern of metrics that is taken.

Each line is made to be slow for the expression that the parser had before (`step` and blanks: minutes at 2,000 of them), which
is run beside ours on a shorter line, as far as it ends in a second. Processor time of one thread, the best of fifty.
"""

import re
import time
from collections.abc import Callable

import common

from trainmaster.agent.metrics.parse import LINE_MAX, Parser
from trainmaster.agent.metrics.patterns import compiled

GOAL_S = 0.001
FORMER_MAX_S = 1.0
FORMER_STEP = re.compile(
    r"(?<![A-Za-z_\d.])(?:global[_ ])?(step|iteration|iter|epoch)\s*[:=#]?\s*\[?\s*(\d{1,15})(?!\.?\d)", re.IGNORECASE
)
FORMER_PAIR = re.compile(
    r"(?<![\w./-])(?:(train|training|val|valid|validation|eval|test|dev)\s+)?([A-Za-z][\w./-]*)(\s*[:=]\s*|\s+)"
    r"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|NaN|inf|Inf|Infinity)\b))(?=%?(?:[\s,;|)\]}]|$))"
)
LINES = {
    "`step` and blanks": lambda size: "step" + " " * (size // 2) + "[" + " " * (size // 2),
    "a number and a letter": lambda size: "step 1 a=" + "1" * size + "x",
    "words and blanks": lambda size: "step 1 " + "train  " * (size // 7),
    "an ordinary line, again and again": lambda size: "step 12: loss 0.3, lr 1e-4 | " * (size // 29),
    "shares and percentages": lambda size: "loss: 1/2 (3%) " * (size // 15),
    "cells of a table": lambda size: "step 1 " + "|a 1.5 |" * (size // 8),
    "NaN, again and again": lambda size: "1%|" + "nan " * (size // 4),
    "names of several words": lambda size: "train val test avg mean loss 0.5 " * (size // 33),
    "long names of many parts": lambda size: (("a_" * 28) + "loss: 0.5, ") * (size // 67 + 1),
    "long names in camel case": lambda size: "CrossEntropyLossAbcDefGhiJklMnoPqrStuVwxYz: 0.5, " * (size // 49),
}
PATTERNS = {
    "nested repeats": ("(?P<loss>(a+)+)$", "a" * LINE_MAX),
    "31 groups, each of anything": ("(?P<x>" + "(.*)" * 31 + "y)", "x" * (LINE_MAX - 1) + "y"),
    "repeats in repeats, as large as is taken": ("(?P<x>" + "((((x*)*)*)*)*" * 6 + "(?:x?){500}y)", "x" * (LINE_MAX - 1) + "y"),
    "a usual one": (r"step (?P<step>\d+): loss (?P<loss>[\d.]+)", "step 12: loss 0.3"),
}


def took_s(work: Callable[[], object], n: int) -> float:
    """Seconds of this thread, the best of `n`."""
    best = float("inf")
    for _ in range(n):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best


def formerly(line: str) -> None:
    """What was done with a line before."""
    list(FORMER_STEP.finditer(line))
    FORMER_PAIR.findall(line)


def former_s(make: Callable[[int], str]) -> tuple[int, float]:
    """The longest line, of sizes that double, that was done with in a second, and its time."""
    size, seconds = 64, 0.0
    while size < LINE_MAX:
        line = make(size)
        seconds = took_s(lambda: formerly(line), 1)  # noqa: B023  it is called at once
        if seconds * 4 > FORMER_MAX_S:
            return size, seconds
        size *= 2
    return LINE_MAX, took_s(lambda: formerly(make(LINE_MAX)), 1)


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=50, quick_n=1)
    report = common.Report("hostile_lines", "What a printed line of 4 kB costs its agent", options)
    rows, worst = [], 0.0
    for name, make in LINES.items():
        line = make(LINE_MAX)[:LINE_MAX].encode()
        ours = took_s(lambda: Parser().parse(line), options.n)  # noqa: B023  it is called at once
        size, before = former_s(make)
        shorter = make(size)[:LINE_MAX].encode()
        same = took_s(lambda: Parser().parse(shorter), options.n)  # noqa: B023
        rows.append([name, common.ms(ours), f"{common.ms(before)} of {size:,} bytes", common.ratio(before, same)])
        report.keep(name, [ours, before])
        worst = max(worst, ours)
    report.table(["line", "now, 4,096 bytes", "before, as far as it went", "before : now, at that length"], rows)
    slowest = 0.0
    rows = []
    for name, (pattern, text) in PATTERNS.items():
        parser = Parser(compiled(pattern))
        seconds = took_s(lambda: parser.parse(text.encode()), options.n)  # noqa: B023
        rows.append([name, common.ms(seconds)])
        report.keep(name, [seconds])
        slowest = max(slowest, seconds)
    report.table(["pattern of metrics, on its worst line", "now"], rows)
    report.goal("the worst line, our own parser", worst, GOAL_S)
    report.goal("the slowest pattern that is taken", slowest, 0.05)
    report.finish()


if __name__ == "__main__":
    main()
