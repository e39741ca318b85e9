"""Run by Alembic for one store at a time, which `trainmaster.store.upgrade` selects."""

from alembic import context

from trainmaster.store.schema import STORES

store: str = context.config.attributes["store"]
engine = context.config.attributes["engine"].execution_options(writes=True)

with engine.connect() as connection:
    # Alembic assumes that SQLite's DDL is not transactional. It is, since the engine issues BEGIN itself.
    context.configure(
        connection=connection, target_metadata=STORES[store], transactional_ddl=True, transaction_per_migration=True
    )
    with context.begin_transaction():
        context.run_migrations(store=store)
