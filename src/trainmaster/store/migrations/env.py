"""Run by Alembic for one store at a time; `trainmaster.store.upgrade` says which."""

from alembic import context

from trainmaster.store.schema import STORES

store: str = context.config.attributes["store"]
engine = context.config.attributes["engine"].execution_options(writes=True)

with engine.connect() as connection:
    # Alembic takes SQLite's DDL for not transactional; it is, since the engine says BEGIN itself.
    context.configure(
        connection=connection, target_metadata=STORES[store], transactional_ddl=True, transaction_per_migration=True
    )
    with context.begin_transaction():
        context.run_migrations(store=store)
