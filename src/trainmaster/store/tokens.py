"""Users' tokens, in the inbox's file, which the api alone writes. Only digests are stored."""

from pathlib import Path

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from trainmaster.ports.tokens import TokenRow
from trainmaster.store import schema
from trainmaster.store.database import Database

_token = schema.token
_ALL = select(_token.c.name, _token.c.digest, _token.c.role, _token.c.created_s, _token.c.made_by, _token.c.expires_s).order_by(
    _token.c.name
)


class SqlTokens:
    """`trainmaster.ports.store.TokenStore`. Raises: OperationError if the file cannot be used."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self._database = Database("inbox", path, read_only)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def tokens(self) -> list[TokenRow]:
        """See the port."""
        with self._database.reading() as connection:
            return [TokenRow(*row) for row in connection.execute(_ALL)]

    def add(self, row: TokenRow) -> bool:
        """See the port."""
        values = {name: getattr(row, name) for name in row.__slots__}
        try:
            with self._database.writing() as connection:
                connection.execute(insert(_token), [values])
        except IntegrityError:
            return False
        return True

    def remove(self, name: str) -> bool:
        """See the port."""
        with self._database.writing() as connection:
            return connection.execute(delete(_token).where(_token.c.name == name)).rowcount > 0
