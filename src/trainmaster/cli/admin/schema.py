"""`tm schema`: prints the JSON Schema of a spec file, or of cluster.yaml, for editors."""

import click

from trainmaster.cli.session import Session, offline
from trainmaster.spec.schema import cluster_schema
from trainmaster.spec.schema import schema as job_schema


@click.command()
@click.argument("of", type=click.Choice(("job", "cluster")), default="job", metavar="[job|cluster]")
@offline
def schema(session: Session, of: str) -> None:
    """Print the JSON Schema of a spec file, or of cluster.yaml.

    Save it, and name it in the first line of the file: "# yaml-language-server: $schema=schema.json".
    """
    session.out.value(job_schema() if of == "job" else cluster_schema())
