"""The only module that names every adapter: which stores, which engine, which policy make up a server."""

import errno
import fcntl
import hashlib
import hmac
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, TextIO, cast

from trainmaster import configuration, troubles
from trainmaster.blobs.factory import open_blobs
from trainmaster.control import charging, clock_steps
from trainmaster.control.clock import SteadyClock
from trainmaster.control.disk_watch import DiskWatch
from trainmaster.control.effect_runner import EffectRunner
from trainmaster.control.loop import ControlLoop
from trainmaster.control.wakeup import DatagramWaker, poke
from trainmaster.control.workers import Threads
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.local.render import render
from trainmaster.engines.local.settings import LocalSettings, Site
from trainmaster.engines.local.starting import start_spawner
from trainmaster.errors import ConflictError, OperationError, TrainmasterError, UsageError
from trainmaster.home import Home, open_regular, write_atomic
from trainmaster.lifecycle.machine import apply
from trainmaster.lifecycle.nodes import apply_node
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
from trainmaster.presence import BESIDE
from trainmaster.reserve import Reserve
from trainmaster.scheduling.share import Account, Member
from trainmaster.store.events import SqlEventStore
from trainmaster.store.file_checks import Found, check_files
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
    """What the api process reads and writes."""

    home: Home
    events: SqlEventStore  # read only: control writes it
    inbox: SqlInbox
    metrics: SqlMetricStore
    blobs: Blobs
    tokens: SqlTokens


def reserve(home: Home) -> Reserve:
    """What of the disk is kept for ending things."""
    return Reserve(home, int(configuration.load(home).storage.reserve_mib * 1024**2))


def open_api(home: Home) -> ApiStores:
    """The stores as the api needs them, migrated. A start on a full disk uses the reserve too."""
    return reserve(home).persistently(lambda: _open_api(home))


def _open_api(home: Home) -> ApiStores:
    migrate(home, server_id(home))
    events = SqlEventStore(home.events_db, read_only=True)
    inbox = SqlInbox(home.inbox_db, release=reserve(home).release)
    inbox.keep_ahead(events.head().inbox_cursor, events.numbers())  # should it be an older copy than the log
    return ApiStores(home, events, inbox, SqlMetricStore(home.metrics_db), _blobs(home), SqlTokens(home.inbox_db))


def is_asked(home: Home) -> bool:
    """Whether commands were accepted that control has not taken up; asked while no server runs. Raises: OperationError."""
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
    """The credential of one attempt's agent: derived, so that nobody stores it."""
    return hmac.new(secret, str(key).encode(), hashlib.sha256).hexdigest()


def server_secret(home: Home) -> bytes:
    """The bytes that credentials are derived from; made at first start, by whichever process comes first.

    Raises: OperationError for a file that was cut short: anybody could work out what an empty one gives. OSError.
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
    """The lock of one of the server's processes. One killed a moment ago may need another to let go of it: its threads
    end one by one, and it counts as dead from the first. Raises: ConflictError when another process holds it.
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
    """A name of this machine that one control process of a server holds: neither a restored backup nor a copy runs the same
    jobs beside it. It goes with the process. None where there are no such names; processes of other network namespaces
    (containers) have names of their own. Raises: OperationError when another home of the same server has it.
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
                raise OperationError(f"no name of this machine can be had: {error}") from error
            if time.monotonic() > deadline_s:
                held.close()
                what = f"another server runs on this machine; that, or {home.root}, is a copy or a restored backup of the other"
                raise OperationError(what, "both would run the same jobs: stop the other one for good (tm down)") from error
        time.sleep(0.01)


def guard_home(home: Home, which: str, lock: TextIO, databases: Sequence[Path] = ()) -> None:
    """End this process once its lock, or a database that it has open, is removed or replaced: what it took would be lost."""
    opened = {home.lock(which): os.fstat(lock.fileno()).st_ino, **{path: inode(path) for path in databases}}
    guard(lambda: any(is_another(path, number) for path, number in opened.items()), lambda: _end_without_home(home, which))


def _end_without_home(home: Home, which: str) -> None:
    """The home of this process, or its log, was removed or replaced. Nothing is tidied up: what lies there is another's."""
    _log.error("%s or a database in it is gone or another one now; so is this process, %s", home.root, which)
    if which in BESIDE:
        os.kill(os.getpid(), signal.SIGTERM)  # it ends the MLflow server that it has started
    else:
        os._exit(0)


