"""The agent as one file, for where it is started by exec: `agent`, `wire` and a start, nothing else."""

import io
import zipfile
from pathlib import Path

from trainmaster.home import write_atomic

_MAIN = "from trainmaster.agent.__main__ import main\n\nmain()\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same sources make the same bytes


def build(target: Path) -> None:
    """Write the zip application unless it is there as it should be."""
    data = _bytes(Path(__file__).resolve().parents[2])
    try:
        if target.read_bytes() == data:
            return
    except OSError:
        target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, data)


def _bytes(package: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
        archive.writestr(zipfile.ZipInfo("trainmaster/__init__.py", _EPOCH), (package / "__init__.py").read_bytes())
        for room in ("agent", "wire"):
            for file in sorted((package / room).glob("*.py")):
                archive.writestr(zipfile.ZipInfo(f"trainmaster/{room}/{file.name}", _EPOCH), file.read_bytes())
    return buffer.getvalue()
