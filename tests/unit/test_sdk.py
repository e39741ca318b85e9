"""The SDK in separate programs: what the agent receives, and that the training is never harmed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launches import tree

HEAD = "from trainmaster import sdk\nimport os\n"


def run(place: Path, program: str, **environment: str) -> str:
    """What a program inside a job prints; its messages are then in `place / "rank0.sdk"`."""
    given = {
        "TRAINMASTER_SDK": str(place / "rank0.sdk"),
        "TRAINMASTER_CHECKPOINT_DIR": str(place / "staging"),
        **{name: value for name, value in os.environ.items() if not name.startswith("TRAINMASTER_")},
    }
    given.update(environment)
    result = subprocess.run(
        [sys.executable, "-c", HEAD + program], cwd=place, env=given, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def messages(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "rank0.sdk").read_text().splitlines()]


def metrics(step: int, **values: float) -> dict[str, Any]:
    return {"t": "m", "step": step, "values": values}


def test_reports_and_artifacts(tmp_path: Path) -> None:
    (tmp_path / "plot.png").write_text("p")
    program = """
class Tensor:
    def __float__(self): return 0.25
sdk.report(step=3, loss=0.5, accuracy=Tensor())
sdk.report(loss=1)
sdk.report(loss=True)
sdk.artifact("plot.png")
sdk.artifact(os.path.abspath("plot.png"), name="final.png")
sdk.artifact("absent.png")
for wrong in ("0.5", None, [1, 2]):
    try: sdk.report(loss=wrong)
    except TypeError as error: print(str(error)[:12])
"""
    assert run(tmp_path, program) == "report(loss=\n" * 3
    assert messages(tmp_path) == [
        metrics(3, loss=0.5, accuracy=0.25),
        {**metrics(4, loss=1.0), "counted": True},
        {**metrics(5, loss=1.0), "counted": True},
        {"t": "a", "path": str(tmp_path / "plot.png"), "name": "plot.png"},
        {"t": "a", "path": str(tmp_path / "plot.png"), "name": "final.png"},
    ]


def test_counting_goes_on_after_a_restart(tmp_path: Path) -> None:
    run(tmp_path, "sdk.report(loss=1)", TRAINMASTER_RESUME_STEP="40")
    assert messages(tmp_path) == [{**metrics(41, loss=1.0), "counted": True}]


@pytest.mark.parametrize(("every", "first", "words"), [(1, 0, ""), (1, 1, ""), (10, 1, "counted to 3"), (10, 1, "")])
def test_reports_that_count_other_than_checkpoints_are_warned_about_once(
    tmp_path: Path, every: int, first: int, words: str
) -> None:
    named = "" if words or every == 1 else "step=step, "
    program = f"""
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for step in range({first}, 61):
        if step % {every} == 0:
            sdk.report({named}loss=1)
        if step % 30 == 0:
            with sdk.checkpoint(step): pass
print(*[one.message for one in caught], sep="|")
"""
    said = run(tmp_path, program)
    assert (words in said, said.count("|"), len(said) > 2) == (True, 0, bool(words))


def test_a_checkpoint_of_one(tmp_path: Path) -> None:
    program = """
with sdk.checkpoint(5) as directory:
    (directory / "model.pt").write_text("m")
try:
    with sdk.checkpoint(6) as directory:
        (directory / "model.pt").write_text("torn")
        raise KeyError("a failure of the program")
except KeyError as error: print(error)
"""
    assert run(tmp_path, program) == "'a failure of the program'\n"
    [message] = messages(tmp_path)
    directory = Path(message.pop("directory"))
    assert message == {"t": "c", "step": 5, "ranks": "one"}
    assert tree(tmp_path / "staging") == {f"{directory.name}/model.pt": "m"}
    run(tmp_path, "with sdk.checkpoint(7) as d: (d / 'x').write_text('thrown away')", RANK="3")
    assert len(messages(tmp_path)) == 1
    assert tree(tmp_path / "staging") == {f"{directory.name}/model.pt": "m"}


def test_a_checkpoint_of_all_is_one_directory_of_the_node(tmp_path: Path) -> None:
    program = "with sdk.checkpoint(5, ranks='all') as d: (d / f'rank{sdk.rank()}').write_text('x')"
    for rank in ("0", "1"):
        run(tmp_path, program, RANK=rank, WORLD_SIZE="2")
    first, other = messages(tmp_path)
    assert first == other
    assert tree(Path(first["directory"])) == {"rank0": "x", "rank1": "x"}


def test_flags(tmp_path: Path) -> None:
    flags = tmp_path / "sdk.flags"
    flags.write_bytes(b"\0\0")
    program = f"""
