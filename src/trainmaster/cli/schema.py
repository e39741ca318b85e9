"""`tm schema`: what a spec file may hold, for editors."""

import click

from trainmaster.cli.session import Session, offline
from trainmaster.spec.schema import schema as json_schema


@click.command()
@offline
def schema(session: Session) -> None:
    """Print the JSON Schema of a spec file.

    Save it, and name it in the first line of a spec: "# yaml-language-server: $schema=schema.json".
    """
    session.out.value(json_schema())
