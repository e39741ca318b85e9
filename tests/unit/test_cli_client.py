"""The client alone: which requests it retries, which errors it raises, and which server it finds."""

import io
import json
import os
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner
from contract_server import serving

from trainmaster.cli.admin.server import stopped
from trainmaster.cli.app import tm
from trainmaster.cli.session import Session
from trainmaster.client.api import Client
from trainmaster.client.connection import BY_CODE, Call, Connection, Patience, refusal
from trainmaster.client.metric_table import metrics_table
from trainmaster.client.servers.embedded import stays
from trainmaster.client.servers.settings import Target, code_paths, configured, said
from trainmaster.errors import (
    AuthenticationError,
    ConflictError,
    NotFoundError,
    OperationError,
    StaleAttemptError,
    UnreachableError,
    UsageError,
)
from trainmaster.home import Home


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TRAINMASTER_SERVER", "TRAINMASTER_TOKEN", "TRAINMASTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)



def test_a_submit_whose_answer_was_lost_is_sent_again_with_the_same_key() -> None:
    with serving(lambda _: None if len(server.asked) == 1 else (201, {"id": "digits-14"})) as server:
        with Client(server.url, "secret") as client:
            assert client.submit({"spec": {"command": "true"}}) == "digits-14"
        assert [one.line for one in server.asked] == ["POST /jobs", "POST /jobs"]
        assert server.asked[0].key == server.asked[1].key is not None
        assert server.asked[0].authorization == "Bearer secret"


def test_what_may_do_something_twice_is_not_sent_again() -> None:
    with serving(lambda _: None) as server:
        connection = Connection(server.url, "")
        with pytest.raises(UnreachableError, match="the connection broke"):
            connection.json(Call("POST", "/nodes/n0/drain", body=b"{}"))
        assert len(server.asked) == 1


def test_an_idle_connection_that_the_server_closed_is_opened_again_without_a_word() -> None:
    said: list[str] = []
    with serving(lambda _: None if len(server.asked) == 2 else (200, {"jobs": []})) as server:
        connection = Connection(server.url, "", Patience(on_wait=lambda: said.append("away")))
        answers = [connection.json(Call("GET", "/jobs")) for _ in range(2)]
    assert (answers, said, len(server.asked)) == ([{"jobs": []}] * 2, [], 3)


def test_nobody_listens() -> None:
    said: list[str] = []
    with serving(lambda _: (200, {})) as server:
        pass
    connection = Connection(server.url, "", Patience(0.3, on_wait=lambda: said.append("away")))
    with pytest.raises(UnreachableError, match="no server answers at"):
        connection.json(Call("GET", "/healthz"))
    hopeless = Connection(server.url, "", Patience(60.0, hope=lambda: False))
    with pytest.raises(UnreachableError):
        hopeless.json(Call("GET", "/healthz"))
    assert said == ["away"]


def test_refusals_become_the_errors_of_the_tree() -> None:
    told = refusal(404, b'{"error":{"code":"not_found","message":"m","hint":"h","details":[],"request_id":"r1"}}', "u")
    assert (type(told), told.message, told.hint, told.request_id) == (NotFoundError, "m", "h", "r1")
    assert type(refusal(410, b'{"error":{"code":"stale_attempt","message":"m"}}', "u")) is StaleAttemptError
    assert [type(refusal(status, b"<html>", "u")) for status in (401, 409, 502)] == [
        AuthenticationError, ConflictError, OperationError,
    ]  # fmt: skip
    odd = [refusal(404, json.dumps({"error": {"code": "x", "message": "m", "details": told}}).encode(), "u") for told in ("a", 3, [1, {}])]
    assert [(type(error), error.details) for error in odd] == [(NotFoundError, []), (NotFoundError, []), (NotFoundError, [{}])]
    assert {"usage", "spec", "not_found", "conflict", "unreachable", "disk_full"} <= BY_CODE.keys()


def test_something_else_answers() -> None:
    with serving(lambda _: (200, b"<html>")) as server, pytest.raises(OperationError, match="is not a Trainmaster server"):
        Client(server.url).healthz()


def test_an_artifact_is_copied_and_paths_are_quoted() -> None:
    with serving(lambda _: (200, b"\x00\xff" * 5)) as server:
        sink = io.BytesIO()
        assert (Client(server.url).artifact("@last", "out/a b#.bin", sink), sink.getvalue()) == (10, b"\x00\xff" * 5)
    assert server.asked[0].line == "GET /jobs/@last/artifacts/out/a%20b%23.bin"


