"""A complete `Launch` for tests of the agent's modules, and small files for it."""

import hashlib
import json
from pathlib import Path
from typing import Any

from trainmaster.wire.launch import Launch, ResumePoint


def launch(root: Path, **changes: Any) -> Launch:
    """Orders of node 0 of the first attempt of `digits-1`, everything below `root`."""
    orders: Launch = {
        "key": "digits-1.1/n0",
        "home": "",
        "job": "digits-1",
        "attempt": 1,
        "node_index": 0,
        "nodes": 1,
        "ranks": 1,
        "cpus": 1.0,
        "distributed": True,
        "command": ["true"],
        "shell": False,
        "environment": {},
        "sdk": None,
        "devices": None,
        "work": str(root / "work"),
        "umask": None,
        "in_place": False,
        "before": str(root / "before.json"),
        "fresh": False,
        "code": None,
        "checkpoint_path": None,
        "checkpoint_interval_s": None,
        "resume_arguments": None,
        "checkpoint_store": str(root / "blobs" / "checkpoints" / "digits-1"),
        "resume": [],
        "forked": False,
        "metrics_pattern": None,
        "metrics_automatic": True,
        "metrics_files": [],
        "metrics_primary": None,
        "epoch_first": None,
        "epoch_steps": None,
        "epoch_anew": None,
        "pattern_engine": None,
        "artifacts": [],
        "artifact_store": str(root / "blobs" / "artifacts" / "digits-1"),
        "pickle_models": False,
        "environment_store": str(root / "environments"),
        "params": {},
        "data": [],
        "roles": [],
        "requirements": None,
        "memory_bytes": None,
        "cgroup": None,
        "contained": [],
        "address": "127.0.0.1",
        "address_shared": True,
        "server_socket": None,
        "server_url": None,
        "server_authority": None,
        "credential": "",
        "log_max_bytes": 1 << 20,
        "points": str(root / "points.jsonl"),
        "run": None,
        "grace_s": 5.0,
        "apart": False,
        "remote": False,
    }
    orders.update(changes)  # type: ignore[typeddict-item]
    return orders


def write(path: Path, data: bytes | str) -> Path:
    """A file and the directories on its way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def tree(root: Path) -> dict[str, str]:
    """What is below a directory: relative path -> text of the file, "-> target" of a link, "/" of an empty directory."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_text(errors="replace")
        elif not any(path.iterdir()):
            found[name] = "/"
    return found


def resume_point(store: str, staged: dict[str, Any]) -> ResumePoint:
    """The point that control would make of one staged part of node 0."""
    return {
        "id": staged["id"],
        "step": staged["step"],
        "approximate": staged["approximate"],
        "root": str(Path(store) / staged["id"]),
        "digests": {"n0": staged["digest"]},
    }


def manifest(store: str, identifier: str, part: str = "n0") -> dict[str, Any]:
    """A part's manifest, after comparing every file with it."""
    place = Path(store) / identifier / part
    value: dict[str, Any] = json.loads((place / "MANIFEST.json").read_bytes())
    for file in value["files"]:
        assert hashlib.sha256((place / file["path"]).read_bytes()).hexdigest() == file["sha256"], file
    return value
