"""Composition root: the only module that names all adapters (stores, engine, policy) and builds a server from them."""

import errno
import fcntl
import hashlib
import hmac
import logging
import math
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, TextIO, cast

from trainmaster import configuration, troubles
from trainmaster.agent.pack import sdk_directory
from trainmaster.blobs.factory import open_blobs
from trainmaster.control import charging, clock_steps
from trainmaster.control.clock import SteadyClock
from trainmaster.control.disk_watch import DiskWatch
from trainmaster.control.effect_runner import EffectRunner
from trainmaster.control.loop import ControlLoop, Recorder
from trainmaster.control.wakeup import DatagramWaker, poke
from trainmaster.control.workers import Threads
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.local.render import render
from trainmaster.engines.local.settings import LocalSettings, Site
from trainmaster.engines.local.starting import start_spawner
from trainmaster.errors import ConflictError, DiskFullError, OperationError, TrainmasterError, UsageError
from trainmaster.home import Home, open_regular, write_atomic
from trainmaster.lifecycle.machine import apply
from trainmaster.lifecycle.nodes import apply_node
from trainmaster.live_processes import BESIDE
from trainmaster.locks import guard, inode, is_another
from trainmaster.model.cluster import Cluster
from trainmaster.model.events import ClockSet, ClusterConfigured, JobEvent, NodeSeen, NodeStateSet
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Attempt, Job, NodeRun, State
from trainmaster.model.ledger import Entry
from trainmaster.model.nodes import Allocation, Node, NodeShare
from trainmaster.model.redaction import without_secrets
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.ports.blobs import Blobs
from trainmaster.ports.engine import Submission
from trainmaster.ports.store import Recorded
from trainmaster.reserve import Reserve
from trainmaster.scheduling.model.usage import Account, Member
from trainmaster.store.events import SqlEventStore
from trainmaster.store.file_checks import Found, check_files
from trainmaster.store.identity import count_start, numbers_used
from trainmaster.store.inbox import SqlInbox
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.store.migrate import migrate
from trainmaster.store.mirror_state import MirrorFile
from trainmaster.store.replay import Enter, replay, verify_chain
from trainmaster.store.tokens import SqlTokens

_LOCK_S = 1.0
_SECRET_BYTES = 32
_log = logging.getLogger("trainmaster.control")


@dataclass(frozen=True, slots=True)
class ApiStores:
    """The stores that the api process reads and writes."""

    home: Home
    events: SqlEventStore  # read only: control writes it
    inbox: SqlInbox
    metrics: SqlMetricStore
    blobs: Blobs
    tokens: SqlTokens


def reserve(home: Home) -> Reserve:
    """The disk space reserved for ending jobs on a full disk."""
    return Reserve(home, int(configuration.load(home).storage.reserve_mib * 1024**2))


def open_api(home: Home) -> ApiStores:
    """The stores of the api process, migrated. On a full disk the start uses the reserve."""
    return reserve(home).persistently(lambda: _open_api(home))


def _open_api(home: Home) -> ApiStores:
    migrate(home, server_id(home))
    with suppress(DiskFullError, OSError):  # a server starts on a full disk, too
        count_start(home)
    events = SqlEventStore(home.events_db, read_only=True)
    inbox = SqlInbox(home.inbox_db, release=reserve(home).release)
    inbox.keep_ahead(events.head().inbox_cursor, events.numbers())  # in case the inbox is an older copy than the log
    blobs = _blobs(home)
    if home.numbers_unknown.exists():
        inbox.keep_ahead(0, _numbers_used(home, blobs))
        home.numbers_unknown.unlink()
    return ApiStores(home, events, inbox, SqlMetricStore(home.metrics_db), blobs, SqlTokens(home.inbox_db))


