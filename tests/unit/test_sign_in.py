"""What `tm login` keeps in a person's own file, and what `tm logout` takes out of it again."""

import tomllib
from pathlib import Path

import pytest

from trainmaster.client.servers import sign_in
from trainmaster.client.servers.settings import configured, own_file
from trainmaster.errors import UsageError


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's file, and a work directory without settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TRAINMASTER_SERVER", "TRAINMASTER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    own_file().parent.mkdir(parents=True)
    return own_file()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("HTTPS://GPU1:8470/", "https://gpu1:8470"), (" https://gpu1 ", "https://gpu1"), ("https://[FD00::7]:1", "https://[fd00::7]:1"),
        ("https://gpu1/tm/api/v1/", "https://gpu1/tm"), ("http://127.0.0.1:8470", "http://127.0.0.1:8470"),
    ],
)  # fmt: skip
def test_a_url_is_kept_as_every_command_can_use_it(given: str, kept: str) -> None:
    assert sign_in.normal(given) == kept
    sign_in.keep(kept, "tm_1", "")
    target = configured()
    assert target is not None
    assert (target.url, target.token) == (kept, "tm_1")


@pytest.mark.parametrize("url", ["gpu1:8470", "https://ada:pw@gpu1", "https://gpu1/?a=b", "https://gpu1#x", "https://a..b", "https://a b", "https://"])
def test_a_url_that_is_none_of_a_server(url: str) -> None:
    with pytest.raises(UsageError, match="is no URL of a server"):
        sign_in.normal(url)


def test_the_token_of_another_server_stays_with_it(own: Path) -> None:
    own.write_text('server = "http://old"\ntoken = "tm_old"\n# mine\n[tags]\nowner = "ada"\n')
    own.chmod(0o600)
    sign_in.keep("https://new", "tm_new", "")
    assert tomllib.loads(own.read_text()) == {
        "server": "https://new", "tokens": {"http://old": "tm_old", "https://new": "tm_new"}, "tags": {"owner": "ada"},
    }  # fmt: skip
    assert "# mine" in own.read_text()
    old = configured("http://old")
    assert old is not None
    assert old.token == "tm_old"


def test_what_a_person_wrote_with_a_slash_goes_too(own: Path) -> None:
    own.write_text('server = "https://b/"\n[tokens]\n"https://b/" = "tm_1"\n"https://c" = "tm_2"\n')
    assert sign_in.forget("https://b") == "https://b"
    assert tomllib.loads(own.read_text()) == {"tokens": {"https://c": "tm_2"}}
    assert sign_in.forget(None) is None


def test_a_link_to_the_file_stays_one(own: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfiles.toml").write_text("# kept in version control\n")
    own.symlink_to(tmp_path / "dotfiles.toml")
    sign_in.keep("https://b", "tm_1", "")
    assert own.is_symlink()
    assert "tm_1" in (tmp_path / "dotfiles.toml").read_text()
    assert (tmp_path / "dotfiles.toml").stat().st_mode & 0o777 == 0o600
