"""The example at the end of each help: it is shown once, it parses, and the command takes its values."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from contract_server import ContractServer, serving

from trainmaster.cli.app import run, tm
from trainmaster.cli.examples import EXAMPLES
from trainmaster.cli.session import Session

NOT_RUN = {"up": "starts a server", "attach": "needs a terminal"}


def every_command(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inside = click.Context(command, info_name=name, parent=context)
        yield inside.command_path.removeprefix("tm "), command
        if isinstance(command, click.Group):
            yield from every_command(command, inside)


def test_every_help_ends_with_an_example_that_parses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new command needs a line in cli/examples.py."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text("command: python train.py\n")
    (tmp_path / "trainmaster-backup").mkdir()
    top = click.Context(tm, info_name="tm", obj=Session(), **tm.context_settings)
    commands = dict(every_command(tm, top))
    assert commands.keys() == EXAMPLES.keys()
    for path, command in commands.items():
        example = EXAMPLES[path]
        text = command.get_help(click.Context(command, info_name=path, parent=top))
        assert text.endswith(f"Example:\n    {example}"), path
        assert text.count("Example:") == 1, path
        words = shlex.split(example.partition(" > ")[0])
        assert words[0] == "tm"
        assert words[1 : 1 + len(path.split())] == path.split()
        parsed, context = tm, top
        rest = words[1:]
        while isinstance(parsed, click.Group) and rest:
            name, found, rest = parsed.resolve_command(context, rest)
            assert found is not None
            context = found.make_context(name, list(rest), parent=context, obj=Session())
            parsed, rest = found, [*context._protected_args, *context.args] if isinstance(found, click.Group) else []


@pytest.fixture(scope="module")
def empty() -> Iterator[ContractServer]:
    """A server that has nothing."""
    missing = {"error": {"code": "not_found", "message": "there is no such thing", "hint": "", "details": []}}
    with serving(lambda _: (404, missing)) as server:
        yield server


@pytest.mark.parametrize("path", sorted(EXAMPLES.keys() - NOT_RUN.keys()))
def test_a_command_takes_the_values_of_its_example(
    path: str, empty: ContractServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It fails, if at all, because the server has no such job, and never as something that is used wrongly."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TRAINMASTER_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("TRAINMASTER_SERVER", empty.url)
    (tmp_path / "train.yaml").write_text("command: python train.py\n")
    (tmp_path / "train.log").write_text("step 1 loss 0.5\n")
    (tmp_path / "cluster.yaml").write_text("pools: {a: {nodes: [node0]}}\n")
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,96000,786432,8,A10\n")
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,4000,8192,1,500,\n")
    (tmp_path / "trainmaster-backup").mkdir()
    code = run(shlex.split(EXAMPLES[path].partition(" > ")[0])[1:])
    assert code != 2, capsys.readouterr().err


def test_the_usage_of_a_rerun_names_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rerun", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: tm rerun [OPTIONS] JOB[@STEP] [-- COMMAND...]\n")
