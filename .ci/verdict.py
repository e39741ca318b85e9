"""`verdict.py OUTPUTS [FAILED...]`: add up what pytest said in the files of a directory; exit 1 where something FAILED."""

import re
import sys
from collections import Counter
from pathlib import Path

SUMMARY = re.compile(r"^(?:=+ )?((?:\d+ [a-z]+(?:, )?)+) in ([\d.]+)s", re.MULTILINE)


def counts(path: Path) -> tuple[Counter[str], float] | None:
    """How many tests ended how, and seconds; None where pytest did not reach its end."""
    found = SUMMARY.findall(path.read_text(errors="replace"))
    if not found:
        return None
    words, seconds = found[-1]
    return Counter({kind: int(number) for number, kind in (part.split() for part in words.split(", "))}), float(seconds)


def main() -> int:
    """Print one line for each part, then the sum."""
    total: Counter[str] = Counter()
    seconds = 0.0
    for path in sorted(Path(sys.argv[1]).iterdir()):
        told = counts(path)
        print(f"{path.name}: {'pytest did not reach its end' if told is None else dict(told[0])}")
        if told is None:
            continue
        ended, took_s = told
        total += ended
        seconds += took_s
    for what in sys.argv[2:]:
        print(f"{what} failed; see above")
    words = ", ".join(f"{number} {kind}" for kind, number in total.items() if number)
    print(f"{words or 'no tests ran'} in {seconds:.2f}s")
    return 1 if len(sys.argv) > 2 else 0


if __name__ == "__main__":
    sys.exit(main())
