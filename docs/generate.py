"""Write docs/reference from the code: `python docs/generate.py`. tests/docs checks that the pages are current."""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from page import HEADER, described, table
from page_client import client_page
from page_mlflow import mlflow_page
from page_rest import rest_page
from page_sdk import sdk_page

from trainmaster import errors
from trainmaster.cli.app import ALIASES, tm
from trainmaster.lifecycle import diagram
from trainmaster.model.cluster import CLASSES, Work
from trainmaster.model.commands import COMMANDS
from trainmaster.model.events import EVENTS
from trainmaster.spec.schema import cluster_schema, schema

REFERENCE = Path(__file__).parent / "reference"


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command of `group` with its full name, each group before its commands."""
    for name in group.list_commands(context):
        try:
            command = group.get_command(context, name)
        except ImportError as error:
            raise SystemExit(f"`{context.command_path} {name}` is listed but cannot be loaded: {error}") from error
        if command is None:
            raise SystemExit(f"`{context.command_path} {name}` is listed and is no command")
        inside = click.Context(command, info_name=name, parent=context)
        yield inside.command_path, command, inside
        if isinstance(command, click.Group):
            yield from commands(command, inside)


def cli_page() -> str:
    """The command line: each command's own help."""
    top = click.Context(tm, info_name="tm", terminal_width=100, **tm.context_settings)
    parts = [
        HEADER,
        "# The command line\n\n"
        "Data goes to standard output, everything else to standard error. Every command takes `--json`. You name a job by\n"
        "its id, a unique prefix of its id, its name (the newest job of that name), `@last` or `@last-failed`.\n",
        f"```text\n{tm.get_help(top)}\n```\n",
    ]
    for path, command, context in commands(tm, top):
        parts.append(f"## `{path}`\n\n```text\n{command.get_help(context)}\n```\n")
    habits = [(f"`tm {name}`", f"`tm {' '.join((command, *rest))}`") for name, (command, rest) in ALIASES.items()]
    parts.append("## Aliases from other systems\n\nThese also work:\n\n" + table(("you type", "`tm` runs"), habits))
    parts.append("## Exit codes\n\n" + table(("code", "means"), exit_codes()))
    return "\n".join(parts)


def exit_codes() -> list[tuple[str, ...]]:
    """The meaning of each exit code of `tm`."""
    by_code: dict[int, list[str]] = {}
    for error in tree(errors.TrainmasterError):
        by_code.setdefault(error.exit_code, []).append(f"`{error.code}`")
    rows = {0: "success", **{code: "error " + ", ".join(sorted(names)) for code, names in by_code.items()}}
    rows[errors.JOB_FAILED_EXIT] = "the *job* failed or was cancelled (`run`, `wait`)"
    rows[errors.INTERRUPTED_EXIT] = "interrupted; the job continues"
    return [(str(code), text) for code, text in sorted(rows.items())]


def tree(error: type[errors.TrainmasterError]) -> Iterator[type[errors.TrainmasterError]]:
    """An error class and its subclasses in `trainmaster.errors`. Subclasses elsewhere use the code of their parent."""
    yield error
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


def errors_page() -> str:
    """The error tree."""
    rows = [
        (f"`{e.code}`", str(e.http_status), str(e.exit_code), "yes" if e.retryable else "", described(e))
        for e in sorted(tree(errors.TrainmasterError), key=lambda e: e.code)
    ]
    return (
        f"{HEADER}\n# Errors\n\n"
        'With `--json`, and in the REST API, an error is `{"error": {code, message, hint, details}}`. Codes are stable.\n'
        "A failed training is a result, not an error: `tm show JOB` shows it.\n\n"
        + table(("code", "HTTP", "exit", "retry", "meaning"), rows)
    )


def fields_of(kind: type) -> list[tuple[str, ...]]:
    """The fields of a dataclass."""
    return [
        (f"`{field.name}`", f"`{field.type if isinstance(field.type, str) else type_name(field.type)}`")
        for field in dataclasses.fields(kind)
    ]


def type_name(kind: Any) -> str:
    """An annotation as in the source."""
    if isinstance(kind, type) and not hasattr(kind, "__args__"):
        return kind.__name__
    return re.sub(r"\b[a-z_]+\.(?=\w)", "", str(kind))


def events_page() -> str:
    """Events and commands, field by field."""
    parts = [
        f"{HEADER}\n# Events and commands\n\n"
        "An event is a recorded fact. The event log is the source of truth, and each event has the hash of the previous one.\n"
        "`GET /api/v1/jobs/JOB/events` returns those of a job. A command is a request of a person. It waits in the inbox\n"
        "until the control loop processes it.\n"
    ]
    for title, kinds in (("Events", EVENTS), ("Commands", COMMANDS)):
        parts.append(f"## {title}\n")
        for name, kind in kinds.items():
            fields = fields_of(kind)
            parts.append(f"### {name}\n\n{described(kind)}\n" + (f"\n{table(('field', 'type'), fields)}" if fields else ""))
    return "\n".join(parts)


