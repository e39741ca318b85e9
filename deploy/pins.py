"""Check that constraints.txt holds on every Python that is supported: `make pins`, a few seconds for each.

uv resolves the project with all of its extras for Linux on x86_64 and each Python below, from the metadata of wheels, or of
the sources of the few packages that have no wheel. Nothing is installed, and none of these Pythons need be there. Where a pin
does not fit, uv says so at once; pip tries other versions for many minutes before it does. A package that would be installed
and has no pin is a fault too.

The wheel of PyTorch on PyPI is the CUDA build. The CPU build comes from PyTorch's own index. If that index cannot be
reached, this is printed and is no fault: the CPU build needs nothing that the CUDA build does not need. What is not known
then is whether there is a CPU wheel for each Python.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11.2", "3.12", "3.13", "3.14")  # the first is Debian 12's own
SOURCES = ("antlr4-python3-runtime",)  # no wheel of the one that Hydra needs; plain Python, built when it is installed
BUILDS = ("cuda", "cpu")  # of PyTorch
UNREACHABLE = 2  # uv: something but the requirements is wrong


def resolve(python: str, build: str, constraints: Path) -> subprocess.CompletedProcess[str]:
    """What pip would install, a line `name==version` for each package, or uv's words why nothing fits."""
    command = [
        sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--all-extras",
        "--only-binary", ":all:", *(f"--no-binary={name}" for name in SOURCES),
        "--python-version", python, "--python-platform", "x86_64-manylinux_2_28",
        *(["--torch-backend", "cpu"] if build == "cpu" else []), "-c", str(constraints), str(ROOT / "pyproject.toml"),
    ]  # fmt: skip
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def names(text: str) -> set[str]:
    """The packages of lines `name==version`, spelled as the index spells them."""
    return {re.sub(r"[-_.]+", "-", name).lower() for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}


def main(constraints: Path = ROOT / "constraints.txt") -> int:
    """Print a line for each Python and build; 1 where a pin does not hold or is missing."""
    pinned, faults = names(constraints.read_text()), 0
    for build in BUILDS:
        for python in PYTHONS:
            done = resolve(python, build, constraints)
            found = names(done.stdout)
            if done.returncode == UNREACHABLE and build == "cpu":
                sys.stdout.write(f"torch for cpu: not checked, the index of PyTorch does not answer\n{done.stderr}")
                break
            if done.returncode:
                faults, said = faults + 1, done.stderr.strip()
            elif found - pinned:
                faults, said = faults + 1, f"no pin: {', '.join(sorted(found - pinned))}"
            else:
                said = f"{len(found)} packages fit"
            sys.stdout.write(f"Python {python}, torch for {build}: {said}\n")
            sys.stdout.flush()
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
