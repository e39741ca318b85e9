"""`tm up` and `tm down`: start and stop this machine's server."""

import re
import time
from collections.abc import Mapping

import click

from trainmaster import daemons, live_processes
from trainmaster.cli.admin.foreground import listen, stay
from trainmaster.cli.session import Session, quiet_option, remote
from trainmaster.client.api import Client, Row
from trainmaster.client.servers import embedded
from trainmaster.client.servers.settings import configured, is_loopback
from trainmaster.errors import TrainmasterError, UsageError
from trainmaster.home import Home
from trainmaster.wire.tls import fingerprint

_LIVE = ("starting", "running", "stopping")
_NAMED_MAX = 20
_CANCEL_S = 120.0  # ranks get 30 s of grace
_FILE = click.Path(exists=True, dir_okay=False, resolve_path=True)


def _kinds(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Check the names of kinds of GPU."""
    if value is None or all(re.fullmatch(r"[a-z][a-z0-9_.-]*", kind) for kind in value.split(",")):
        return value
    raise UsageError(f"{value!r} is not a list of kinds of GPU", "lower case, separated by commas: --gpu-kind a100,h100")


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Port on 127.0.0.1; default: the previous one, else a free one.")
@click.option("--listen", metavar="ADDRESS", help="Also listen for other machines, with TLS: 0.0.0.0, HOST:PORT; port 8470.")
@click.option("--tls-cert", type=_FILE, help="The certificate for that, in PEM with its chain; default: one of our own.")
@click.option("--tls-key", type=_FILE, help="Its key, in PEM.")
@click.option("--insecure", is_flag=True, help="Listen for other machines without TLS: everybody between can read all tokens.")
@click.option("--nodes", type=click.IntRange(0), help="Declare this many virtual nodes on this machine; 0: the real one.")
@click.option("--gpus-per-node", type=click.IntRange(0), help="Declare this many stand-in GPUs on each.")
@click.option("--gpu-kind", callback=_kinds, metavar="KIND[,…]", help="Their kind: a100; several alternate over the nodes.")
@click.option("--foreground", is_flag=True, help="Stay until SIGTERM, SIGINT or tm down: for systemd and containers.")
@click.option("--mlflow/--no-mlflow", default=None, help="Run an MLflow server beside it, and mirror all runs to it.")
@click.option("--mlflow-port", type=click.IntRange(1, 65535), help="Its port; default: the previous one, else a free one.")
@click.option("--new-log", is_flag=True, help="Start over after the event log was lost: keep old files aside, keep agents.")
@click.option("--failpoints", is_flag=True, help="Let $TRAINMASTER_FAILPOINT kill the server (tests only).")
@remote
def up(session: Session, foreground: bool, **declared: str | int | bool | None) -> None:
    """Start this machine's server, or restart its dead processes. Does nothing if it is running."""
    _refuse_other(session)
    _check_listener(declared)
    home, out = Home.default(), session.out
    stopping = listen() if foreground else None
    info = daemons.start(home, daemons.Options(**declared))  # type: ignore[arg-type]
    _say_up(session, home, info)
    _say_other(session, info.url)
    if stopping is not None:
        stay(home, out, stopping)


def _check_listener(given: Mapping[str, str | int | bool | None]) -> None:
    """Raises: UsageError if options for the listener do not fit together."""
    about = [name for name in ("tls_cert", "tls_key", "insecure") if given[name]]
    if about and not given["listen"]:
        raise UsageError(f"--{about[0].replace('_', '-')} is about the address that --listen names", "add --listen 0.0.0.0")
    if bool(given["tls_cert"]) != bool(given["tls_key"]):
        raise UsageError("--tls-cert and --tls-key belong together", "give both, or none for a certificate of our own")
    if given["insecure"] and given["tls_cert"]:
        raise UsageError("--insecure uses no certificate", "leave out --insecure, or --tls-cert and --tls-key")


def _say_up(session: Session, home: Home, info: live_processes.ServerInfo) -> None:
    out = session.out
    how, exposed = elsewhere(home, info.listens) if info.listens else ("", "")
    if exposed:
        out.warn(exposed)
    if out.json:
        more = {"mlflow": info.mlflow, "trouble": info.trouble or None, "listens": info.listens, "login": how or None}
        out.value({"url": info.url, "pids": info.pids, "home": str(home.root), "started": list(info.started), **more})
        return
    fresh = len(set(info.started) & set(live_processes.PROCESSES))
    what = "started" if fresh == len(live_processes.PROCESSES) else "restarted" if fresh else "already running"
    out.data(f"{what}: {info.url}")
    if info.listens:
        out.data(f"for other machines: {info.listens}")
        out.note(f"people with a token there: {how}")
    if info.mlflow:
        mirror_started = live_processes.BESIDE[0] in info.started
        out.data(f"MLflow: {info.mlflow}" + (" (ready in about half a minute)" if mirror_started else ""))
    if info.trouble:
        out.note(f"runs are not mirrored: {info.trouble}\njobs are not affected")
    virtual = declared_nodes(home)
    if virtual:
        out.note(virtual)
    out.note(f"its files: {home.root}\nnext: tm run -- python train.py   tm nodes   tm down")


def elsewhere(home: Home, url: str) -> tuple[str, str]:
    """(how people of other machines log in, a warning if others can read what they send)."""
    if url.startswith("http://"):
        warning = f"other machines reach {url} without encryption: an eavesdropper can use the tokens it sees"
        return f"tm login {url}", warning
    if (home.read_json(home.settings_json) or {}).get("tls_cert"):
        return f"tm login {url}", ""
    try:
        return f"tm login {url} --fingerprint {fingerprint((home.tls / 'authority.pem').read_text())}", ""
    except (OSError, ValueError):  # the next start says what is wrong with it
        return f"tm login {url}", ""


def declared_nodes(home: Home) -> str:
    """A sentence about nodes that are not real; empty if all are."""
    settings = home.read_json(home.settings_json) or {}
    nodes, gpus = settings.get("nodes"), settings.get("gpus_per_node")
    if not nodes and gpus is None:
        return ""
    count = nodes or 1
    devices = f" with {gpus} stand-in GPU{'s' * (gpus != 1)} each" if gpus else ""
    declared = f"{count} virtual node{'s' * (count != 1)}{devices}, declared for testing"
    return f"{declared}; for the real machine: tm down, then tm up --nodes 0"


@click.command()
@click.option("--cancel", "cancelling", is_flag=True, help="Cancel all jobs first.")
@quiet_option("Print only the ids of the jobs that keep running.")
@remote
def down(session: Session, cancelling: bool) -> None:
    """Stop this machine's server. Running jobs continue, and the next `tm up` manages them again."""
    _refuse_other(session)
    home, out = Home.default(), session.out
    info = live_processes.running(home)
    left: list[Row] = []
    if info is not None or (cancelling and home.events_db.exists()):
        left = _running_jobs(session, home, cancelling)
    report = daemons.stop(home)
    _tell(session, left, report, home)
    if not report.stopped:
        out.note(f"no server was running on {home.root}" + ("" if home.root.is_dir() else ", which does not exist"))
    _say_other(session, "" if info is None else info.url)


def _refuse_other(session: Session) -> None:
    """Raises: UsageError for `--server`: only this machine's own server is started and stopped."""
    if session.server:
        message = f"tm up and tm down are about this machine's own server, not {session.server}"
        raise UsageError(message, "leave out --server; $TRAINMASTER_HOME names the files of the own server")


def _say_other(session: Session, url: str) -> None:
    """Say that other commands do not use the server that was started or stopped."""
    try:
        target = configured()
    except TrainmasterError:
        return  # those commands will say what is wrong with it
    if target is None:
        return
    host, _, port = target.url.partition("://")[2].rpartition(":")
    if not (is_loopback(host) and port == url.rpartition(":")[2]):
        session.out.note(f"this is this machine's own server; other commands use {target.url}, which {target.source} names")


def _running_jobs(session: Session, home: Home, cancelling: bool) -> list[Row]:
    """Jobs that keep running without the server; with `cancelling`, all jobs are cancelled first."""
    try:
        own = embedded.ensure(home, session.out.note) if cancelling else embedded.attach(home)
        with Client(own.url, own.token, say=session.out.note) as client:
            if cancelling:
                session.out.note(f"cancelling all jobs of the server of {home.root}")
                _end_all(client, session)
            return client.jobs(all=1, state=_LIVE)
    except TrainmasterError as error:
        if cancelling:
            raise
        session.out.note(f"cannot tell which jobs keep running: {error.message}")
        return []


def _tell(session: Session, left: list[Row], report: daemons.StopReport, home: Home) -> None:
    out = session.out
    if out.json:
        out.value({"stopped": list(report.stopped), "killed": list(report.killed), "running": [job["id"] for job in left]})
    elif out.quiet:
        for job in left:
            out.data(job["id"])
    else:
        for job in left:
            out.data(f"{job['id']} keeps running on {', '.join(job['nodes'])}")
        if report.stopped:
            out.note(stopped(home, bool(left)))


def stopped(home: Home, working: bool) -> str:
    """Which server was stopped: one machine may have several. `working`: whether some of its jobs keep running."""
    return f"the server of {home.root} is stopped" + ("; to manage these jobs again: tm up" if working else "")


def _end_all(client: Client, session: Session) -> None:
    """Cancel every unfinished job and wait for the ends. Raises: WaitTimeoutError."""
    asked = [str(job["id"]) for job in client.cancel_many({"all": True}, "tm down --cancel") if "id" in job]
    for id in asked[:_NAMED_MAX]:
        session.out.note(f"cancelling {id}")
    if len(asked) > _NAMED_MAX:
        session.out.note(f"and {len(asked) - _NAMED_MAX:,} more")
    until_s = time.monotonic() + _CANCEL_S
    while left := client.jobs(limit=1, state=("held", "queued", *_LIVE)):
        client.wait(str(left[0]["id"]), max(0.0, until_s - time.monotonic()))
