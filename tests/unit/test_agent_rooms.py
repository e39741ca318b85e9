"""Small modules of the agent: its command line, the outbox, the exit record, ports, JSON, packing."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launches import launch

from trainmaster.agent import pack
from trainmaster.agent.checkpoints.restore import Restored
from trainmaster.agent.files import fast_json
from trainmaster.agent.launch import ranks
from trainmaster.agent.supervise import exit_record
from trainmaster.agent.transport import master_port
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.wire.launch import Launch, RoleLaunch

PUT_BACK = Restored("0001-00001", 7, [], "out/my model.pt", None)
VARIABLE = "$TRAINMASTER_RESUME_ARGUMENTS"


@pytest.mark.parametrize(
    ("command", "shell", "restored", "expected"),
    [
        (["python", "t.py"], False, PUT_BACK, ["python", "t.py", "--resume", "out/my model.pt"]),
        (["python", "t.py"], False, Restored(), ["python", "t.py"]),
        (["python", VARIABLE, "t.py"], False, PUT_BACK, ["python", "--resume", "out/my model.pt", "t.py"]),
        (["python", VARIABLE, "t.py"], False, None, ["python", "t.py"]),
        (["bash", "-c", "python t.py\n"], True, PUT_BACK, ["bash", "-c", "python t.py --resume 'out/my model.pt'"]),
        (["bash", "-c", f"python t.py {VARIABLE} | tee x"], True, PUT_BACK, ["bash", "-c", f"python t.py {VARIABLE} | tee x"]),
    ],
)
def test_resume_arguments_stand_where_they_belong(
    tmp_path: Path, command: list[str], shell: bool, restored: Restored | None, expected: list[str]
) -> None:
    orders = launch(tmp_path, command=command, shell=shell, resume_arguments="--resume {path}")
    assert ranks._command(orders, ranks._resume_text(orders, restored)) == expected


def test_the_directory_of_the_checkpoint_stands_in_the_resume_arguments(tmp_path: Path) -> None:
    """Coqui's trainer takes the directory of the run, and `$(dirname {path})` was given to it word for word."""
    orders = launch(tmp_path, resume_arguments="--continue_path {directory}")
    assert ranks._resume_text(orders, PUT_BACK) == "--continue_path out"
    (tmp_path / "work" / "run 1" / "step-2").mkdir(parents=True)
    for path, directory in (("run 1/step-2", "'run 1/step-2'"), ("a.pt", ".")):
        assert ranks._resume_text(orders, Restored("0001-s7", 7, [], path, None)) == f"--continue_path {directory}"


def test_the_step_of_the_checkpoint_stands_in_the_resume_arguments(tmp_path: Path) -> None:
    """TensorFlow takes what the names of three files begin with; pix2pix takes the epoch."""
    orders = launch(tmp_path, resume_arguments="--load m/model.ckpt-{step} --from {path}")
    assert ranks._resume_text(orders, PUT_BACK) == "--load m/model.ckpt-7 --from 'out/my model.pt'"
    assert ranks._resume_text(orders, Restored("0001-s1", None, [], "/store/1", None)) == ""


def environment(orders: Launch, number: int) -> dict[str, str]:
    shared = ranks._environment(orders, "/a", ("10.0.0.1", 12345))
    return ranks._of_rank(shared, orders, ranks.Rank(number, "/a"))


