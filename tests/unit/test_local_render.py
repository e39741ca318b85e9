"""From a submission to a launch, and from an exit record to an outcome, compared as whole values."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import re2

from trainmaster.engines.local import exits, render
from trainmaster.engines.local.settings import LocalSettings, Site
from trainmaster.home import Home
from trainmaster.model.checkpoints import Checkpoint, Part
from trainmaster.model.job import Job, Outcome, RankEnd
from trainmaster.model.nodes import Allocation
from trainmaster.model.progress import Progress
from trainmaster.model.spec import CheckpointSpec, CodeCopy, Environment, MetricsSpec, Resources, Role
from trainmaster.testing import builders

SITE = Site(Home(Path("/state")), LocalSettings(), {"HOME": "/home/ann", "USER": "ann"}, "server.1")


def whole_job() -> Job:
    """A restarted gang of two nodes that asks for everything."""
    spec = builders.spec(
        "torchrun train.py | tee out.txt",
        resources=Resources(nodes=2, gpus=2, cpus=4.0, memory_bytes=2**30, ranks=2),
        checkpoint=CheckpointSpec("out/ckpt*.pt", 3, "--resume {path}"),
        environment=Environment(variables={"OMP_NUM_THREADS": "4"}),
        params={"lr": 3e-4},
        metrics=MetricsSpec(r"loss (?P<loss>\S+)"),
        artifacts=("out/*.png",),
    )
    shown = Progress((1, 2), 20, epoch_first=0, epoch_anew=False)
    kept = (
        Checkpoint("c1", 10, 1, (Part(0, "aa", 1, 5), Part(1, "bb", 1, 5)), 2),
        Checkpoint("c2", 20, 1, (Part(0, "cc", 1, 5), Part(1, "dd", 1, 5)), 2, approximate=True, progress=shown),
    )
    shares = Allocation(tuple(builders.share(node, devices=(0, 1)) for node in ("node0", "node1")))
    value = builders.job(spec=spec, code=CodeCopy("0123", files=2), checkpoints=kept)
    return builders.placed(value, 2, ("node0", "node1"), allocation=shares, resume=("c2", "c1", "deleted"))


def test_a_whole_launch() -> None:
    assert render.launch(builders.submission(whole_job(), node_index=1), SITE) == {
        "key": "train-1.2/n1",
        "home": "server.1",
        "job": "train-1",
        "attempt": 2,
        "node_index": 1,
        "nodes": 2,
        "ranks": 2, "cpus": 4.0,
        "distributed": True,
        "command": ["bash", "-o", "pipefail", "-c", "torchrun train.py | tee out.txt"],
        "shell": True,
        "environment": {
            "PATH": builders.PATH,
            "LANG": "C.UTF-8",
            "HOME": "/home/ann", "USER": "ann",
            "PYTHONUNBUFFERED": "1", "COLUMNS": "200",
            "OMP_NUM_THREADS": "4",
        },
        "sdk": None, "devices": [0, 1],
        "work": "/state/work/train-1/node1",
        "umask": None,
        "in_place": False, "before": "/state/attempts/train-1/before.json",
        "fresh": False,
        "code": {"tree": "/state/blobs/code/trees/0123.json", "objects": "/state/blobs/code/objects", "source": "/project"},
        "checkpoint_path": "out/ckpt*.pt",
        "checkpoint_interval_s": None,
        "resume_arguments": "--resume {path}",
        "checkpoint_store": "/state/blobs/checkpoints/train-1",
        "resume": [
            {
                "id": "c2",
                "step": 20,
                "approximate": True,
                "root": "/state/blobs/checkpoints/train-1/c2",
                "digests": {"n0": "cc", "n1": "dd"},
            },
            {
                "id": "c1",
                "step": 10,
                "approximate": False,
                "root": "/state/blobs/checkpoints/train-1/c1",
                "digests": {"n0": "aa", "n1": "bb"},
            },
        ],
        "metrics_pattern": r"loss (?P<loss>\S+)", "metrics_automatic": True, "metrics_files": [], "metrics_primary": None,
        "epoch_first": 0, "epoch_steps": None, "epoch_anew": False, "pattern_engine": str(Path(re2.__file__).parents[1]),
        "artifacts": ["out/*.png"],
        "artifact_store": "/state/blobs/artifacts/train-1",
        "forked": False,
        "pickle_models": False,
        "environment_store": "/state/environments",
        "roles": [], "requirements": None, "params": {"lr": 3e-4}, "data": [],
        "memory_bytes": 2**30,
        "cgroup": None,
        "contained": [],
        "address": "127.0.0.1",
        "address_shared": True,
        "server_socket": "/state/api.sock",
        **dict.fromkeys(("server_url", "server_authority")), "apart": False,
        "credential": "credential",
        "log_max_bytes": 268435456,
        "points": "/state/points/train-1.2~n1.jsonl",
        "run": {
            "id": "484e2c5c4cafa78fe3f6b5c09730070c", "experiment_id": "306717778890817", "experiment": "train",
            "name": "train-1", "params": {"lr": "0.0003"}, "tags": {}, "prefixes": {},
        },
        "grace_s": 30.0,
        "remote": False,
    }


def test_in_place_runs_in_the_persons_directory() -> None:
    launch = render.launch(builders.submission(builders.job(code=CodeCopy(in_place=True))), SITE)
    assert (launch["work"], launch["in_place"], launch["code"]) == ("/project", True, None)


def test_rendering_shows_everything_but_the_credential() -> None:
    submission = builders.submission(builders.job())
    shown = json.loads(render.render(submission, SITE))
    assert shown == dict(render.launch(submission, SITE)) | {"credential": render.BLANK}


def test_a_key_of_another_attempt_is_refused() -> None:
    submission = builders.submission()
    for key in (submission.key._replace(attempt=2), submission.key._replace(node_index=1)):
        with pytest.raises(ValueError, match="not part of"):
            render.launch(replace(submission, key=key), SITE)


@pytest.mark.parametrize(
    ("asked", "real", "visible", "order"),
    [((), False, None, None), ((), True, [], None), ((1,), False, [1], None), ((1,), True, [1], "PCI_BUS_ID")],
)
def test_which_devices_a_program_sees(
    asked: tuple[int, ...], real: bool, visible: list[int] | None, order: str | None
) -> None:
    allocation = Allocation((builders.share(devices=asked),))
    job = builders.job(spec=builders.spec(resources=Resources(gpus=len(asked))))
    submission = builders.submission(builders.placed(job, allocation=allocation))
    launch = render.launch(submission, replace(SITE, real_devices=real))
    assert (launch["devices"], launch["environment"].get("CUDA_DEVICE_ORDER")) == (visible, order)


def test_ranks_and_roles_each_see_their_own_devices() -> None:
    """Whole ones first, in the spec's order; a shared one is the last of the attempt's devices."""
    for ranks, role, seen in [
        (Resources(gpus=2), Resources(gpus=1), ([4, 5], [6])),
        (Resources(gpus=2), Resources(gpu_share=0.25), ([4, 5], [6])),
        (Resources(gpu_share=0.25), Resources(gpus=2), ([6], [4, 5])),
    ]:
        spec = builders.spec(resources=ranks, roles={"eval": Role("x", role)})
        shares = Allocation((builders.share(devices=(4, 5, 6), gpu_share=ranks.gpu_share + role.gpu_share),))
        submission = builders.submission(builders.placed(builders.job(spec=spec), allocation=shares))
        launch = render.launch(submission, SITE)
        assert (launch["devices"], launch["roles"][0]["devices"]) == seen


def test_the_specs_interpreter_comes_first(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "pyvenv.cfg").touch()
    origin = builders.origin(str(tmp_path), variables={"PATH": "/bin", "VIRTUAL_ENV": "/recorded"})
    value = builders.job(spec=builders.spec(("python", "train.py"), environment=Environment(".venv/bin/python")), origin=origin)
    launch = render.launch(builders.submission(value), SITE)
    assert launch["command"] == [f"{tmp_path}/.venv/bin/python", "train.py"]
    assert launch["environment"]["PATH"] == f"{tmp_path}/.venv/bin:/bin"
    assert launch["environment"]["VIRTUAL_ENV"] == f"{tmp_path}/.venv"


@pytest.mark.parametrize(
    ("named", "argv", "path"),
    [
        (None, ["python3", "a.py"], "/bin"),
        ("python3.12", ["python3.12", "a.py"], "/bin"),
        ("/opt/py/bin/python3", ["/opt/py/bin/python3", "a.py"], "/opt/py/bin:/bin"),
    ],
)
def test_interpreters_by_name_and_path(named: str | None, argv: list[str], path: str) -> None:
    value = builders.job(
        spec=builders.spec(("python3", "a.py"), environment=Environment(named, {"PATH": "/bin"})),
    )
    launch = render.launch(builders.submission(value), SITE)
    assert (launch["command"], launch["environment"]["PATH"], launch["shell"]) == (argv, path, False)


def test_the_spec_outranks_what_was_recorded_and_our_kindness() -> None:
    variables = {"PYTHONUNBUFFERED": "", "COLUMNS": "120", "LANG": "de_DE.UTF-8", "HOME": "/elsewhere"}
    value = builders.job(spec=builders.spec(environment=Environment(variables=variables)))
    launch = render.launch(builders.submission(value), SITE)
    assert launch["environment"] == {"PATH": builders.PATH, "USER": "ann"} | variables


RECORD = {
    "kind": "ended", "n": 0,
    "ranks": [
        {"rank": 0, "exit_code": None, "signal": 9, "stopped_by_us": True, "ended_after_s": 3.5, "last_lines": ["a", "b"],
         "error": "boom", "peak_memory_bytes": 7, "cpu_s": 1.5},
    ],
    "launch_error": None, "over_memory": True, "memory_limit_bytes": 100, "peak_memory_bytes": 90, "port_in_use": False,
    "last_step": 12, "first_step": 2, "ran_s": 4.0, "staged": [{"kind": "staged", "n": 2, "id": "c1"}],
    "kept": [{"kind": "kept", "n": 3, "path": "x"}], "restored": "c0", "restored_step": 1, "bad": ["c9"],
}  # fmt: skip


def test_an_exit_record_is_told_whole() -> None:
    assert exits.outcome(RECORD) == Outcome(
        ranks=(RankEnd(0, None, 9, True, 3.5, ("a", "b"), "boom", 7, 1.5),),
        over_memory=True, memory_limit_bytes=100, peak_memory_bytes=90, last_step=12, first_step=2, ran_s=4.0, bad=("c9",),
    )  # fmt: skip
    newer = {"progress": {"steps": [2, 3], "last_step": 12, "epoch_anew": False, "sdk": "loaded"}, "unread": "EIO", "ranks": [{**RECORD["ranks"][0], "raised": "E: 1", "outside": "../data"}]}
    told = exits.outcome(RECORD | newer)
    assert (told.progress, told.unread, told.ranks[0].raised) == (Progress((2, 3), 12, epoch_anew=False, sdk="loaded"), "EIO", "E: 1")
    assert told.ranks[0].outside == "../data"
    assert exits.reports(RECORD) == (
        {"kind": "started", "n": 0, "restored": "c0", "step": 1, "bad": ["c9"], "environment": None},
        {"kind": "staged", "n": 2, "id": "c1"},
        {"kind": "kept", "n": 3, "path": "x"},
    )
    marked = exits.reports(RECORD | {"restored_approximate": True, "restored_read": True})[0]
    assert marked == {**exits.reports(RECORD)[0], "approximate": True, "read": True}


def test_what_never_started_reports_no_start() -> None:
    record = RECORD | {"ranks": [], "launch_error": "no such program", "staged": [], "kept": []}
    assert exits.outcome(record).launch_error == "no such program"
    assert exits.reports(record) == ()


def test_half_a_record_is_none() -> None:
    with pytest.raises(KeyError):
        exits.outcome({"ranks": []})
