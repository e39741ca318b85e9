"""The one module that imports Alembic: run the revisions that a file lacks."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine

from trainmaster.store import migrations


def configuration(store: str = "events", engine: Engine | None = None) -> Config:
    """Alembic's configuration, without an ini file; `migrations/env.py` reads `attributes`."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["store"] = store
    config.attributes["engine"] = engine
    return config


def upgrade(store: str, engine: Engine, revision: str = "head") -> None:
    """Bring one store's file forward to `revision`, each step in a transaction of its own."""
    command.upgrade(configuration(store, engine), revision)