def _numbers_used(home: Home, blobs: Blobs) -> dict[str, int]:
    """The numbers of jobs of which the home or the store has something, whether the log knows them. Raises: OperationError."""
    directory = configuration.load(home).storage.directory(home)
    what = "the log is older than the store, or new, and the store cannot be listed: which job numbers it uses is unknown"
    try:
        if directory is not None and directory != home.blobs:
            os.stat(directory)  # as long as its disk is not mounted, there is none, which is not an empty one
        return numbers_used(home, (*blobs.names("checkpoints"), *blobs.names("artifacts")))
    except FileNotFoundError as error:
        hint = f"mount it, or if nothing was ever stored there: mkdir -p {directory}   then: tm up"
        raise OperationError(f"{what}: {error}", hint) from error
    except (OSError, TrainmasterError) as error:
        raise OperationError(f"{what}: {error}", "start again when the store answers: tm up") from error


def is_asked(home: Home) -> bool:
    """Whether control has not processed some accepted commands. Call it while no server runs. Raises: OperationError."""
    events, inbox = SqlEventStore(home.events_db, read_only=True), SqlInbox(home.inbox_db, read_only=True)
    try:
        return bool(inbox.pending(events.head().inbox_cursor))
    finally:
        inbox.close()
        events.close()


def _blobs(home: Home) -> Blobs:
    """The store that `server.toml` names. Raises: UsageError."""
    return open_blobs(configuration.load(home).storage, home)


def credential(secret: bytes, key: AgentKey | str) -> str:
    """The credential of one attempt's agent. It is derived from the secret, so it is not stored."""
    return hmac.new(secret, str(key).encode(), hashlib.sha256).hexdigest()


def server_secret(home: Home) -> bytes:
    """The bytes from which credentials are derived. The first process that needs them creates them.

    Raises: OperationError for a truncated file, because credentials from an empty secret can be guessed. OSError.
    """
    with home.lock("secret").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.lexists(home.secret_file):
            write_atomic(home.secret_file, secrets.token_bytes(_SECRET_BYTES))
    with open_regular(home.secret_file) as file:
        secret = file.read()
    if len(secret) != _SECRET_BYTES:
        hint = "put it back from a copy, or remove it: a new one is made, and agents that run are heard only at their end"
        raise OperationError(f"{home.secret_file} has {len(secret)} bytes, not {_SECRET_BYTES}", hint)
    return secret


def hold_alone(home: Home, which: str) -> TextIO:
    """Take the lock of one of the server's processes. If its holder was just killed, the lock is retried for a moment:
    the threads of a killed process end one by one. Raises: ConflictError if another process holds it.
    """
    lock = home.lock(which).open("a")
    deadline_s = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            troubles.keep(home, which)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                lock.close()
                raise ConflictError(f"another {which} process runs on {home.root}", "stop it with: tm down") from None
        time.sleep(0.01)


def hold_server(home: Home) -> socket.socket | None:
    """Claim a name on this machine that only one control process of a server can hold. It keeps a restored backup or a copy
    from running the same jobs at the same time. The name is freed when the process ends. None if the system has no such
    names; another network namespace (a container) has its own. Raises: OperationError if another home of the server holds it.
    """
    if sys.platform != "linux":
        return None
    name, deadline_s = f"\0trainmaster.{os.getuid()}.{server_id(home)}", time.monotonic() + _LOCK_S
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    while True:
        try:
            held.bind(name)
            return held
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                held.close()
                raise OperationError(f"could not claim the server's name on this machine: {error}") from error
            if time.monotonic() > deadline_s:
                held.close()
                what = f"another server runs on this machine; that, or {home.root}, is a copy or a restored backup of the other"
                raise OperationError(what, "both would run the same jobs: stop the other one for good (tm down)") from error
        time.sleep(0.01)


def guard_home(home: Home, which: str, lock: TextIO, databases: Sequence[Path] = ()) -> None:
    """End this process when its lock or one of its open databases is removed or replaced: its writes would be lost."""
    opened = {home.lock(which): os.fstat(lock.fileno()).st_ino, **{path: inode(path) for path in databases}}
    guard(lambda: any(is_another(path, number) for path, number in opened.items()), lambda: _end_without_home(home, which))


