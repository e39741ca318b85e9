"""Runs the missing schema revisions of a file. The only module that imports Alembic."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine

from trainmaster.store import migrations


def configuration(store: str = "events", engine: Engine | None = None) -> Config:
    """Alembic's configuration without an ini file; `migrations/env.py` reads `attributes`."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["store"] = store
    config.attributes["engine"] = engine
    return config


def upgrade(store: str, engine: Engine, revision: str = "head") -> None:
    """Migrate one store's file to `revision`, each step in its own transaction."""
    command.upgrade(configuration(store, engine), revision)
