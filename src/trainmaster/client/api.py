"""The synchronous Python client of the REST API. Answers are JSON objects as plain dictionaries."""

import json
import os
import shlex
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack
from urllib.parse import quote

from trainmaster.client.connection import RESTART_S, Call, Connection, Patience, Sink
from trainmaster.client.disk_space import DiskCalls
from trainmaster.client.filters import JobFilter, LogFilter, QueueFilter
from trainmaster.client.servers import embedded
from trainmaster.client.servers.settings import Target, configured
from trainmaster.errors import NotKnownError, UnreachableError, UsageError, WaitTimeoutError
from trainmaster.home import Home
from trainmaster.wire.code import Tree

Row = dict[str, Any]

STATES = ("held", "queued", "starting", "running", "stopping", "succeeded", "failed", "cancelled")
ENDED = frozenset({"succeeded", "failed", "cancelled"})
POLL_S, _RETRY_S = 20.0, 0.3  # duration of one long poll; pause before it is repeated
_ARTIFACTS_PAGE, _POINTS_PAGE = 1000, 50_000  # the server's maximum per page


def new_key() -> str:
    """A random Idempotency-Key."""
    return os.urandom(16).hex()


def server_known(server: str | None = None) -> bool:
    """Whether a server can be used without starting one: one is configured, or this machine's own runs."""
    return configured(server) is not None or embedded.runs(Home.default())


def _quiet(text: str) -> None:
    """The default of `say`: drop the message."""


