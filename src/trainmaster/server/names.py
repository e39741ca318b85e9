"""How requests name things."""

from typing import Annotated

from fastapi import Path

Ref = Annotated[str, Path(description="an id, a unique prefix of one, a job's name, `@last` or `@last-failed`", max_length=200)]