def resolved(field: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any] | None:
    """The section to which the schema of a field refers, or None."""
    for choice in (field, *field.get("anyOf", []), *field.get("allOf", [])):
        if "$ref" in choice:
            section: dict[str, Any] = whole["$defs"][choice["$ref"].rsplit("/", 1)[-1]]
            return section
    return None


def sections(properties: dict[str, Any], whole: dict[str, Any], within: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every section of a spec by its dotted name. In a mapping with free names, the name is `NAME`."""
    for name, field in properties.items():
        path, section = f"{within}{name}", resolved(field, whole)
        if section is None and isinstance(field.get("additionalProperties"), dict):
            path, section = f"{path}.NAME", resolved(field["additionalProperties"], whole)
        if section is None and isinstance(field.get("items"), dict):
            path, section = f"{path}[]", resolved(field["items"], whole)
        if section is not None:
            yield path, section
            yield from sections(section["properties"], whole, f"{path}.")


def spec_rows(properties: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row per supported field."""
    rows = []
    for name, field in properties.items():
        if field.get("not") == {}:
            continue
        default = field.get("default")
        examples = ", ".join(f"`{json.dumps(example)}`" for example in field.get("examples", []))
        shown = "" if default in (None, {}, []) else f"`{json.dumps(default)}`"
        rows.append((f"`{name}`", field.get("description", ""), shown, examples))
    return rows


def spec_page() -> str:
    """The fields of a spec, from its JSON Schema."""
    whole = schema()
    head = ("field", "meaning", "default", "examples")
    parts = [
        f"{HEADER}\n# The spec\n\n"
        "A spec is one YAML 1.2 file. `tm schema` prints this page as JSON Schema for editors. An unknown name is an error\n"
        "with file, line, column and the closest correct name.\n",
        table(head, spec_rows(whole["properties"])),
    ]
    later = [(name, field) for name, field in whole["properties"].items() if field.get("not") == {}]
    for name, section in sections(whole["properties"], whole):
        parts.append(f"## `{name}`\n\n{section.get('description', '')}\n\n{table(head, spec_rows(section['properties']))}")
        later += [(f"{name}.{key}", value) for key, value in section["properties"].items() if value.get("not") == {}]
    rows = []
    for name, field in later:
        meaning, _, instead = field["description"].removeprefix("Not supported yet: ").partition(". Meanwhile: ")
        rows.append((f"`{name}`", meaning, instead.rstrip(".")))
    note = "## Not supported yet\n\nEach of these fields is an error that names an alternative.\n\n"
    parts.append(note + table(("field", "planned meaning", "alternative"), rows))
    return "\n".join(parts)


def cluster_page() -> str:
    """The fields of cluster.yaml, from its JSON Schema."""
    whole = cluster_schema()
    head = ("field", "meaning", "default", "examples")
    parts = [
        f"{HEADER}\n# cluster.yaml\n\n"
        "The cluster configuration is one YAML 1.2 file. An administrator applies it with `tm apply cluster.yaml`.\n"
        "`tm schema cluster` prints this page as JSON Schema for editors. [Share a cluster](../howto/share-a-cluster.md)\n"
        "explains how to use it.\n",
        table(head, spec_rows(whole["properties"])),
    ]
    for name, section in sections(whole["properties"], whole):
        parts.append(f"## `{name}`\n\n{section.get('description', '')}\n\n{table(head, spec_rows(section['properties']))}")
    classes = [(f"`{work.name}`", *known_class(work)) for work in CLASSES]
    parts.append("## Built-in classes\n\n" + table(("class", "priority", "preemptible", "target for the wait"), classes))
    return "\n".join(parts)


def known_class(work: Work) -> tuple[str, ...]:
    """The default properties of a class."""
    wait = "" if work.wait_target_s is None else f"{work.wait_target_s:g} s"
    return f"{work.priority:+d}", "yes" if work.preemptible else "no", wait


def life_cycle_page() -> str:
    """The life cycle: the diagram and the complete matrix, generated from the table."""
    return (
        f"{HEADER}\n# The life cycle\n\n"
        "A job has few states. Its value also contains the reason of a stop, the reason to wait, and the result of each\n"
        "attempt.\n\n"
        f"```mermaid\n{diagram.mermaid()}```\n\n"
        "The matrix shows the next state for every event in every state. `·` is an expected race that changes nothing. Blank\n"
        f"cells cannot happen.\n\n{diagram.matrix()}"
    )


PAGES: dict[str, Callable[[], str]] = {
    "life-cycle.md": life_cycle_page,
    "cli.md": cli_page,
    "spec.md": spec_page,
    "cluster.md": cluster_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "rest.md": rest_page,
    "mlflow.md": mlflow_page,
    "sdk.md": sdk_page,
    "client.md": client_page,
}


def main() -> None:
    """Write all pages."""
    REFERENCE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page())
        click.echo(REFERENCE / name)


if __name__ == "__main__":
    main()
