"""Migrates a home's three files to this version's schema, forward only, and checks that they belong to one home.

A missing file is created at the head revision. Alembic is imported only for an older file, since its import costs more than
everything else (`docs/decisions/0002-three-stores.md`).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine

from trainmaster.home import Home
from trainmaster.store import schema
from trainmaster.store.database import create_tables, open_engine, read_version, refuse_unknown_version, translated
from trainmaster.store.identity import files, join, probe, refuse_lost


def migrate(home: Home, server: str = "") -> None:
    """Create or migrate the files of `home`, one process at a time. Cheap if there is nothing to do.

    `server` is the first part of the id of a home that has none yet. Raises: OperationError if a newer version wrote a file,
    or if files are lost or belong to another home (nothing is changed), DiskFullError.
    """
    home.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(home.lock("migrate")):
        absent = refuse_lost(home)
        probe(home)
        migrate_files(files(home))
        join(home, absent, server)


def migrate_files(paths: dict[str, Path]) -> None:
    """Like `migrate` for the given files (by store name), without the lock."""
    engines = {store: open_engine(path, shrinks=store in schema.SHRINKING) for store, path in paths.items()}
    try:
        older: dict[str, Engine] = {}
        versions = {}
        for store, engine in engines.items():
            with translated(paths[store]):
                versions[store] = read_version(engine)
            refuse_unknown_version(versions[store], paths[store])
        for store, engine in engines.items():
            if versions[store] is None:
                with translated(paths[store]):
                    create_tables(engine, store)
            elif versions[store] != schema.HEAD:
                older[store] = engine
        if older:
            _upgrade(older, paths)
    finally:
        for engine in engines.values():
            engine.dispose()


def _upgrade(engines: dict[str, Engine], paths: dict[str, Path]) -> None:
    from trainmaster.store.upgrade import upgrade  # noqa: PLC0415  Alembic, which a home at the head never needs

    for store, engine in engines.items():
        with translated(paths[store]):
            upgrade(store, engine)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
