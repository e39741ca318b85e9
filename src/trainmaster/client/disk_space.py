"""Client calls about disk space: what uses it, and removing it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

Row = dict[str, Any]


class DiskCalls:
    """The calls of `Client.disk`. They use the client's own `get` and `post`."""

    def __init__(self, get: Callable[[str], Row], post: Callable[[str, Mapping[str, Any]], Row]) -> None:
        self._get, self._post = get, post

    def storage(self, project: str | None = None) -> Row:
        """The store's usage, by project and kind."""
        return self._get("/storage" + (f"?project={quote(project, safe='')}" if project is not None else ""))

    def collect(
        self, grace_s: float, dry_run: bool = False, *, older_checkpoints: bool = False, unknown_jobs: bool = False
    ) -> Row:
        """Remove unreferenced blobs older than `grace_s`. Raises: ConflictError while another collection runs."""
        also = {"older_checkpoints": older_checkpoints, "unknown_jobs": unknown_jobs}
        return self._post("/storage/gc", {"grace_s": grace_s, "dry_run": dry_run, **also})

    def verify(self, repair: bool = False) -> Row:
        """Begin to read everything in the store, unless that is going on; the progress."""
        return self._post("/storage/verify", {"repair": repair})

    def verification(self) -> Row:
        """Progress and result of the newest verification. Raises: NotFoundError if there was none."""
        return self._get("/storage/verify")

    def remove(self, refs: Sequence[str], kinds: Sequence[str] = (), dry_run: bool = False) -> list[Row]:
        """Remove stored bytes of ended jobs; for each `{id, kinds, bytes, kept_for, going}` or `{ref, error}`."""
        body = {"jobs": list(refs), "kinds": list(kinds) or None, "dry_run": dry_run}
        return list(self._post("/jobs/remove", body)["jobs"])

    def prune(self, older_than_s: float, kinds: Sequence[str] = (), **which: Any) -> Row:
        """Remove stored bytes of jobs that ended long ago; `which`: `keep`, `project`, `dry_run`."""
        return self._post("/storage/prune", {"older_than_s": older_than_s, "kinds": list(kinds) or None, **which})
