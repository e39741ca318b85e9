"""A message about a package that is not installed names one that pip can install: Trainmaster itself is on no index."""

import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest

from trainmaster import compose_mirror, configuration
from trainmaster.blobs.s3 import S3Blobs
from trainmaster.configuration import StorageSettings, TrackingSettings
from trainmaster.errors import UsageError
from trainmaster.home import Home
from trainmaster.server.process.public_listener import listen
from trainmaster.tracking.mlflow_server import MlflowServer

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture(autouse=True)
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    found = importlib.util.find_spec
    missing = ("mlflow", "flask", *configuration.SINKS)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in missing else found(name, *rest))


def package(extra: str) -> str:
    """The only package of an extra."""
    [requirement] = EXTRAS[extra]
    return str(requirement.partition(">")[0])


def test_s3() -> None:
    with pytest.raises(UsageError) as raised:
        S3Blobs(StorageSettings(url="s3://bucket/prefix"))
    assert "s3://bucket/prefix needs the package obstore" in raised.value.message
    assert raised.value.hint == f"install it in the environment of tm: pip install {package('s3')}"


def test_the_mlflow_server(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        MlflowServer(Home(tmp_path), None, lambda own, url: None)
    assert raised.value.hint == f"install it in the environment of tm: pip install {package('mlflow-server')}"


@pytest.mark.parametrize("sink", configuration.SINKS)
def test_a_tracker(sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored = configuration.Configuration(tracking=TrackingSettings(sinks=(sink,)))
    monkeypatch.setattr(configuration, "load", lambda home: mirrored)
    monkeypatch.setattr(compose_mirror, "hold_alone", lambda home, process: None)
    monkeypatch.setattr(compose_mirror, "guard_home", lambda home, process, lock, databases: None)
    with pytest.raises(UsageError) as raised:
        compose_mirror.mirror_main(Home(tmp_path))
    assert raised.value.hint == f"install it in the environment of tm: pip install {package(sink)}"


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "trainmaster.server.process.authority", raising=False)
    with pytest.raises(UsageError) as raised:
        listen(Home(tmp_path), {"listen": "127.0.0.1:0"})
    assert raised.value.message == f"--listen needs the package {package('tls')} to make a certificate"
    assert raised.value.hint.startswith(f"install it in the environment of tm: pip install {package('tls')}; ")