def control_main(home: Home, started: Callable[[], None] = lambda: None) -> int:
    """The control process: alone under its lock, until TERM. `started` is called once the inventory is on record.

    Raises: ConflictError when another control process has this home.
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
        start_spawner(home)  # warm by the time the first job comes
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
    """The loop with its real adapters. A start on a full disk uses the reserve too."""
    return reserve(home).persistently(lambda: _build_control(home, waker))


def _build_control(home: Home, waker: DatagramWaker) -> ControlLoop:
    migrate(home, server_id(home))
    kept, workers = reserve(home), Threads(waker.wake)
    events = SqlEventStore(home.events_db, release=kept.release)
    secret = server_secret(home)
    loops: list[ControlLoop] = []

    def agent_ended() -> None:
        for loop in loops:
            loop.probe = True
        waker.wake()

    engine = LocalEngine(home, replace(_settings(home), server=server_id(home)), agent_ended)
    runner = EffectRunner(engine, _blobs(home), lambda key: credential(secret, key), workers, kept.release)
    api_socket = home.socket("api.wake")
    clock = SteadyClock(events.load_live().last_now_s, home.root / "clock.json", partial(clock_steps.is_recorded, events))
    inbox = SqlInbox(home.inbox_db, read_only=True)
    loop = ControlLoop(events, inbox, runner, clock, lambda: poke(api_socket), Random())
    loop.steps, loop.heard = clock, partial(last_heard, home)
    loop.disk_watch = DiskWatch(kept, workers, str(home.root))
    loops.append(loop)
    return loop


def last_heard(home: Home, key: AgentKey) -> float | None:
    """When an agent last told how it is doing, in seconds since the epoch; None where it never did, or nobody can say."""
    try:
        with closing(SqlMetricStore(home.metrics_db, read_only=True)) as metrics:
            return next((row.time_s for row in metrics.heartbeats(key.job) if row.key == str(key)), None)
    except TrainmasterError as error:
        _log.warning("when %s was last heard of cannot be read: %s", key, error)
        return None


def server_id(home: Home) -> str:
    """Which server this is for trackers, wherever its home is moved or restored: the first part of the home's id.

    Where there is none yet it is derived from the secret, of which it tells nothing.
    """
    return home.identity().partition(".")[0] or credential(server_secret(home), "server id")[:16]


def runs_of(home: Home, job: str) -> dict[str, str]:
    """Where a job's runs can be looked at: tracker -> URL or directory. Raises: OperationError."""
    if not home.mirror_db.exists():
        return {}
    with closing(MirrorFile(home.mirror_db, read_only=True)) as file:
        return file.urls(job)


def _settings(home: Home) -> LocalSettings:
    """What `tm up` was told. Raises: UsageError for a file that cannot be understood: it is not ignored."""
    settings = home.read_json(home.settings_json)
    hint = "correct it, or remove it and say it again: tm up --nodes N --gpus-per-node N"
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
    """What the local engine would be given of a job, one text per node; nodes, id and credentials are stand-ins."""
    spec = replace(spec, environment=replace(spec.environment, variables=without_secrets(spec.environment.variables)))
    home, each = Home.default(), spec.resources.chosen(0)
    devices = tuple(range(each.devices))
    share = NodeShare("", "127.0.0.1", each.cpus, each.memory_bytes or 0, devices, gpu_share=each.gpu_share)
    shares = tuple(replace(share, node=f"node-{n}") for n in range(each.nodes))
    attempt = Attempt(1, Allocation(shares), 0.0, tuple(NodeRun() for _ in shares))
    code = CodeCopy(in_place=in_place)
    job = Job(f"{spec.experiment}-0", 1, spec, Origin(**origin), code, 0.0, State.STARTING, "", 0.0, attempt=attempt)
    site = Site(home, _settings(home), real_devices=True)
    return [render(Submission(attempt.key(job.id, n), job, ""), site) for n in range(each.nodes)]


def replay_report(home: Home) -> list[str]:
    """What `tm doctor --replay` found: broken links of the hash chain, projections that differ from the folded log."""
    with closing(SqlEventStore(home.events_db, read_only=True)) as store:
        return [*verify_chain(store), *replay(store, _fold, _fold_node, ledger_fold())]


def files_report(home: Home) -> list[Found]:
    """What `tm doctor` found of each database."""
    return check_files(home)


def ledger_fold() -> Enter:
    """What each event enters into the ledger, the log taken from its beginning."""
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
        return charging.entries(usage, rules.half_life_s, job, cast(JobEvent, recorded.event), recorded.now_s)

    return enter


def _fold(job: Job | None, recorded: Recorded) -> Job:
    return apply(job, recorded.job or "", cast(JobEvent, recorded.event), recorded.now_s)[0]


def _fold_node(node: Node | None, recorded: Recorded) -> Node:
    return apply_node(node, cast(NodeSeen | NodeStateSet, recorded.event))
