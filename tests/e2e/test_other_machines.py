"""The server for other machines: TLS from an authority of its own, `tm login` and `tm logout`, and who is turned away."""

import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Said, Tm, server

from trainmaster.agent.transport.sync import Client as AgentClient
from trainmaster.agent.transport.sync import Refused as AgentRefused
from trainmaster.compose import credential, server_secret
from trainmaster.home import Home
from trainmaster.server.process.authority import own
from trainmaster.wire.tls import trusting


class Person:
    """Somebody on another machine: no home there, and settings of its own."""

    def __init__(self, directory: Path) -> None:
        self.settings = directory / "person" / "trainmaster" / "trainmaster.toml"
        self.work = directory / "elsewhere"
        self.work.mkdir()
        taken = ("TRAINMASTER_SERVER", "TRAINMASTER_TOKEN", "TRAINMASTER_HOME")
        self.environment = {name: value for name, value in os.environ.items() if name not in taken}
        self.environment |= {"XDG_CONFIG_HOME": str(directory / "person"), "XDG_STATE_HOME": str(directory / "none")}

    def __call__(self, *arguments: str, said: str = "") -> Said:
        """Run `tm` with `said` as its standard input."""
        done = subprocess.run(
            [sys.executable, "-m", "trainmaster", *arguments], cwd=self.work, env=self.environment, input=said.encode(),
            capture_output=True, timeout=60.0, check=False,
        )  # fmt: skip
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def tm(tmp_path: Path) -> Iterator[Tm]:
    with server(tmp_path) as tm:
        tm.ok("down")
        yield tm


def up(tm: Tm, *more: str) -> dict[str, Any]:
    return json.loads(tm.ok("up", "--listen", "127.0.0.1:0", "--json", *more))  # type: ignore[no-any-return]


def test_a_person_logs_in_works_and_logs_out(tm: Tm, tmp_path: Path) -> None:
    info, ada = up(tm), Person(tmp_path)
    url, login = info["listens"], info["login"].split()[1:]
    token = tm.ok("token", "create", "-q", "ada").strip()
    assert url.startswith("https://127.0.0.1:")
    refused = ada("login", url, "--token-stdin", said=token)
    assert (refused.code, "with the fingerprint sha256:" in refused.err, ada.settings.exists()) == (4, True, False)
    refused = ada("login", url, "--fingerprint", "sha256:" + 64 * "0", "--token-stdin", said=token)
    assert (refused.code, "another server answers there" in refused.err, ada.settings.exists()) == (4, True, False)
    refused = ada(*login, "--token-stdin", said="tm_wrong")
    assert (refused.code, "does not know this token" in refused.err, ada.settings.exists()) == (4, True, False)

    assert ada(*login, "--token-stdin", said=token).out == f"logged in to {url} as ada (member)\n"
    assert ada.settings.stat().st_mode & 0o777 == 0o600
    (ada.work / "train.py").write_text("print('step 1 loss 0.5')\n")
    ran = ada("run", "--name", "far", "--", sys.executable, "train.py")
    assert (ran.code, ran.out) == (0, "step 1 loss 0.5\n")
    assert json.loads(ada("show", "far", "--json").out)["member"] == "ada"
    tm.ok("down")
    tm.ok("up", "--listen", url.removeprefix("https://"))
    assert ada("ps", "-q").out == "far-1\n", "the authority is the same after a restart"

    assert ada("logout").out == f"logged out of {url}\n"
    assert "tm_" not in ada.settings.read_text()
    assert ada("logout").code == 3


def test_another_authority_is_not_believed(tm: Tm, tmp_path: Path) -> None:
    """Somebody answers at the server's address with a certificate of another authority."""
    info, ada = up(tm), Person(tmp_path)
    token = tm.ok("token", "create", "-q", "ada").strip()
    assert ada(*info["login"].split()[1:], "--token-stdin", said=token).code == 0
    tm.ok("down")
    for path in tm.home.tls.iterdir():
        path.unlink()
    port = info["listens"].rpartition(":")[2]
    tm.ok("up", "--listen", f"127.0.0.1:{port}")
    told = ada("ps")
    assert (told.code, "is not trusted" in told.err) == (7, True), told


def test_an_agent_on_another_machine_trusts_the_authority_of_its_launch_alone(tm: Tm, tmp_path: Path) -> None:
    info = up(tm)
    job = tm.submit("--name", "far", "--", "true")
    tm.ok("wait", job)
    key = f"{job}.1/n0"
    launch: Any = {
        "key": key, "credential": credential(server_secret(tm.home), key), "server_socket": None, "server_url": info["listens"],
        "server_authority": (tm.home.tls / "authority.pem").read_text(),
    }  # fmt: skip
    request = {"key": key, "reports": [], "points": [], "heartbeat": None, "wait_s": 0.0, "orders_seen": 0}
    assert AgentClient(launch).post(request, 10.0)["ack"] == 0
    with pytest.raises(AgentRefused, match="401"):
        AgentClient({**launch, "credential": "x"}).post(request, 10.0)
    other = own(Home(tmp_path), frozenset(("x",))).authority
    for authority in (other, None):
        with pytest.raises(ssl.SSLCertVerificationError):
            AgentClient({**launch, "server_authority": authority}).post(request, 10.0)


def test_what_does_not_speak_tls_is_turned_away(tm: Tm) -> None:
    """A connection that says nothing, one in the clear, and one of an old TLS hold up nobody."""
    info = up(tm)
    host, port = "127.0.0.1", int(info["listens"].rpartition(":")[2])
    silent = [socket.create_connection((host, port)) for _ in range(50)]
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=10)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)), socket.create_connection((host, port), timeout=10) as plain:
        old.wrap_socket(plain)
    trusts = trusting((tm.home.tls / "authority.pem").read_text())
    began_s = time.monotonic()
    with urllib.request.urlopen(f"{info['listens']}/healthz", timeout=10, context=trusts) as answer:
        assert json.load(answer)["status"] == "ok"
    assert time.monotonic() - began_s < 5.0
    with urllib.request.urlopen(f"{info['url']}/healthz", timeout=10) as answer:
        assert json.load(answer)["status"] == "ok", "and on its own machine it speaks HTTP as before"
    for one in silent:
        one.close()


def test_without_tls_only_if_told_so_in_so_many_letters(tm: Tm, tmp_path: Path) -> None:
    told = tm("up", "--listen", "127.0.0.1:0", "--insecure")
    assert (told.code, "without encryption" in told.err, "for other machines: http://127.0.0.1:" in told.out) == (0, True, True)
    url = told.out.split("for other machines: ")[1].split()[0]
    token = tm.ok("token", "create", "-q", "ada").strip()
    assert Person(tmp_path)("login", url, "--token-stdin", said=token).code == 0
    for wrong, words in (
        (("--insecure",), "--listen"),
        (("--listen", "0.0.0.0", "--tls-key", __file__), "belong together"),
        (("--listen", "0.0.0.0", "--insecure", "--tls-key", __file__, "--tls-cert", __file__), "--insecure uses no certificate"),
    ):
        refused = tm("up", *wrong)
        assert (refused.code, words in refused.err) == (2, True), refused


def test_a_given_certificate_that_is_none_is_told_at_the_start(tm: Tm) -> None:
    told = tm("up", "--listen", "127.0.0.1:0", "--tls-cert", __file__, "--tls-key", __file__)
    assert told.code != 0
    assert "cannot be used as a certificate and its key" in told.err
    assert "for other machines" not in tm.ok("up"), "what does not work is not kept"
