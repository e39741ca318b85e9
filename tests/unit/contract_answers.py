"""Responses of the contract's server about one job and one node, by request line."""

from typing import Any

from contract_server import Answer, Asked

JOB: dict[str, Any] = {
    "id": "digits-14", "seq": 14, "name": "digits", "project": "default", "experiment": "digits", "state": "failed",
    "reason": "rank 1 exited with code 1", "priority": 0, "attempt": 1, "created_s": 1000.0, "started_s": 1001.0,
    "ended_s": 1061.0, "nodes": ["n0"], "command": "python train.py", "step": 120, "metrics": {"loss": 0.25},
    "restarts": {"program": 0, "infrastructure": 0}, "tags": {}, "stalled": None,
}  # fmt: skip
ARTIFACT: dict[str, Any] = {"path": "out/a.png", "kind": "plot", "bytes": 10, "digest": "ab" * 32, "attempt": 1}
KEPT: dict[str, Any] = {"id": "digits-14", "artifacts": [ARTIFACT], "total": 1, "bytes": 10}
WHY: dict[str, Any] = {
    "id": "digits-14", "state": "queued", "kind": "busy", "position": 3, "ahead": 2, "needs": [{"what": "ends", "name": "digits-12"}],
    "reason": "waiting for 2 GPUs", "text": "waiting for 2 GPUs. It starts once digits-12 has ended.",
    "eta_s": {"low90": 60.0, "low50": 480.0, "p50": 720.0, "high50": 1200.0, "high90": 5400.0, "jobs": 3, "few": True},
}  # fmt: skip
DETAIL: dict[str, Any] = {
    **JOB,
    "spec": {
        "resources": {"nodes": 1, "gpus": 0, "gpu_kind": None, "gpu_share": 0.0, "cpus": 1.0, "ranks": 2},
        "metrics": {"primary": "loss", "mode": "min"}, "params": {"lr": 0.1},
    },
    "origin": {"user": "ada", "host": "lab", "directory": "/src", "git_commit": "0123456789abcdef", "git_dirty": True},
    "code": {"digest": "d", "files": 3, "bytes": 2048, "linked": 1, "in_place": False},
    "failure": {
        "cause": "program", "message": "rank 1 exited with code 1", "rank": 1, "exit_code": 1, "signal": None,
        "last_lines": ["Traceback", "ValueError: boom"],
    },
    "time_limit_s": 3600.0,
    "attempts": [{
        "number": 1, "state": "failed", "cause": "program", "message": "rank 1 exited with code 1", "exit_code": 1,
        "signal": None, "placed_s": 1000.0, "started_s": 1001.0, "ended_s": 1061.0, "resumed_from_step": None, "nodes": ["n0"],
    }],
    "checkpoints": [{
        "id": "c", "step": 100, "bytes": 2_000_000, "committed_s": 1050.0, "good": True, "approximate": True, "attempt": 1,
    }],
    "artifacts": [ARTIFACT],
    "artifacts_total": 1,
    "metrics": {"loss": {"step": 120, "value": 0.25, "time_s": 1060.0}},
    "work": ["/home/work/digits-14/n0"],
    "troubles": [{"topic": "checkpoint", "text": "step 40 is not stored: the disk is full", "attempt": 2, "node": 0, "since_s": 1.0}],
    "notes": ["the program does not load its checkpoint"],
}  # fmt: skip
TABLE: dict[str, Answer] = {
    "GET /jobs?limit=50&all=0": (200, {"jobs": [JOB]}),
    "GET /jobs/@last": (200, DETAIL),
    "GET /jobs/digits-14": (200, DETAIL),
    "GET /jobs/digits-14/metrics?name=loss": (
        200, {"series": {"loss": [[0, 1.0], [60, 0.5], [120, 0.25]]}, "best": {"loss": {"step": 120, "value": 0.25}}},
    ),
    "GET /jobs/@last/why": (200, WHY),
    "GET /jobs/digits-14/logs?rank=0&attempt=1": (200, {"chunks": [{"attempt": 1, "rank": 0, "text": "a\n"}], "cursor": "c"}),
    "GET /jobs/digits-14/logs?rank=0&attempt=1&after=c": (200, {"chunks": [], "cursor": "c"}),
    "GET /jobs/digits-14/logs?rank=1&attempt=1": (200, {"chunks": [{"attempt": 1, "rank": 1, "text": "b\n"}], "cursor": "c"}),
    "GET /jobs/digits-14/logs?rank=1&attempt=1&after=c": (200, {"chunks": [], "cursor": "c"}),
    "GET /jobs/digits-14/watch?wait_s=0.0": (200, {"version": 1, "job": JOB}),
    "POST /jobs/digits-14/cancel": (202, {"id": "digits-14", "state": "running"}),
    "POST /jobs/cancel": (202, {"jobs": [
        {"ref": "other-1", "error": {"code": "conflict", "message": "other-1 has ended", "hint": "h"}},
        {"id": "digits-14", "state": "running"},
    ]}),
    "GET /jobs/@last/artifacts": (200, KEPT),
    "GET /jobs/@last/artifacts?path=out%2Fa.png": (200, KEPT),
    "GET /jobs/@last/artifacts/out/a.png": (200, b"0123456789"),
    "GET /jobs/digits-14/artifacts/out/a.png": (200, b"0123456789"),
    "GET /nodes": (200, {"nodes": [{
        "name": "n0", "state": "up", "state_reason": "", "pool": "default", "host": "lab", "cpus": 8.0, "memory_bytes": 2**34,
        "devices": [{"index": 0, "kind": "h100", "stand_in": True}], "virtual": True,
        "counted": {"custom.license": 2.0, "disk_bytes": 2**37, "network_bps": 1e11},
        "free": {
            "cpus": 6.0, "memory_bytes": 2**33, "devices": [], "gpus": 0.0,
            "counted": {"custom.license": 1.0, "disk_bytes": 2**36, "network_bps": 6e10},
        },
        "jobs": ["digits-14"],
    }]}),
}  # fmt: skip


def route(asked: Asked) -> Answer:
    return TABLE.get(asked.line, (404, {"error": {"code": "not_found", "message": f"nothing at {asked.line}", "hint": "look"}}))