def _end_without_home(home: Home, which: str) -> None:
    """This process's home or log was removed or replaced: end without cleanup, because the files there are not ours."""
    _log.error("%s or a database in it is gone or another one now; so is this process, %s", home.root, which)
    if which in BESIDE:
        os.kill(os.getpid(), signal.SIGTERM)  # its handler also ends the MLflow server that it started
    else:
        os._exit(0)


def control_main(home: Home, started: Callable[[], None] = lambda: None) -> int:
    """Run the control process, alone under its lock, until SIGTERM. `started` is called when the inventory is recorded.

    Raises: ConflictError if another control process has this home.
    """
    lock = hold_alone(home, "control")
    ending: list[int] = []
    waker = DatagramWaker(home.socket("control.wake"))

    def end(number: int, frame: FrameType | None) -> None:
        ending.append(number)
        waker.wake()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    loop = build_control(home, waker)
    held = hold_server(home)
    guard_home(home, "control", lock, (home.events_db, home.inbox_db))
    try:
        start_spawner(home)  # so that it is warm when the first job arrives
    except (OSError, OperationError) as error:
        _log.warning("no spawner could be started, agents start by exec: %s", error)
    loop.load()
    loop.follow_clock()
    loop.tick(loop.clock.now_s())
    started()
    loop.run(waker, lambda: not ending)
    if held is not None:
        held.close()
    lock.close()
    return 0


def build_control(home: Home, waker: DatagramWaker) -> ControlLoop:
    """The control loop with its real adapters. On a full disk the start uses the reserve."""
    return reserve(home).persistently(lambda: _build_control(home, waker))


def _build_control(home: Home, waker: DatagramWaker) -> ControlLoop:
    migrate(home, server_id(home))
    kept, workers = reserve(home), Threads(waker.wake)
    events = SqlEventStore(home.events_db, release=kept.release)
    secret = server_secret(home)
    loops: list[ControlLoop] = []

    def agent_ended() -> None:
        for loop in loops:
            loop.watch.probe = True
        waker.wake()

    engine = LocalEngine(home, replace(_settings(home), run_server=run_server(home)), agent_ended)
    runner = EffectRunner(engine, _blobs(home), lambda key: credential(secret, key), workers, kept.release)
    api_socket = home.socket("api.wake")
    clock = SteadyClock(events.load_live().last_now_s, home.root / "clock.json", partial(clock_steps.is_recorded, events))
    inbox = SqlInbox(home.inbox_db, read_only=True)
    recorder = Recorder(events, lambda: poke(api_socket), DiskWatch(kept, workers, str(home.root)))
    loop = ControlLoop(recorder, inbox, runner, clock, Random())
    loop.steps, loop.contact.heard = clock, partial(last_heard, home)
    loops.append(loop)
    return loop


def last_heard(home: Home, key: AgentKey) -> float | None:
    """Time of an agent's last heartbeat in seconds since the epoch; None if there was none, infinite if it cannot be read."""
    try:
        with closing(SqlMetricStore(home.metrics_db, read_only=True)) as metrics:
            return next((row.time_s for row in metrics.heartbeats(key.job) if row.key == str(key)), None)
    except TrainmasterError as error:
        _log.warning("when %s was last heard of cannot be read: %s", key, error)
        return math.inf


def server_id(home: Home) -> str:
    """The id of this server, stable if its home is moved or restored: the first part of the home's id.

    If there is no id yet, it is derived from the secret without revealing it.
    """
    return home.identity().partition(".")[0] or credential(server_secret(home), "server id")[:16]


def run_server(home: Home) -> Callable[[int], str]:
    """What distinguishes the ids of runs from those of other servers (`wire.runs`), by the number of the job (`Job.seq`).

    It is the server's id; for a job after a restore, the id that the home got then: the lost home may have given the job's name
    to another job, whose run is still in the trackers.
    """
    server, restores = server_id(home), list((home.read_json(home.restores_json) or {}).items())
    return lambda seq: next((id for id, last in reversed(restores) if seq > last), server)