class Client:
    """Calls the server given by `server`, else by environment or files, else this machine's own.

    `start`: start this machine's own server if none is configured and none runs. `say` is called with messages about
    that and about waiting. `warning`: a warning about this connection, if any. `disk`: calls about disk space.
    Raises: UnreachableError when there is no server. Use it as a context manager, or `close` it; one thread at a time.
    """

    def __init__(
        self, server: str | None = None, token: str | None = None, *, start: bool = True, say: Callable[[str], None] = _quiet
    ) -> None:
        self._start, self._say = start, say
        self._told_away = False
        self._named = configured(server, token)
        self.warning = "" if self._named is None else self._named.warning
        if self.warning and say is _quiet:  # a caller with its own `say` shows the warning itself
            warnings.warn(self.warning, stacklevel=2)
        self.home = Home.default() if self._named is None else None  # this machine's own server
        self._connection = self._connect(self._find())
        self.disk = DiskCalls(self._get, self._post)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The server's URL."""
        return self._connection.url

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _find(self) -> Target:
        if self._named is not None:
            return self._named
        home = self.home or Home.default()
        return embedded.ensure(home, self._say) if self._start else embedded.attach(home)

    def _find_again(self) -> Target:
        if self._named is not None:
            return self._named
        return embedded.revive(self.home or Home.default(), self._say)

    def _connect(self, target: Target) -> Connection:
        if self.home is None:
            return Connection(target.url, target.token, Patience(on_wait=self._away), target.authority)
        home = self.home  # api and control restart each other: wait as long as one of them lives
        patience = Patience(RESTART_S, lambda: embedded.half_alive(home), self._away)
        return Connection(target.url, target.token, patience)

    def _away(self) -> None:
        """Say once that the server is unreachable."""
        if not self._told_away:
            self._say("server is away; waiting (jobs go on without it)")
            self._told_away = True

    def reconnect(self) -> None:
        """Find the server again; its port may have changed. If this machine's own server died, start it.

        Raises: StoppedError when a user stopped it on purpose.
        """
        self.close()
        self._connection = self._connect(self._find_again())

    def persistently(self, work: Callable[[], Row], until_s: float | None = None) -> Row:
        """Call `work()` repeatedly while no server answers, and say so once.

        `until_s`: when to stop trying, on the monotonic clock. Raises: UnreachableError then, and other errors of `work`.
        """
        while True:
            try:
                answer = work()
                self._told_away = False
                return answer
            except UnreachableError:
                if until_s is not None and time.monotonic() >= until_s:
                    raise
                self._away()
            time.sleep(_RETRY_S)
            try:
                self.reconnect()
            except embedded.StoppedError:
                raise
            except UnreachableError:
                continue  # not back yet; `work` will raise again

    def healthz(self) -> Row:
        """The server's health."""
        return self._get("/healthz")

    def troubles(self) -> list[Row]:
        """Problems of the server: `process`, `topic`, `text`, `since_s`; oldest first."""
        return list(self._get("/troubles")["troubles"])

    def submit(self, submission: Mapping[str, Any], key: str | None = None) -> str:
        """Submit `{"spec", "origin", "code", "hold"}`; returns the job's id. The same key never makes a second job."""
        return str(self._handed_in("/jobs", submission, key)["id"])

    def plan(self, submission: Mapping[str, Any]) -> Row:
        """Plan a submit of `{"spec", "origin", "code"}`, without submitting it."""
        return self._post("/plan", submission)

    def submit_batch(self, submissions: Sequence[Mapping[str, Any]], key: str | None = None) -> list[str]:
        """Submit several in one transaction, all or none; returns their ids in order."""
        key = key or new_key()
        rows = [{"key": f"{key}-{n}", **submission} for n, submission in enumerate(submissions)]
        call = Call("POST", "/jobs/batch", body=json.dumps({"jobs": rows}).encode(), key=key)
        return [str(id) for id in self._connection.json(call)["ids"]]

    def jobs(self, **query: Unpack[JobFilter]) -> list[Row]:
        """Jobs, newest first."""
        return list(self._connection.json_again(Call("GET", "/jobs", query))["jobs"])

    def job(self, ref: str) -> Row:
        """One job with its spec, attempts, checkpoints and artifacts. Raises: NotFoundError."""
        return self._get(_job(ref))

    def why(self, ref: str) -> Row:
        """Why a job waits, what would let it start, its position, and when it will start."""
        return self._get(_job(ref, "why"))

    def queue(self, **query: Unpack[QueueFilter]) -> Row:
        """`{"jobs", "total", "held", "now_s"}`: a page of the queue, in order."""
        return self._get("/queue", **query)

    def metrics(self, ref: str, name: str | None = None) -> dict[str, list[list[float]]]:
        """Metric values by name, as `[step, value]` pairs."""
        return dict(self.curve(ref, name)["series"])

    def curve(self, ref: str, name: str | None) -> Row:
        """`{"series": {name: [[step, value]]}, "best": {name: {"step", "value"}}}`; `best` only with a name."""
        return self._get(_job(ref, "metrics"), name=name)

    def gpus(self, period_s: float) -> Row:
        """`{"gpus", "now_s", "period_s"}`: every GPU, its users, and how much it was used in the period before now."""
        return self._get("/gpus", period_s=period_s)

    def points(self, ref: str, name: str, after: int | None = None, stepless: bool = False) -> Row:
        """A page of a metric: `{"id", "name", "points": [[step, value, time_s, attempt]], "next", "stepless"}`."""
        return self._get(_job(ref, "points"), name=name, after=after, limit=_POINTS_PAGE, stepless=stepless or None)

    def logs(self, ref: str, **query: Unpack[LogFilter]) -> Row:
        """One page of log text: `{"chunks", "cursor", "state", "ended"}`."""
        return self._get(_job(ref, "logs"), **query)

    def events(self, ref: str, after: int = 0, wait_s: float = 0.0) -> list[Row]:
        """The job's events after event number `after`."""
        return list(self._get(_job(ref, "events"), after=after, wait_s=wait_s)["events"])

    def watch(self, ref: str, version: str | int | None = None, wait_s: float = POLL_S) -> Row:
        """`{"version", "job"}` as soon as the job differs from `version`, or after `wait_s`."""
        return self._get(_job(ref, "watch"), version=version, wait_s=wait_s)

    def wait(self, ref: str, timeout_s: float | None = None) -> Row:
        """Wait until the job has ended, also across restarts of the server. Raises: WaitTimeoutError."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        version: str | int | None = None
        while True:
            left_s = POLL_S if until_s is None else max(0.0, min(POLL_S, until_s - time.monotonic()))
            seen, hold_s = version, left_s if version is not None else 0.0
            answer = self.persistently(lambda seen=seen, hold_s=hold_s: self.watch(ref, seen, hold_s), until_s)  # type: ignore[misc]
            job = answer.get("job")
            if job is not None and job["state"] in ENDED:
                return dict(job)
            if until_s is not None and time.monotonic() >= until_s:
                raise WaitTimeoutError(f"{ref} has not ended in time", f"it lives on: tm wait {ref}")
            version = answer.get("version", version)

    def cancel(self, ref: str, reason: str = "", grace_s: float | None = None) -> Row:
        """Cancel a job; its ranks get `grace_s` to exit (None: the default). Raises: ConflictError if it has ended."""
        return self._post(_job(ref, "cancel"), {"reason": reason, "grace_s": grace_s})

    def cancel_many(self, which: Mapping[str, Any], reason: str = "", grace_s: float | None = None) -> list[Row]:
        """Cancel `{"jobs": [...]}` or `{"all": True, "project", "experiment", "states"}` in one request.

        Returns `{"id", "state"}` for each job, or `{"ref", "error"}` if it does not exist or has ended.
        """
        return list(self._post("/jobs/cancel", {**which, "reason": reason, "grace_s": grace_s})["jobs"])

    def exec_begin(self, ref: str, what: Mapping[str, Any]) -> Row:
        """Run `{"command" | "stacks", "rank" | "role" | "node", "stdin"}` beside a job; returns `id`, `job`, `attempt`."""
        return self._post(_job(ref, "exec"), what)

    def exec_output(self, ref: str, id: str, after: int, wait_s: float = POLL_S) -> Row:
        """Output after chunk `after`: `{"chunks", "cursor", "over"}`. Raises: NotFoundError for an unknown session."""
        return self._get(_job(ref, "exec", id), after=after, wait_s=wait_s)

    def exec_input(self, ref: str, id: str, data: str, end: bool) -> bool:
        """Send input (base64); False if the input buffer is full. Raises: ConflictError if the command has ended."""
        return bool(self._post(_job(ref, "exec", id, "input"), {"data": data, "end": end})["taken"])

    def exec_resize(self, ref: str, id: str, terminal: Mapping[str, Any]) -> Row:
        """Tell the size of the terminal: `rows`, `columns`, `term`."""
        return self._post(_job(ref, "exec", id, "resize"), terminal)

    def exec_stop(self, ref: str, id: str) -> Row:
        """End the command."""
        return self._post(_job(ref, "exec", id, "stop"), {})

    def update(self, ref: str, changes: Mapping[str, Any]) -> Row:
        """Change `priority`, `time_limit`, `class`, `tags` or `hold`: what is given. Raises: ConflictError, SpecError."""
        call = Call("PATCH", _job(ref), body=json.dumps(changes).encode(), key=new_key())
        return self._connection.json(call)

    def spec(self, ref: str) -> Row:
        """The spec that would submit the job again: `{"id", "spec", "hidden", "directory", "in_place"}`."""
        return self._get(_job(ref, "spec"))

    def hold(self, ref: str, reason: str = "") -> Row:
        """Keep a waiting job from starting. Raises: ConflictError."""
        return self._post(_job(ref, "hold"), {"reason": reason} if reason else {})

    def release(self, ref: str) -> Row:
        """Release a held job. Raises: ConflictError."""
        return self._post(_job(ref, "release"), {})

    def tokens(self) -> list[Row]:
        """The tokens in the store. Raises: PermissionDeniedError."""
        return list(self._get("/tokens")["tokens"])

    def create_token(self, name: str, role: str = "member", expires_s: float | None = None) -> Row:
        """Create a token; only this answer has its text in `token`. Raises: ConflictError, PermissionDeniedError."""
        body = {"name": name, "role": role, "expires_s": expires_s}
        return self._connection.json(Call("POST", "/tokens", body=json.dumps(body).encode()))

    def revoke_token(self, name: str) -> Row:
        """Revoke a token. Raises: NotFoundError, PermissionDeniedError."""
        return self._connection.json(Call("DELETE", f"/tokens/{quote(name, safe='')}"))

    def usage(self, **query: Any) -> Row:
        """Usage with the headings `by`, from `since_s` to `until_s`, of `project`, in days of the time zone `zone`."""
        return self._get("/usage", **query)

    def nodes(self) -> list[Row]:
        """The nodes with their capacity and what is free."""
        return list(self._get("/nodes")["nodes"])

    def set_node(self, name: str, verb: str, reason: str = "") -> Row:
        """`drain`, `resume`, or declare `lost`. Raises: NotFoundError."""
        return self._post(f"/nodes/{quote(name, safe='')}/{verb}", {"reason": reason} if reason else {})

    def cluster(self) -> Row:
        """The cluster configuration: `{"cluster", "told"}`, as in cluster.yaml and as an explanation."""
        return self._get("/cluster")

    def cluster_apply(self, cluster: Mapping[str, Any]) -> Row:
        """Replace the cluster configuration; `{"changes", "words"}`. Raises: SpecError, UsageError."""
        body = json.dumps({"cluster": cluster}).encode()
        return self._connection.json(Call("PUT", "/cluster", body=body, key=new_key()))

    def cluster_plan(self, cluster: Mapping[str, Any]) -> Row:
        """What a configuration would do to the present queue: `{"changes", "words", "waiting", "jobs"}`. Changes nothing."""
        return self._post("/cluster/plan", {"cluster": cluster})

    def artifacts(self, ref: str, kind: str | None = None, path: str | None = None) -> Row:
        """A job's artifacts by path: `{"id", "artifacts", "total", "bytes", "removed"}`; all, of one kind, or with one path.

        Raises: NotFoundError (no such job).
        """
        answer = page = self._get(_job(ref, "artifacts"), kind=kind, path=path)
        while path is None and len(page["artifacts"]) == _ARTIFACTS_PAGE:
            after = page["artifacts"][-1]["path"]
            page = self._get(_job(answer["id"], "artifacts"), after=after, kind=kind)
            answer["artifacts"] += page["artifacts"]
        return answer

    def artifact(self, ref: str, path: str, sink: Sink) -> int:
        """Copy an artifact's bytes to `sink`; returns their number. Raises: NotFoundError."""
        return self._connection.copy(Call("GET", f"{_job(ref)}/artifacts/{quote(path)}"), sink)

    def compare(self, refs: Sequence[str], **query: Any) -> Row:
        """Differences between runs: `metric` (names), `points` per curve, `all` and `patch` (1: include).

        Raises: NotFoundError (a run, or a metric that no run has), UsageError (fewer than two runs).
        """
        return self._get("/compare", job=list(refs), **query)

    def note(self, about: Mapping[str, str], text: str) -> Row:
        """Write a note about `{"job"}`, `{"experiment"}` or `{"project"}`. Raises: NotFoundError."""
        return self._post("/notes", {**about, "text": text})

    def logbook(self, **query: Any) -> list[Row]:
        """The newest `limit` logbook entries in order of time, of a `job`, an `experiment`, a `project`, or all.

        `notes` (1): only notes that users wrote.
        """
        return list(self._get("/logbook", **query)["entries"])

    def history(self, sink: Sink) -> int:
        """Copy the history of all jobs to `sink` as JSON lines, for `tm simulate`; returns the number of bytes."""
        return self._connection.copy(Call("GET", "/history"), sink)

    def code_missing(self, tree: Tree) -> list[str]:
        """The objects of a tree that the server lacks; if there are none, the tree is stored."""
        call = Call("POST", "/code/missing", body=json.dumps({"tree": tree}).encode(), repeatable=True)
        return list(self._connection.json(call)["missing"])

    def patch_store(self, sha256: str, patch: bytes) -> None:
        """Upload the patch of a work directory under its digest."""
        path = f"/provenance/diffs/{sha256}"
        self._connection.json(Call("PUT", path, body=patch, content_type="text/x-diff", repeatable=True))

    def provenance(self, ref: str) -> Row:
        """A job's provenance: git, code, data, lineage, and the environments of its attempts."""
        return self._get(_job(ref, "provenance"))

    def diff(self, ref: str, sink: Sink) -> int:
        """Copy the job's patch to `sink`; returns the number of bytes. Raises: NotFoundError if there is none."""
        return self._connection.copy(Call("GET", _job(ref, "diff")), sink)

    def requeue(self, ref: str, body: Mapping[str, Any], key: str | None = None) -> Row:
        """Run an ended job again, with `{"changes", "new_params"}`; `{"id", "lineage"}`. Raises: ConflictError."""
        return self._made("requeue", ref, body, key)

    def reproduce(self, ref: str, body: Mapping[str, Any], key: str | None = None) -> Row:
        """Run a job again to compare; `{"id", "lineage", "equal", "unequal"}`."""
        return self._made("reproduce", ref, body, key)

    def fork(self, ref: str, body: Mapping[str, Any], key: str | None = None) -> Row:
        """Start a job from a checkpoint (`{"step"}` or the newest) with `{"changes", "new_params", "code", "origin"}`."""
        return self._made("fork", ref, body, key)

    def _made(self, verb: str, ref: str, body: Mapping[str, Any], key: str | None) -> Row:
        return self._handed_in(_job(ref, verb), body, key)

    def _handed_in(self, path: str, body: Mapping[str, Any], key: str | None) -> Row:
        """Send a submit and return its answer; notes about the new job are passed to `say`."""
        key = key or new_key()
        try:
            answer = self._connection.json(Call("POST", path, body=json.dumps(body).encode(), key=key))
        except NotKnownError as error:
            error.hint = f"look: tm ps   or ask again, which makes no second job: --key {shlex.quote(key)}"
            raise
        for note in answer.get("notes", ()):
            self._say(f"note: {note}")
        return answer

    def code_store(self, archive: bytes) -> int:
        """Upload a zip of objects; returns their number."""
        call = Call("POST", "/code", body=archive, content_type="application/zip", repeatable=True)
        return int(self._connection.json(call)["stored"])

    def _get(self, path: str, /, **query: Any) -> Row:
        wait_s = float(query.get("wait_s") or 0.0)
        return self._connection.json(Call("GET", path, query, wait_s=wait_s))

    def _post(self, path: str, body: Mapping[str, Any]) -> Row:
        return self._connection.json(Call("POST", path, body=json.dumps(body).encode(), key=new_key()))


def _job(ref: str, *rest: str) -> str:
    if not ref:
        raise UsageError("the job's name is empty", "name an id, a unique prefix of one, a name, @last or @last-failed")
    return "/".join(("/jobs", quote(ref, safe="@"), *rest))