def test_filters_that_were_not_given_are_not_sent() -> None:
    with serving(lambda _: (200, {"chunks": [], "cursor": "c", "state": "queued", "ended": False})) as server:
        Client(server.url).logs("a-1", rank=0, attempt=None, wait_s=0.5)
    assert server.asked[0].line == "GET /jobs/a-1/logs?rank=0&wait_s=0.5"


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_who_names_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert configured() is None
    own = write(tmp_path / "config/trainmaster/trainmaster.toml", 'server = "http://own:1"\ntoken = "t"\n')
    assert configured() == Target("http://own:1", "t", str(own))
    (tmp_path / "project/.git").mkdir(parents=True)
    (tmp_path / "project/below").mkdir()
    named = write(tmp_path / "project/pyproject.toml", '[tool.trainmaster]\nserver = "http://project:1/"\n')
    assert configured(directory=tmp_path / "project/below") == Target("http://project:1", "", str(named))
    monkeypatch.setenv("TRAINMASTER_SERVER", "http://variable:1")
    monkeypatch.setenv("TRAINMASTER_TOKEN", "v")
    assert configured(directory=tmp_path / "project") == Target("http://variable:1", "v", "$TRAINMASTER_SERVER")
    assert configured("http://said:1") == Target("http://said:1", "v", "--server")


