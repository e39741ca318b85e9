"""Write deploy/requirements.lock: the core and `tls` at the versions of constraints.txt, with the digests of their wheels.

`python deploy/lock.py`, or `make lock`. pip resolves once for each Python and processor below and reports the wheels.
`pip install --require-hashes -r deploy/requirements.lock` then accepts only exactly these files.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from pins import PYTHONS

ROOT = Path(__file__).parents[1]
LOCK = Path(__file__).parent / "requirements.lock"
PROCESSORS = ("x86_64", "aarch64")
MANYLINUX = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
HEADER = "# Written by deploy/lock.py (`make lock`). Linux on {processors}, Python {pythons}.\n"


def dependencies() -> list[str]:
    """The dependencies in pyproject.toml, and what a server in a container needs to be reached with TLS."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [str(requirement) for requirement in (*project["dependencies"], *project["optional-dependencies"]["tls"])]


def resolved(python: str, processor: str) -> dict[str, tuple[str, str]]:
    """Name -> version and digest of the wheel that pip selects for this Python and processor."""
    platforms = [part for name in MANYLINUX for part in ("--platform", f"{name}_{processor}")]
    command = [
        sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-",
        "--only-binary", ":all:", "--target", "nowhere", "--python-version", python, *platforms,
        "-c", str(ROOT / "constraints.txt"), *dependencies(),
    ]  # fmt: skip
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    found = {}
    for item in report["install"]:
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        found[item["metadata"]["name"].lower()] = (item["metadata"]["version"], digest)
    return found


def text() -> str:
    """The sorted requirements, each with all of its digests."""
    found: dict[tuple[str, str], set[str]] = {}
    for python in PYTHONS:
        for processor in PROCESSORS:
            for name, (version, digest) in resolved(python, processor).items():
                found.setdefault((name, version), set()).add(digest)
    names = [name for name, _ in found]
    assert len(set(names)) == len(names), "constraints.txt does not pin every version"
    header = HEADER.format(processors=" and ".join(PROCESSORS), pythons=", ".join(PYTHONS))
    lines = [
        f"{name}=={version}" + "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(digests))
        for (name, version), digests in sorted(found.items())
    ]
    return header + "\n".join(lines) + "\n"


if __name__ == "__main__":
    LOCK.write_text(text())
    sys.stdout.write(f"{LOCK}\n")
