"""`tm update`: changes jobs after their submission, one request per job."""

from typing import Any

import click

from trainmaster.cli.jobs.hold import each
from trainmaster.cli.jobs.job_options import time_limit_option
from trainmaster.cli.render import human
from trainmaster.cli.session import JOB, Session, quiet_option, remote
from trainmaster.client.api import Client, Row
from trainmaster.errors import UsageError

_NONE = ("none", "no", "unlimited")


@click.command()
@click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB...")
@click.option("--priority", type=click.IntRange(-100, 100), help="Higher goes first within its class.")
@time_limit_option("Maximum run time over all attempts: 12h, 1h30m; none removes it.")
@click.option("--class", "work", metavar="NAME", help="Workload class, of a waiting job.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", help="Add or change a tag; also of an ended job.")
@click.option("--untag", multiple=True, metavar="K", help="Remove a tag.")
@click.option("--hold", is_flag=True, help="Keep waiting jobs from starting.")
@click.option("--reason", default="", help="With --hold: a reason; it is shown with the job.")
@quiet_option()
@remote
def update(session: Session, jobs: tuple[str, ...], **given: Any) -> None:
    """Change jobs after their submission: waiting ones, and where it makes sense running and ended ones.

    The priority and the time limit can be changed until a job has ended, the class while it waits, and tags always.
    """
    changes = _changes(given)
    if not changes:
        raise UsageError("there is nothing to change", "such as: tm update @last --priority 10")

    def ask(client: Client, ref: str) -> Row:
        return client.update(ref, changes)

    each(session, jobs, ask, lambda answer: f"has {', '.join(_told(answer, changes))}")


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    """The body of the request. Raises: UsageError."""
    if given["reason"] and not given["hold"]:
        raise UsageError("--reason is for --hold", "give both, or none")
    changes: dict[str, Any] = {}
    if given["priority"] is not None:
        changes["priority"] = given["priority"]
    if given["time_limit"] is not None:
        changes["time_limit"] = None if given["time_limit"] in _NONE else given["time_limit"]
    if given["work"] is not None:
        changes["class"] = given["work"]
    tags: dict[str, str | None] = {}
    for text in given["tags"]:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--tag: expected NAME=VALUE, got {text!r}", f"to remove it: --untag {name}" if name else "")
        tags[name] = value
    tags.update(dict.fromkeys(given["untag"]))
    if tags:
        changes["tags"] = tags
    if given["hold"]:
        changes["hold"] = given["reason"]
    return changes


def _told(answer: Row, changes: dict[str, Any]) -> list[str]:
    """What the job has now, of what was changed."""
    told = [f"priority {answer['priority']}"] if "priority" in changes else []
    if "time_limit" in changes:
        limit_s = answer["time_limit_s"]
        told.append("no time limit" if limit_s is None else f"a time limit of {human.duration(limit_s)}")
    told += [f"class {answer['class']}"] if "class" in changes else []
    for name in changes.get("tags", {}):
        told.append(f"tag {name}={answer['tags'][name]}" if name in answer["tags"] else f"no tag {name}")
    return told + (["been held"] if "hold" in changes else [])
