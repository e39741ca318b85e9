"""${message}"""

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade(store: str) -> None:
    {"events": upgrade_events, "inbox": upgrade_inbox, "metrics": upgrade_metrics}[store]()


def downgrade(store: str) -> None:
    raise NotImplementedError("there is no way back: restore a copy of the file")


def upgrade_events() -> None:
    pass


def upgrade_inbox() -> None:
    pass


def upgrade_metrics() -> None:
    pass