def threads(count: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return dict.fromkeys(names, str(count))


def test_a_plain_program_is_not_told_that_it_is_distributed(tmp_path: Path) -> None:
    """Public scripts take RANK for "torchrun started me". What the person set stays; a role is told no more."""
    role: RoleLaunch = {"name": "judge", "command": ["true"], "shell": False, "devices": None, "cpus": 2.5}
    orders = launch(tmp_path, distributed=False, environment={"PATH": "/bin", "RANK": "7"}, devices=[3], roles=[role])
    shared = {
        "PATH": "/bin", "RANK": "7", "CUDA_VISIBLE_DEVICES": "3", "TRAINMASTER_JOB": "digits-1", "TRAINMASTER_ATTEMPT": "1",
        "TRAINMASTER_KEY": "digits-1.1/n0", "TRAINMASTER_CHECKPOINT_DIR": "/a/checkpoints", "TRAINMASTER_PARAMS": "{}",
        "TRAINMASTER_NODES": "1", "TRAINMASTER_NODE_RANK": "0", "PWD": orders["work"], **threads(1),
    }  # fmt: skip
    own = {"TORCHELASTIC_ERROR_FILE": "/a/rank0.error.json", "TRAINMASTER_SDK": "/a/rank0.sdk"}
    assert environment(orders, 0) == {**shared, **own}
    beside = ranks._children(orders, "/a", None, ("10.0.0.1", 12345))[1]
    assert not {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"} & beside.environment.keys()
    assert threads(2).items() <= beside.environment.items()


def test_a_launch_of_an_earlier_version_has_what_it_had(tmp_path: Path) -> None:
    orders = launch(tmp_path)
    del orders["distributed"], orders["cpus"], orders["sdk"]  # type: ignore[misc]
    had = environment(orders, 0)
    assert (had["RANK"], "PYTHONPATH" in had, "OMP_NUM_THREADS" in had) == ("0", False, False)
    assert environment({**orders, "ranks": 2}, 0)["OMP_NUM_THREADS"] == "1"


def test_the_environment_of_a_gang_is_as_torchrun_sets_it(tmp_path: Path) -> None:
    orders = launch(
        tmp_path, ranks=2, cpus=7.0, nodes=3, node_index=1, key="digits-1.4/n1", attempt=4, devices=[4, 6], params={"lr": 0.1},
        environment={"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0"},
    )  # fmt: skip
    assert environment(orders, 3) == {
        "PATH": "/bin", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "12345", "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "6",
        "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "TORCHELASTIC_ERROR_FILE": "/a/rank3.error.json", "CUDA_VISIBLE_DEVICES": "4,6",
        **threads(3), "TRAINMASTER_JOB": "digits-1", "TRAINMASTER_ATTEMPT": "4",
        "TRAINMASTER_NODES": "3", "TRAINMASTER_NODE_RANK": "1", "TRAINMASTER_KEY": "digits-1.4/n1",
        "TRAINMASTER_CHECKPOINT_DIR": "/a/checkpoints", "TRAINMASTER_SDK": "/a/rank3.sdk", "TRAINMASTER_PARAMS": '{"lr": 0.1}',
        "PWD": orders["work"],
    }  # fmt: skip


def test_the_directory_of_the_start_is_named_as_by_a_shell(tmp_path: Path) -> None:
    """Seen of SchNetPack, whose own configuration reads `${oc.env:PWD}`. What the person gives wins."""
    orders = launch(tmp_path)
    named = environment({**orders, "environment": {"PWD": "/elsewhere"}}, 0)
    assert (environment(orders, 0)["PWD"], named["PWD"]) == (orders["work"], "/elsewhere")


@pytest.mark.parametrize(
    ("cpus", "count", "given", "expected"),
    [
        (0.5, 1, {}, threads(1)),
        (6.0, 1, {}, threads(6)),
        (96.0, 1, {}, {**threads(96), "NUMEXPR_NUM_THREADS": "64"}),
        (96.0, 2, {"NUMEXPR_MAX_THREADS": "16"}, {**threads(48), "NUMEXPR_NUM_THREADS": "16", "NUMEXPR_MAX_THREADS": "16"}),
        (8.0, 2, {"MKL_NUM_THREADS": "1"}, {**threads(4), "MKL_NUM_THREADS": "1"}),
        (8.0, 2, {"OMP_NUM_THREADS": "3"}, {"OMP_NUM_THREADS": "3"}),
    ],
)
def test_threads_follow_the_processors_of_a_rank(
    tmp_path: Path, cpus: float, count: int, given: dict[str, str], expected: dict[str, str]
) -> None:
    found = environment(launch(tmp_path, cpus=cpus, ranks=count, environment=given), 0)
    assert {name: value for name, value in found.items() if name.endswith("_THREADS")} == expected


@pytest.mark.parametrize(
    ("command", "shell"),
    [
        (["torchrun", "--nproc-per-node", "2", "t.py"], False),
        (["python3", "-m", "torch.distributed.run", "t.py"], False),
        (["bash", "-c", "cd sub && .venv/bin/accelerate launch t.py"], True),
    ],
)
def test_a_launcher_divides_the_threads_itself(tmp_path: Path, command: list[str], shell: bool) -> None:
    found = environment(launch(tmp_path, cpus=8.0, command=command, shell=shell), 0)
    assert not threads(1).keys() & found.keys()


@pytest.mark.parametrize(("path", "expected"), [(None, "/s"), ("", "/s"), ("src:/lib", "src:/lib:/s")])
def test_the_sdk_is_last_on_the_path_of_ranks_and_roles(tmp_path: Path, path: str | None, expected: str) -> None:
    role: RoleLaunch = {"name": "judge", "command": ["true"], "shell": False, "devices": None, "cpus": 1.0}
    given = {} if path is None else {"PYTHONPATH": path}
    started = ranks._children(launch(tmp_path, environment=given, sdk="/s", roles=[role]), "/a", None, ("10.0.0.1", 12345))
    assert [child.environment["PYTHONPATH"] for child in started] == [expected, expected]


def test_devices_are_shown(tmp_path: Path) -> None:
    assert "CUDA_VISIBLE_DEVICES" not in environment(launch(tmp_path), 0)
    assert environment(launch(tmp_path, devices=[]), 0)["CUDA_VISIBLE_DEVICES"] == ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(json_values)
def test_reading_json_quickly_is_reading_json(value: object) -> None:
    assert fast_json.loads(f" {json.dumps(value)}\n") == value


@pytest.mark.parametrize("text", ["", "{", '{"a" 1}', "[1] 2", "nul"])
def test_broken_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="char"):
        fast_json.loads(text)


def test_reports_stay_until_acknowledged(tmp_path: Path) -> None:
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    sent = [outbox.report("started", restored=None), outbox.report("kept", path="x")]
    assert (outbox.batch()[0], outbox.empty) == (sent, False)
    outbox.spool()
    outbox.spool()
    assert [json.loads(line) for line in (tmp_path / "spool.jsonl").read_text().splitlines()] == sent
    outbox.acknowledged(1)
    assert outbox.batch()[0] == sent[1:]
    outbox.acknowledged(2)
    assert (outbox.empty, (tmp_path / "spool.jsonl").exists()) == (True, False)


def test_a_pipe_in_place_of_the_reports_holds_up_nobody(tmp_path: Path) -> None:
    """The thread that opened it waited for a reader with the lock in its hands: the agent wrote no exit record."""
    os.mkfifo(tmp_path / "spool.jsonl")
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    outbox.report("staged", id="0001-s1")
    outbox.spool()
    assert outbox.durable == 0


def test_what_says_that_something_is_durable_is_so_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R11: in whatever state the server is; the agent may be killed before it was sent, or while a request hangs."""
    synced: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file)))
    spool = tmp_path / "spool.jsonl"
    outbox = Outbox(str(spool), str(tmp_path / "points.jsonl"))
    sent = [outbox.report("started", restored=None)]
    assert (spool.exists(), synced) == (False, [])
    assert outbox.durable == 0
    for kind in ("staged", "kept", "not_kept", "warned", "run"):
        sent.append(outbox.report(kind, id="0001-1"))
        assert [json.loads(line) for line in spool.read_text().splitlines()] == sent
        assert outbox.durable == len(sent)
    assert synced == [str(spool), str(tmp_path), *[str(spool)] * 4]
    outbox.acknowledged(6)
    assert not spool.exists()
    outbox.report("staged", id="0001-2")
    assert synced[-2:] == [str(spool), str(tmp_path)]


def test_the_exit_record_takes_the_reserved_place(tmp_path: Path) -> None:
    exit_record.allocate(str(tmp_path))
    assert (tmp_path / "exit.part").stat().st_size == exit_record.ALLOCATED_BYTES
    exit_record.write(str(tmp_path), {"kind": "ended", "ranks": []})
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]
    assert json.loads((tmp_path / "exit.json").read_bytes()) == {"kind": "ended", "ranks": []}


def test_a_record_that_the_disk_refuses_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: a moment's error of the disk lost a whole end, and a job that had succeeded was run again."""
    faults = [OSError(errno.EIO, "Input/output error")] * 2
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        if faults:
            raise faults.pop()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    monkeypatch.setattr(exit_record, "_PAUSES_S", (0.0, 0.0, 0.0))
    exit_record.allocate(str(tmp_path))
    exit_record.write(str(tmp_path), {"kind": "ended", "ranks": []})
    assert json.loads((tmp_path / "exit.json").read_bytes()) == {"kind": "ended", "ranks": []}


def test_the_shortened_record_fits_the_reserved_place() -> None:
    rank = {"rank": 0, "last_lines": ["ä" * 1000] * 20, "error": "x" * 4000}
    entry = {"id": "0001-00001", "digest": "a" * 64, "path": "p" * 200}
    ended = {
        "ranks": [rank] * 64,
        "roles": [rank],
        "launch_lines": ["x" * 1000] * 99,
        "staged": [entry] * 500,
        "kept": [entry] * 500,
        "not_kept": [entry] * 500,
        "warned": [entry] * 8,
        "bad": ["0001-00001"] * 500,
    }
    data = exit_record._shortened(ended)
    assert len(data) <= exit_record.ALLOCATED_BYTES
    assert len(json.loads(data)["ranks"]) == 64


def test_a_claimed_port_is_nobody_elses() -> None:
    claims = [master_port.claim() for _ in range(20)]
    try:
        low, high = master_port._range()
        assert len({claim.port for claim in claims}) == 20
        assert all(low <= claim.port < high for claim in claims)
        with pytest.raises(BlockingIOError):
            master_port._lock(master_port.CLAIMS % os.getuid(), claims[0].port)
    finally:
        for claim in claims:
            claim.release()


def test_the_single_file_agent_is_whole_and_reproducible(tmp_path: Path) -> None:
    target = tmp_path / "agent.pyz"
    assert (pack.build(str(target)), pack.build(str(target))) == (True, False)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "launch.json").write_text(json.dumps(launch(tmp_path / "d", command=["/bin/true"])))
    done = subprocess.run([sys.executable, "-I", "-S", str(target), str(tmp_path / "d")], capture_output=True, text=True)
    record = json.loads((tmp_path / "d" / "exit.json").read_bytes())
    assert (done.returncode, done.stderr, [rank["exit_code"] for rank in record["ranks"]]) == (0, "", [0])


def test_a_process_that_forks_agents_has_loaded_all_of_them() -> None:
    """An upgrade replaces the files below a running agent: it must not import one of another version then."""
    program = (
        "import sys; from trainmaster.agent import main; main.preload()\n"
        "print(*sorted(name for name in sys.modules if name.startswith('trainmaster.agent')))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    folder = Path(pack.__file__).parent
    names = [".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py") if path.name != "__init__.py"]
    missing = {name for name in names if f"trainmaster.agent.{name}" not in loaded}
    assert missing == {"__main__", "pack", "launch.function"}
