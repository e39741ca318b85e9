"""`server.toml` is read completely, or rejected with the position and the nearest valid name."""

from pathlib import Path

import pytest

from trainmaster.configuration import Configuration, NodeSettings, ProjectSettings, StorageSettings, load, parse
from trainmaster.errors import UsageError
from trainmaster.home import Home

FILE = Path("server.toml")


def test_without_a_file_every_default_holds(tmp_path: Path) -> None:
    assert load(Home(tmp_path)) == Configuration()


def test_a_whole_file() -> None:
    text = """
idle_stop_s = 600
[storage]
url = "s3://team/runs"
[tracking]
sinks = ["mlflow"]
[nodes.custom]
license = 2
[projects.vision]
required_tags = ["owner", "task"]
sinks = ["tensorboard", "wandb"]
"""
    found = parse(text, FILE)
    vision = ProjectSettings(("owner", "task"), ("tensorboard", "wandb"))
    assert found.storage == StorageSettings(url="s3://team/runs")
    assert found.nodes == NodeSettings(custom={"license": 2})
    assert found.projects == {"vision": vision}
    assert found.idle_stop_s == 600
    assert (found.sinks("vision"), found.sinks("other")) == (("tensorboard", "wandb"), ("mlflow",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[storage]\nurl = 3\n", "server.toml:2: storage.url: expected a string, found 3"),
        ("\n[storag]\n", "server.toml:2: storag: there is no such setting"),
        ("[storage]\nurl='/a'\n[projects.vision]\nrequired_tag = []\n", "server.toml:4: projects.vision.required_tag: there is"),
        ("[tracking]\nsinks = ['mlflo']\n", "server.toml:2: tracking.sinks: there is no sink 'mlflo'"),
        ("storage = 1\n", "server.toml:1: storage: expected a table"),
        ("idle_stop_s = true\n", "server.toml:1: idle_stop_s: expected a number"),
        ("[nodes]\naccelerators = {tpu = 1.5}\n", "server.toml:2: nodes.accelerators: expected a table of whole numbers"),
        ("[storage]\n\nurl = 's3:/my-bucket'\n", "server.toml:3: storage.url: 's3:/my-bucket' is neither an absolute path nor a URL"),
        ("storage.url = 'S3//x/y'\n", "server.toml:1: storage.url: 'S3//x/y' is neither"),
        ("[storage]\nurl = 'blobs'\n", "server.toml:2: storage.url: 'blobs' is neither"),
        ("[storage]\nurl = 'S3://x/y'\n", "server.toml:2: storage.url: 'S3://x/y' is neither"),
        ("[storage]\nurl = 's3:///x'\n", "server.toml:2: storage.url: 's3:///x' is neither"),
        ("[storage]\nurl = ''\n", "server.toml:2: storage.url: '' is neither"),
        ("[nodes\n", "server.toml: Expected ']'"),
    ],
)
def test_a_wrong_file_says_where(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, FILE)
    assert said in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("url", ["/data", "s3://b", "s3a://b/p", "file:///data", "dir::file:///data", "gs://b/p", "memory://x"])
def test_a_store_is_a_directory_or_a_url(url: str) -> None:
    assert parse(f"[storage]\nurl = '{url}'\n", FILE).storage.url == url


def test_a_server_that_runs_mlflow_mirrors_every_project_that_does_not_name_its_trackers(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (tmp_path / "server.toml").write_text('[tracking]\nsinks = ["wandb"]\n[projects.quiet]\nsinks = []\n')
    assert load(home).all_sinks == ("wandb",)
    (tmp_path / "settings.json").write_text('{"mlflow": true}')
    found = load(home)
    assert (found.sinks("any"), found.sinks("quiet"), found.all_sinks) == (("mlflow", "wandb"), (), ("mlflow", "wandb"))


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 5000])
def test_a_value_that_no_parser_takes_is_refused_in_words(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"idle_stop_s = {value}", FILE)
    assert caught.value.message.startswith(f"{FILE}: ")
    assert len(caught.value.message) < 300
