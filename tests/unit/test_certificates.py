"""The server's own authority and certificate: made once, renewed in time, never replaced behind anybody's back."""

import datetime
import socket
import ssl
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509

from trainmaster.cli.admin.server import elsewhere
from trainmaster.errors import OperationError
from trainmaster.home import Home
from trainmaster.server.process import authority, certificates
from trainmaster.server.process.public_listener import split
from trainmaster.wire.tls import fingerprint, trusting

NAMES = frozenset(("gpu1", "10.0.0.7", "fd00::7", "bücher.example"))


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "x") -> str:
    """What a handshake between the two says: "" if it succeeds."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(ours, server_side=True).close()
        except OSError:
            ours.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client.wrap_socket(theirs, server_hostname=name).close()
        return ""
    except ssl.SSLError as error:
        return str(error)
    finally:
        theirs.close()
        thread.join()


def test_a_home_makes_its_authority_once(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first = authority.own(home, NAMES)
    made = first.chain.read_bytes()
    again = authority.own(home, NAMES)
    assert (again, again.chain.read_bytes()) == (first, made)
    assert {oct(path.stat().st_mode & 0o777) for path in home.tls.iterdir()} == {"0o600"}
    server, trusts = certificates.context_of(first), trusting(first.authority)
    assert shaken(server, trusts) == ""
    named = trusting(first.authority)
    named.check_hostname = True
    assert [shaken(server, named, name) for name in ("gpu1", "10.0.0.7", "fd00::7")] == ["", "", ""]
    assert "mismatch" in shaken(server, named, "gpu2")


def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    one, other = (authority.own(Home(tmp_path / name), NAMES) for name in ("a", "b") if (tmp_path / name).mkdir() is None)
    assert fingerprint(one.authority) != fingerprint(other.authority)
    assert "CERTIFICATE_VERIFY_FAILED" in shaken(certificates.context_of(other), trusting(one.authority))


def test_the_fingerprint_is_that_of_all_that_is_trusted(tmp_path: Path) -> None:
    """Somebody between appends their own authority to the one that is proved by its fingerprint."""
    for n in range(6):  # the end of its text differs with its length
        for name in (f"a{n}", "b"):
            (tmp_path / name).mkdir(exist_ok=True)
        one, other = (authority.own(Home(tmp_path / name), NAMES) for name in (f"a{n}", "b"))
        both = one.authority + other.authority
        for read in (fingerprint, trusting):
            with pytest.raises(ValueError, match="not one certificate"):
                read(both)


@pytest.mark.parametrize("change", ["names", "old", "cut", "other key"])
def test_a_certificate_that_does_not_fit_is_made_anew(tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    if change == "old":
        monkeypatch.setattr(authority, "_DAYS", 29)
    first = authority.own(home, NAMES)
    made = first.chain.read_bytes()
    monkeypatch.undo()
    if change == "cut":
        first.chain.write_bytes(made[:100])
    elif change == "other key":
        first.key.write_bytes((home.tls / "authority.key").read_bytes())
    names = NAMES | {"gpu9"} if change == "names" else NAMES
    again = authority.own(home, names)
    found = x509.load_pem_x509_certificate(again.chain.read_bytes())
    assert (again.chain.read_bytes() != made, again.authority) == (True, first.authority)
    assert found.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=300)
    assert shaken(certificates.context_of(again), trusting(first.authority)) == ""


@pytest.mark.parametrize("lost", ["authority.key", "authority.pem"])
def test_a_damaged_authority_is_told_and_not_replaced(tmp_path: Path, lost: str) -> None:
    """Everybody trusts it: another one would look like another server to all of them."""
    home = Home(tmp_path)
    authority.own(home, NAMES)
    (home.tls / lost).write_bytes(b"-----BEGIN")
    before = {path.name: path.read_bytes() for path in home.tls.iterdir()}
    with pytest.raises(OperationError, match="cannot be used"):
        authority.own(home, NAMES)
    assert {path.name: path.read_bytes() for path in home.tls.iterdir()} == before


@pytest.mark.parametrize("content", [b"garbage", b"\xff", None])
def test_what_tm_up_says_beside_a_damaged_authority(tmp_path: Path, content: bytes | None) -> None:
    """The server runs on with what it has read; the next start says what is wrong."""
    home = Home(tmp_path)
    authority.own(home, NAMES)
    (home.tls / "authority.pem").unlink()
    if content is not None:
        (home.tls / "authority.pem").write_bytes(content)
    assert elsewhere(home, "https://gpu1:8470") == ("tm login https://gpu1:8470", "")


def test_given_files_that_do_not_belong_together(tmp_path: Path) -> None:
    home = Home(tmp_path)
    made = authority.own(home, NAMES)
    for chain, key in ((made.chain, home.tls / "authority.key"), (tmp_path / "none", made.key), (made.key, made.chain)):
        with pytest.raises(OperationError, match="cannot be used as a certificate and its key"):
            certificates.context_of(certificates.Certificate(chain, key))


def test_a_renewed_certificate_is_used_by_a_listener_that_runs(tmp_path: Path) -> None:
    one, other = (authority.own(Home(tmp_path / name), NAMES) for name in ("a", "b") if (tmp_path / name).mkdir() is None)
    context = certificates.context_of(one)
    certificates.load(context, other)
    assert shaken(context, trusting(other.authority)) == ""
    with pytest.raises(OperationError):
        certificates.load(context, certificates.Certificate(one.chain, other.key))  # as somebody is replacing them
    assert shaken(context, trusting(other.authority)) == "", "the last that fits is used until then"


@pytest.mark.parametrize("days", [3650, -20_000])
def test_a_clock_that_was_wrong(tmp_path: Path, days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Wrong":
            return super().now(tz) + datetime.timedelta(days=days)  # type: ignore[return-value]

    with monkeypatch.context() as patch:
        patch.setattr(authority, "datetime", SimpleNamespace(datetime=Wrong, timedelta=datetime.timedelta, UTC=datetime.UTC))
        first = authority.own(Home(tmp_path), NAMES)
    again = authority.own(Home(tmp_path), NAMES)
    assert again.authority == first.authority
    assert shaken(certificates.context_of(again), trusting(again.authority)) == ""


@pytest.mark.parametrize("name", ["a" * 64, "a..b", "fe80::1%eth0", "a_b"])
def test_names_that_a_certificate_cannot_hold_are_left_out(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path)
    made = authority.own(home, NAMES | {name})
    before = made.chain.read_bytes()
    assert authority.own(home, NAMES | {name}).chain.read_bytes() == before
    assert shaken(certificates.context_of(made), trusting(made.authority)) == ""


@pytest.mark.parametrize(
    ("address", "read"),
    [
        ("0.0.0.0", ("0.0.0.0", 8470)), ("gpu1:9000", ("gpu1", 9000)), ("[fd00::7]:9000", ("fd00::7", 9000)), ("::", ("::", 8470)),
        ("[::]", ("::", 8470)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("gpu1:", ("gpu1", 8470)),
    ],
)  # fmt: skip
def test_addresses_to_listen_on(address: str, read: tuple[str, int]) -> None:
    assert split(address) == read


@pytest.mark.parametrize("address", [":9000", "gpu1:x", "gpu1:70000", "http://gpu1", "a@b", "", "[::", "gpu1:-1", "a b"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(OperationError, match="it is no address"):
        split(address)