def ask(data):
    open({str(flags)!r}, "r+b").write(data)
    return sdk.should_stop(), sdk.should_checkpoint(), sdk.should_checkpoint()
print(ask(b"\\0\\0"), ask(b"\\0\\1"), ask(b"1\\2"), ask(b"1\\2"), ask(b"1\\0"))
"""
    false, stop = (False, False, False), (True, False, False)
    assert run(tmp_path, program) == f"{false} (False, True, False) (True, True, False) {stop} (True, True, False)\n"
    flags.write_bytes(b"\0\3")
    assert run(tmp_path, "print(sdk.should_checkpoint(), sdk.should_checkpoint())") == "True False\n"


ASK = "print([sdk.job(), sdk.attempt(), sdk.rank(), sdk.world_size(), sdk.params(), sdk.resume_dir()])"


def test_what_the_agent_said(tmp_path: Path) -> None:
    said = {"TRAINMASTER_JOB": "digits-1", "TRAINMASTER_ATTEMPT": "2", "RANK": "1", "WORLD_SIZE": "4"}
    more = {"TRAINMASTER_PARAMS": '{"lr": 0.1}', "TRAINMASTER_RESUME_DIR": "/resume"}
    assert run(tmp_path, ASK, **said, **more) == "['digits-1', 2, 1, 4, {'lr': 0.1}, PosixPath('/resume')]\n"


def test_outside_a_job_all_of_it_is_a_no_op(tmp_path: Path) -> None:
    program = (
        ASK
        + """
sdk.report(loss=1.0)
sdk.artifact("absent")
print(sdk.should_stop(), sdk.should_checkpoint(), sdk.dropped())
with sdk.checkpoint(1, ranks="all") as directory:
    (directory / "model.pt").write_text("m")
print(directory.exists())
"""
    )
    answer = "[None, 1, 0, 1, {}, None]\nFalse False 0\nFalse\n"
    assert run(tmp_path, program, TRAINMASTER_SDK="", TRAINMASTER_CHECKPOINT_DIR="") == answer
    assert tree(tmp_path) == {}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_broken_channel_is_counted_not_raised(tmp_path: Path) -> None:
    program = """
for _ in range(3): sdk.report(loss=1.0)
with sdk.checkpoint(1) as directory: (directory / "a").write_text("a")
print(sdk.dropped(), sdk.should_stop())
"""
    assert run(tmp_path, program, TRAINMASTER_SDK="/dev/full") == "4 False\n"
    assert tree(tmp_path) == {"staging": "/"}
    nowhere = str(tmp_path / "absent" / "rank0.sdk")
    (tmp_path / "blocked").write_text("")
    assert run(tmp_path, program, TRAINMASTER_SDK=nowhere, TRAINMASTER_CHECKPOINT_DIR=str(tmp_path / "blocked")) == "4 False\n"


def test_forked_workers_write_whole_lines(tmp_path: Path) -> None:
    program = """
sdk.report(step=0, loss=0)
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        for step in range(200): sdk.report(step=step, **{f"child{child}": step})
        os._exit(0)
    children.append(pid)
for pid in children: os.waitpid(pid, 0)
"""
    run(tmp_path, program)
    found = sorted((name, message["step"]) for message in messages(tmp_path)[1:] for name in message["values"])
    assert found == [(f"child{child}", step) for child in range(4) for step in range(200)]


def test_a_report_costs_a_few_times_what_writing_its_line_down_does(tmp_path: Path) -> None:
    """A ratio, whatever the machine: `benchmarks/sdk_report.py` has the time."""
    program = """
