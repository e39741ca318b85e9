"""`tm get-spec`: prints the spec file that would submit a job again."""

import shlex

import click

from trainmaster.cli.session import JOB, Session, remote


@click.command()
@click.argument("job", type=JOB)
@remote
def get_spec(session: Session, job: str) -> None:
    """Print the spec file that would submit a job again, complete with its defaults.

    Credentials are replaced by (hidden): put them back before you submit the file. It has no code; to run the same code again:
    tm rerun.
    """
    found, out = session.client().spec(job), session.out
    if out.json:
        out.value(found)
        return
    from trainmaster.spec.yaml.writer import to_yaml  # noqa: PLC0415  JSON needs no YAML

    place = shlex.quote("".join(c if c.isprintable() else ascii(c)[1:-1] for c in found["directory"]))  # no end of a comment
    where = f" from {place}" if found["directory"] else ""
    out.data(f"# {found['id']}, submitted{where}; relative paths are relative to the directory of this file")
    if found["in_place"]:
        out.data("# it ran in its directory itself: tm submit --in-place FILE")
    if found["hidden"]:
        names = ", ".join(found["hidden"])
        out.data(f"# hidden: {names}")
        out.note(f"hidden: {names}; put the real values in before you submit it")
    out.raw(to_yaml(found["spec"]))