def runs_of(home: Home, job: str) -> dict[str, str]:
    """Where a job's runs can be viewed: tracker -> URL or directory. Raises: OperationError."""
    if not home.mirror_db.exists():
        return {}
    with closing(MirrorFile(home.mirror_db, read_only=True)) as file:
        return file.urls(job)


def _settings(home: Home) -> LocalSettings:
    """The settings given to `tm up`. Raises: UsageError for an invalid file, which is never ignored."""
    settings = home.read_json(home.settings_json)
    hint = "correct it, or remove it and repeat the options: tm up --nodes N --gpus-per-node N"
    if settings is None and home.settings_json.exists():
        raise UsageError(f"{home.settings_json} is not a JSON object", hint)
    try:
        told = LocalSettings.of(settings or {})
    except ValueError as error:
        raise UsageError(f"{home.settings_json}: {error}", hint) from error
    configured = configuration.load(home)
    pickle_projects = tuple(name for name, project in configured.projects.items() if project.pickle_models)
    directory = configured.storage.directory(home)
    told = replace(told, blob_root=str(directory or home.cache), remote_store=directory is None)
    return replace(told, pickle_projects=pickle_projects, declared=configured.nodes)


def rendered(spec: JobSpec, origin: Mapping[str, Any], in_place: bool) -> list[str]:
    """The launch files of a job for the local engine, one text per node; nodes, id and credentials are placeholders."""
    spec = replace(spec, environment=replace(spec.environment, variables=without_secrets(spec.environment.variables)))
    home, each = Home.default(), spec.resources.chosen(0)
    devices = tuple(range(each.devices))
    share = NodeShare("", "127.0.0.1", each.cpus, each.memory_bytes or 0, devices, gpu_share=each.gpu_share)
    shares = tuple(replace(share, node=f"node-{n}") for n in range(each.nodes))
    attempt = Attempt(1, Allocation(shares), 0.0, tuple(NodeRun() for _ in shares))
    code = CodeCopy(in_place=in_place)
    job = Job(f"{spec.experiment}-0", 1, spec, Origin(**origin), code, 0.0, State.STARTING, "", 0.0, attempt=attempt)
    site = Site(home, _settings(home), real_devices=True, sdk=sdk_directory(str(home.sdk)))
    return [render(Submission(attempt.key(job.id, n), job, ""), site) for n in range(each.nodes)]


def replay_report(home: Home) -> list[str]:
    """Findings of `tm doctor --replay`: broken links of the hash chain, and projections that differ from the replayed log."""
    with closing(SqlEventStore(home.events_db, read_only=True)) as store:
        return [*verify_chain(store), *replay(store, _fold, _fold_node, ledger_fold())]


def files_report(home: Home) -> list[Found]:
    """Findings of `tm doctor` for each database."""
    return check_files(home)


def ledger_fold() -> Enter:
    """The function that computes each event's ledger entries during a replay of the log from its beginning."""
    usage: dict[Member, Account] = {}
    rules = Cluster()

    def enter(job: Job | None, recorded: Recorded) -> Sequence[Entry]:
        nonlocal rules
        if isinstance(recorded.event, ClusterConfigured):
            before, rules = rules, recorded.event.cluster
            return charging.reconfigured(usage, before, rules, recorded.now_s)
        if job is None and isinstance(recorded.event, ClockSet):
            return charging.clock_set(usage, recorded.event.by_s)
        if job is None:
            return ()
        return charging.entries(usage, rules, job, cast(JobEvent, recorded.event), recorded.now_s)

    return enter


def _fold(job: Job | None, recorded: Recorded) -> Job:
    return apply(job, recorded.job or "", cast(JobEvent, recorded.event), recorded.now_s)[0]


def _fold_node(node: Node | None, recorded: Recorded) -> Node:
    return apply_node(node, cast(NodeSeen | NodeStateSet, recorded.event))