import json, time
def best(work):
    taken = []
    for _ in range(30):
        began_s = time.thread_time()
        for step in range(200): work(step)
        taken.append(time.thread_time() - began_s)
    return min(taken)
report = best(lambda step: sdk.report(step=step, loss=0.123456 + step, lr=3e-4))
line = best(lambda step: json.dumps({"step": step, "loss": 0.123456 + step, "lr": 3e-4}))
print(report / line)
"""
    assert float(run(tmp_path, program)) < 5.0  # 1.5 as measured


def test_the_import_is_small() -> None:
    heavy = ("ssl", "http", "socket", "pathlib", "tempfile", "shutil", "asyncio", "hashlib", "logging", "subprocess")
    loaded = f"import sys; print([name for name in {heavy!r} if name in sys.modules])"
    bare, ours = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for program in (loaded, f"from trainmaster import sdk; {loaded}")
    )
    assert ours == bare


def test_a_program_that_closes_all_descriptors_gets_no_message_into_its_own_files(tmp_path: Path) -> None:
    """As daemons do: its next file gets the channel's number, and a metric would stand in the middle of the weights."""
    (tmp_path / "sdk.flags").write_bytes(b"\0\0")
    program = """
sdk.report(step=1, loss=1)
sdk.should_stop()
os.closerange(3, 64)
weights = [open(f"weights{n}", "w+b", buffering=0) for n in range(8)]
for file in weights: file.write(b"11")
sdk.report(step=2, loss=1)
print([file.read() or file.seek(0) or file.read() for file in weights] == [b"11"] * 8, sdk.should_stop(), sdk.dropped())
"""
    assert run(tmp_path, program) == "True False 0\n"
    assert messages(tmp_path) == [metrics(1, loss=1.0), metrics(2, loss=1.0)]


def test_a_step_that_is_whole_may_have_any_type(tmp_path: Path) -> None:
    run(tmp_path, "for step in (2.0, '3', True): sdk.report(step=step, loss=1)")
    assert messages(tmp_path) == [metrics(step, loss=1.0) for step in (2, 3, 1)]


def test_an_adapter_may_report_a_metric_that_is_called_step(tmp_path: Path) -> None:
    program = """
from trainmaster.sdk.channel import report_values
report_values(7, {"step": 2.0, "self": 1, "values": 3})
"""
    run(tmp_path, program)
    assert messages(tmp_path) == [{"t": "m", "step": 7, "values": {"step": 2.0, "self": 1.0, "values": 3.0}}]


def test_odd_steps_and_names(tmp_path: Path) -> None:
    """What a program got wrong is said by one kind of error; a plot never ends a training."""
    (tmp_path / "plot.png").write_text("p")
    program = """
import pathlib
for step in (float("nan"), float("inf"), "abc", 0.5, None):
    for call in (lambda: sdk.report(step=step, loss=1) if step else None, lambda: sdk.checkpoint(step)):
        try: call()
        except TypeError as error: print(str(error).split("(")[0], end=" ")
try: sdk.checkpoint(10**30)
except ValueError as error: print("far")
place = os.path.abspath("plot.png")
sdk.artifact(b"plot.png")
sdk.artifact(pathlib.Path("plot.png"), name=pathlib.Path("a/b.png"))
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
sdk.artifact(place)
sdk.artifact("plot.png")
"""
    assert run(tmp_path, program) == "report checkpoint " * 4 + "checkpoint far\n"
    names = ("plot.png", "a/b.png", "plot.png")
    assert messages(tmp_path) == [{"t": "a", "path": str(tmp_path / "plot.png"), "name": name} for name in names]


def test_many_values_at_once_are_told_in_lines_that_the_agent_takes(tmp_path: Path) -> None:
    run(tmp_path, "sdk.report(step=1, **{f'{n}-' + 'x' * 200: n for n in range(30_000)})")
    assert max(map(len, (tmp_path / "rank0.sdk").read_text().splitlines())) < 4 << 20
    assert sum(len(message["values"]) for message in messages(tmp_path)) == 30_000
