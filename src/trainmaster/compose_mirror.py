"""Builds and runs the mirror process. Separate from `compose`, because no other process loads its adapters."""

import importlib.util
import json
import signal
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

from trainmaster import configuration, live_processes
from trainmaster.blobs.factory import open_blobs
from trainmaster.compose import guard_home, hold_alone, run_server
from trainmaster.errors import UsageError
from trainmaster.home import Home
from trainmaster.ports.tracker import Tracker
from trainmaster.store.metrics.feed import SqlFeed
from trainmaster.store.migrate import migrate_files
from trainmaster.store.mirror_state import ChangeLog, MirrorFile
from trainmaster.tracking.artifacts import ArtifactCopier
from trainmaster.tracking.follower import Follower
from trainmaster.tracking.mirror import Mirror
from trainmaster.tracking.mlflow_server import MlflowServer
from trainmaster.tracking.sources import Sources

_PACKAGES = {"mlflow": "mlflow-skinny"}  # only the client


def mirror_main(home: Home, started: Callable[[], None] = lambda: None) -> int:
    """Run the mirror process, alone under its lock, until SIGTERM. `started` is called when it has begun.

    Raises: ConflictError; UsageError if something it needs is not installed or configured.
    """
    lock = hold_alone(home, "mirror")
    guard_home(home, "mirror", lock, (home.metrics_db,))  # which the api replaces if it is damaged
    configured = configuration.load(home)
    for sink in configured.all_sinks:
        if importlib.util.find_spec(sink) is None:
            hint = f"install it in the environment of tm: pip install {_PACKAGES.get(sink, sink)}"
            raise UsageError(f"runs are to be mirrored into {sink}, and {sink} is not installed", hint)
    mirror = Mirror(_followers(home, configured, _mlflow_uri(home, configured)), home.mirror_json)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: mirror.stop())
    started()
    code = mirror.run()
    lock.close()
    return code


def _mlflow_uri(home: Home, configured: configuration.Configuration) -> str | None:
    """The URI of the MLflow server: the one in `server.toml`, else our own, which is started here. Raises: UsageError."""
    if configuration.runs_mlflow(home):
        port = (home.read_json(home.settings_json) or {}).get("mlflow_port")
        server = MlflowServer(home, port, lambda own, url: live_processes.enter(home, "mlflow", own, {"mlflow_url": url}))
        server.start()
        server.watch(lambda: (home.root / "stopping").exists())
        if configured.tracking.mlflow is None:
            migrate_files({"mirror": home.mirror_db})
            with closing(MirrorFile(home.mirror_db)) as file:
                file.moved("mlflow", server.url)
        return configured.tracking.mlflow or server.url
    if "mlflow" in configured.all_sinks and configured.tracking.mlflow is None:
        hint = 'name one, [tracking] mlflow = "http://…", or have one run: tm up --mlflow'
        raise UsageError(f"{configured.source}: runs are to be mirrored into MLflow, and no server is named", hint)
    return configured.tracking.mlflow


def _followers(home: Home, configured: configuration.Configuration, mlflow: str | None) -> dict[str, Callable[[], Follower]]:
    """A factory of a follower for each tracker. The tracker's own thread loads its imports."""
    migrate_files({"mirror": home.mirror_db})
    file, log, feed = MirrorFile(home.mirror_db), ChangeLog(home.events_db), SqlFeed(home.metrics_db)
    blobs = open_blobs(configured.storage, home)
    copier = ArtifactCopier(log.artifacts, lambda job, one: blobs.open(f"artifacts/{job}/{one.digest}"), home.root / "scratch")

    def make(sink: str) -> Follower:
        projects = sorted((name, sink in configured.sinks(name)) for name in configured.projects)
        choice = json.dumps([projects, sink in configured.tracking.sinks, mlflow if sink == "mlflow" else None])
        sources = Sources(log, feed, run_server(home), choice, lambda project: sink in configured.sinks(project), copier)
        return Follower(_tracker(home, sink, configured, mlflow), file.of(sink), sources, time.monotonic)

    return {sink: partial(make, sink) for sink in configured.all_sinks}


def _tracker(home: Home, sink: str, configured: configuration.Configuration, mlflow: str | None) -> Tracker:
    """The adapter of a tracker. Its imports take seconds."""
    directory = home.root / (configured.tracking.directory or home.tracking)
    if sink == "tensorboard":
        from trainmaster.tracking.to_tensorboard import TensorboardTracker  # noqa: PLC0415

        return TensorboardTracker(directory / sink)
    if sink == "wandb":
        from trainmaster.tracking.to_wandb import WandbTracker  # noqa: PLC0415

        return WandbTracker(directory / sink)
    from trainmaster.tracking.to_mlflow import MlflowTracker  # noqa: PLC0415

    return MlflowTracker(mlflow or "")