def test_a_home_that_the_shell_names_goes_before_what_files_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server of its own, `export TRAINMASTER_HOME=$(mktemp -d)`: its jobs went to the server that a file names."""
    write(tmp_path / "config/trainmaster/trainmaster.toml", 'server = "http://own:1"\ntoken = "t"\n')
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    assert configured() is None
    assert next(place.source for place in said("server", tmp_path)) == "$TRAINMASTER_HOME"
    assert configured("http://own:1") == Target("http://own:1", "t", "--server")
    monkeypatch.setenv("TRAINMASTER_SERVER", "http://variable:1")
    assert configured() == Target("http://variable:1", "", "$TRAINMASTER_SERVER")


def test_a_project_cannot_collect_the_token_of_another_server(tmp_path: Path) -> None:
    own = 'server = "http://own:1"\ntoken = "t"\n[tokens]\n"http://b:2" = "u"\n'
    write(tmp_path / "config/trainmaster/trainmaster.toml", own)
    project = write(tmp_path / "trainmaster.toml", 'server = "http://evil:1"\ntoken = "ignored"\n')
    assert configured() == Target("http://evil:1", "", str(project))
    assert configured("http://b:2/") == Target("http://b:2", "u", "--server")


def test_a_token_goes_to_no_server_that_only_a_projects_file_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """S5: with TRAINMASTER_TOKEN set and no TRAINMASTER_SERVER, a cloned repository does not choose who gets the token."""
    project = write(tmp_path / "trainmaster.toml", 'server = "https://evil.example"\n')
    monkeypatch.setenv("TRAINMASTER_TOKEN", "v")
    with pytest.raises(AuthenticationError) as raised:
        configured()
    assert str(project) in raised.value.message
    assert "export TRAINMASTER_SERVER=https://evil.example" in raised.value.hint
    monkeypatch.delenv("TRAINMASTER_TOKEN")
    with pytest.raises(AuthenticationError, match="the token that was given"):
        configured(token="v")
    assert configured() == Target("https://evil.example", "", str(project))
    # Configured by the person: a token for this very server, or the server itself.
    monkeypatch.setenv("TRAINMASTER_TOKEN", "v")
    own = write(tmp_path / "config/trainmaster/trainmaster.toml", '[tokens]\n"https://evil.example/" = "its own"\n')
    assert configured() == Target("https://evil.example", "its own", str(project))
    write(own, 'server = "https://evil.example"\n')
    assert configured() == Target("https://evil.example", "v", str(project))
    own.unlink()
    monkeypatch.setenv("TRAINMASTER_SERVER", "https://evil.example")
    assert configured() == Target("https://evil.example", "v", "$TRAINMASTER_SERVER")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it stays until: tm down"),
        ("idle_stop_s = 0\n", "it stays until: tm down"),
        ("idle_stop_s = 5\n", "it stops after 5 s without requests and unfinished jobs"),
    ],
)
def test_a_server_that_was_started_says_how_long_it_stays(tmp_path: Path, text: str, told: str) -> None:
    write(tmp_path / "home/server.toml", text)
    assert stays(Home(tmp_path / "home")) == told


def test_a_token_over_plain_http_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """S5: a token that anyone on the way can read."""
    private = ("https://far", "http://127.0.0.1:1", "http://localhost:1/x", "http://[::1]:1", "http://a.localhost")
    open_to_all = ("http://far", "http://127.0.0.1.far:1", "http://localhost.far", "http://10.0.0.1", "http://u@far")
    assert [Target(url, "t", "").warning for url in private] == [""] * len(private)
    assert all("without encryption" in Target(url, "t", "").warning for url in open_to_all)
    assert Target("http://far", "", "").warning == ""
    with pytest.warns(UserWarning, match="without encryption"):
        Client("http://far.example", "t")
    monkeypatch.setenv("TRAINMASTER_TOKEN", "t")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        result = CliRunner().invoke(tm, ["--json", "--server", "http://far.invalid", "ps"], obj=Session())
    assert "without encryption" in result.stderr


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "config/trainmaster/trainmaster.toml", 'server = "http://own:1"\ntoken = "t"\n', 0o644)
    with pytest.raises(AuthenticationError, match="is readable by others"):
        configured()


def test_files_that_say_nonsense(tmp_path: Path) -> None:
    write(tmp_path / "trainmaster.toml", "server = [")
    with pytest.raises(UsageError, match="cannot be read"):
        configured()
    write(tmp_path / "trainmaster.toml", 'server = "host:8000"')
    with pytest.raises(UsageError, match="is not a URL"):
        configured()
    write(tmp_path / "trainmaster.toml", "tags = " + "[" * 100_000)
    with pytest.raises(UsageError, match="cannot be read"):
        configured()
    (tmp_path / "trainmaster.toml").unlink()
    for others in ("tool = 3", "[tool]\ntrainmaster = 3", "x = " + "[" * 100_000):
        write(tmp_path / "pyproject.toml", others)
        assert configured() is None
    write(tmp_path / "config/trainmaster/trainmaster.toml", "tokens = [1]")
    with pytest.raises(UsageError, match="tokens must be a table"):
        configured("http://a:1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('project = "x"\n[code]\nincldue = [".env"]\n', ":3: code.incldue: unknown key; did you mean 'include'?"),
        ('projct = "x"\n', ":1: projct: unknown key; did you mean 'project'?"),
        ("[cod]\nexclude = []\n", ": cod: unknown key; did you mean 'code'?"),
    ],
)
def test_a_misspelled_key_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path / "trainmaster.toml", text)
    with pytest.raises(UsageError) as refused:
        code_paths(tmp_path, "exclude")
    assert refused.value.message == f"{path}{said}"


def test_no_server_here_and_none_wanted() -> None:
    with pytest.raises(UnreachableError, match="no server is running") as raised:
        Client(start=False)
    assert raised.value.hint == "start one: tm up"
    assert not os.path.exists(os.environ["XDG_STATE_HOME"])


def test_a_table_of_metrics_starts_no_server() -> None:
    with pytest.raises(UnreachableError, match="no server is running"):
        metrics_table("digits-1")
    assert not os.path.exists(os.environ["XDG_STATE_HOME"])


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://127.0.0.1:x", "http://[::1", "http://a..b", "http://\u202ex:1", "http://a b"])
def test_what_is_no_url_is_refused_in_words(url: str) -> None:
    assert isinstance(Target(url, "token", "a test").warning, str)  # asked for before anything is sent
    with pytest.raises(UsageError, match="is no URL of a server"):
        Connection(url, "")


def test_an_answer_nested_too_deep_is_that_of_a_stranger() -> None:
    assert refusal(500, b"[" * 200_000, "http://x").message == "http://x answered 500"


@pytest.mark.parametrize("url", ["http://[::1]:8470", "http://a_b.example:1/below", "http://10.0.0.1", "http://bücher.example"])
def test_what_is_a_url(url: str) -> None:
    Connection(url, "")


def test_the_server_that_was_stopped_is_named_by_its_home(tmp_path: Path) -> None:
    assert stopped(Home.default(), False) == f"the server of {tmp_path / 'state/trainmaster'} is stopped"
    assert stopped(Home.default(), True) == f"the server of {tmp_path / 'state/trainmaster'} is stopped; to manage these jobs again: tm up"
