"""Batch scripts of Slurm: each `#SBATCH` line is mapped, named or refused, by its line."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from trainmaster.client.files import draft_script
from trainmaster.client.start_options import Array, overridden
from trainmaster.errors import UsageError
from trainmaster.model.spec import Resources
from trainmaster.spec.document import from_mapping
from trainmaster.spec.slurm_script import Script, read

SCRIPT = """#!/bin/bash -l
# trains digits
#SBATCH --job-name="digits 3"   # a comment
#SBATCH -A vision -p a100
#SBATCH --nodes=2 --ntasks-per-node 4
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:A100:4
#SBATCH --mem=64G
#SBATCH -t 1-12:30:00
#SBATCH --output=logs/%j.out
#SBATCH -e logs/%j.err
#SBATCH --mail-type=END
##SBATCH --array=0-9

module load cuda
#SBATCH --time=5
echo $SLURM_JOB_ID ${SLURM_PROCID:-0} $SLURM_FANCY
python train.py "$@"
"""


def lines(*options: str, body: str = "python train.py") -> str:
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {option}" for option in options), body, ""])


def options(*given: str, body: str = "python train.py") -> dict[str, object]:
    found = read("job.sh", lines(*given, body=body)).options
    assert (found.pop("name"), found.pop("hold")) == ("job", False)
    return found


def refusal(text: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        read("job.sh", text)
    return str(caught.value.message).splitlines()


def test_line_ends_of_windows_are_refused_as_by_sbatch_and_no_other_character_ends_a_line() -> None:
    assert refusal("#!/bin/bash\r\n#SBATCH -n 2\r\ncd data\r\n") == [
        "job.sh:1: its lines end as in Windows, so bash would not understand them, as with sbatch; convert it: dos2unix"
    ]
    assert options("-n 2", body="# a page\x0c#SBATCH -n 8\n# a line\u2028srun x\ntrue") == {"cpus": 2.0, "ranks": 2}


def test_a_whole_script() -> None:
    assert read("jobs/job.sh", SCRIPT) == Script(
        ["/bin/bash", "-l"],
        {
            "name": "digits-3", "project": "vision", "pool": "a100", "nodes": 2, "ranks": 4, "cpus": 32.0, "gpus": "a100:4",
            "memory": "64GiB", "time_limit": 131400.0, "hold": False,
        },
        [
            "jobs/job.sh:5: each rank runs the whole script, as under srun",
            "jobs/job.sh:10: --output: the output is kept and shown by tm logs",
            "jobs/job.sh:11: --error: the output is kept and shown by tm logs",
            "jobs/job.sh:12: --mail-type: no mail is sent: an address is needed; add --notify ADDRESS",
            "jobs/job.sh:15: module: it is a function of login shells; begin the script with #!/bin/bash -l",
            "jobs/job.sh:16: an #SBATCH line after the first command has no effect, as with sbatch",
            "jobs/job.sh:17: SLURM_FANCY is not set",
            "jobs/job.sh:17: SLURM_JOB_ID is not set; use TRAINMASTER_JOB",
            "jobs/job.sh:17: SLURM_PROCID is not set; use RANK",
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("-n1",), {}),
        (("-c 4",), {"cpus": 4.0}),
        (("--ntasks=4",), {"ranks": 4, "cpus": 4.0}),
        (("-N2", "-n 8", "-c2"), {"nodes": 2, "ranks": 4, "cpus": 8.0}),
        (("-N 2-4",), {"nodes": 2, "nodes_max": 4, "ranks": 1}),
        (("--gpus=2",), {"gpus": 2, "ranks": 1}),
        (("-G h100:8", "-N 2"), {"nodes": 2, "gpus": "h100:4", "ranks": 1}),
        (("--gres=gpu",), {"gpus": 1}),
        (("--gpus-per-task=1", "--ntasks-per-node=4"), {"gpus": 4, "ranks": 4, "cpus": 4.0}),
        (("--mem=2048",), {"memory": "2048MiB"}),
        (("--mem-per-cpu=4G", "-c 8"), {"cpus": 8.0, "memory": "32GiB"}),
        (("--mem-per-gpu=40G", "--gpus-per-node=2"), {"gpus": 2, "ranks": 1, "memory": "80GiB"}),
        (("-t 90",), {"time_limit": 5400.0}),
        (("-t 90:30",), {"time_limit": 5430.0}),
        (("-t 1:30:00",), {"time_limit": 5400.0}),
        (("-t 2-0",), {"time_limit": 172800.0}),
        (("-t 1-1:30",), {"time_limit": 91800.0}),
        (("-t UNLIMITED",), {}),
        (("-t 5", "-t 6"), {"time_limit": 360.0}),
        (("-q training", "-D sub", "--comment='a b'"), {"work": "training", "workdir": "sub", "tags": ("comment=a b",)}),
        (("--no-requeue", "--tmp=10G"), {"restarts": {"program": 0, "infrastructure": 0}, "disk": "10GiB"}),
        (("-L matlab:2,ansys@db",), {"custom": ("matlab=2", "ansys=1")}),
        (("--array=0-9%2",), {"array": "0-9%2"}),
        (("-a 1,3,8-20:4",), {"array": "1,3,8-20:4"}),
        (("-d afterok:prepare:fetch,afterany:digits-3",), {"after": ("prepare:ok", "fetch:ok", "digits-3:any")}),
        (("-d afternotok:train",), {"after": ("train:failed",)}),
        (("--begin=16:00",), {"begin": "16:00"}),
        (("-b now+2hours",), {"begin": "+7200s"}),
        (("-b now+90",), {"begin": "+90s"}),
        (("-b now",), {}),
        (("-b noon",), {"begin": "12:00"}),
        (("--begin=2026-12-24T08:00",), {"begin": "2026-12-24T08:00"}),
        (("--mail-user=ann@example.com", "--mail-type=END,FAIL"), {"notify": ("ann@example.com",)}),
        (("--mail-user=ann@example.com", "--mail-type=FAIL"), {"notify": ("ann@example.com",), "notify_on": "failure"}),
        (("--mail-user=ann@example.com", "--mail-type=NONE"), {}),
        (("--export=NONE,HF_TOKEN,LR=0.1",), {"env": ("HF_TOKEN", "LR=0.1")}),
    ],
)
def test_options_and_what_they_mean(given: tuple[str, ...], expected: dict[str, object]) -> None:
    assert options(*given) == expected


def test_a_launcher_starts_the_tasks_itself() -> None:
    body = "torchrun --nproc-per-node=4 train.py"
    expected = {"cpus": 8.0, "gpus": 4, "ranks": 1, "env": ("OMP_NUM_THREADS=2", "A=1")}
    assert options("--ntasks-per-node=4 -c 2", "--gpus-per-node=4", "--export=NONE,A=1", body=body) == expected
    assert options("-c 16 --gpus=8", body=body) == {"cpus": 16.0, "gpus": 8, "ranks": 1, "env": ("OMP_NUM_THREADS=2",)}
    assert read("job.sh", lines("--ntasks-per-node=4", body=body)).notes == [
        "job.sh:3: torchrun starts the processes, so the script runs once on each node"
    ]


def test_all_that_is_impossible_is_told_by_its_line() -> None:
    given = ("--array=all", "-d afterok:1?afterok:2 --constraint=v100", "--exclusive", "--frobnicate", "--mem=0", "--gres=fpga:1", "-t soon")
    assert refusal(lines(*given, "hetjob", "-n 3 -N 2", "--job-name='x", body="srun python t.py $SLURM_ARRAY_TASK_ID")) == [
        "job.sh:2: --array: expected indexes such as 0-9, 0-9%2, 0-30:10 or 1,3,7",
        "job.sh:3: --constraint: nodes have no features; choose a pool (--pool), or a kind of GPU (--gpus KIND:N)",
        "job.sh:3: --dependency: afterok:1?afterok:2 has no equivalent; use afterok, afterany or afternotok, which must all hold",
        "job.sh:4: --exclusive: a node cannot be asked for as a whole; ask for all of its CPUs or GPUs",
        "job.sh:5: --frobnicate: there is no equivalent",
        "job.sh:6: --mem: all memory of a node cannot be asked for; give an amount",
        "job.sh:7: --gres: only GPUs are known: gpu:2 or gpu:h100:2; other resources: --custom NAME=N",
        "job.sh:8: --time: expected minutes, hours:minutes:seconds or days-hours",
        "job.sh:9: a job has one kind of node; programs beside the ranks are roles in a spec file",
        "job.sh:10: --ntasks: 3 tasks cannot be divided evenly between 2 nodes; use --ntasks-per-node",
        "job.sh:11: No closing quotation: the quotes of this line do not match",
        "job.sh:12: SLURM_ARRAY_TASK_ID is not set, and each task would do the same; use TRAINMASTER_ARRAY_INDEX",
        "job.sh:12: there is no srun: each rank runs this script, so write the command without it",
    ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("-N 0", "--nodes: expected a number of nodes, or a range such as 2-4"),
        ("-c many", "--cpus-per-task: expected a whole number from 1"),
        ("--gpus=3 -N 2", "--gpus: 3 GPUs cannot be divided evenly between 2 nodes; use --gpus-per-node"),
        ("--gpus=v100:1,a100:1", "--gpus: expected a number of GPUs, or a kind and a number such as h100:2"),
        ("--mem=much", "--mem: expected a size such as 64G"),
        ("--mem-per-gpu=1G", "--mem-per-gpu: there are no GPUs; use --mem"),
        ("-d singleton", "--dependency: singleton has no equivalent; use afterok, afterany or afternotok, which must all hold"),
        ("-d afterok", "--dependency: expected afterok:JOB, afterany:JOB or afternotok:JOB"),
        ("--begin=soon", "--begin: expected 22:00, now+2hours or 2026-12-24T08:00"),
        ("now", "expected an option, got 'now'"),
    ],
)
def test_values_that_mean_nothing(given: str, told: str) -> None:
    assert refusal(lines(given)) == [f"job.sh:2: {told}"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--mail-user=ann@example.com", "job.sh:2: --mail-user: no mail is sent without a --mail-type, as with sbatch"),
        ("--mail-user=ann --mail-type=ALL", "job.sh:2: --mail-type: no mail is sent: an address is needed; add --notify ADDRESS"),
        ("--mail-user=a@b.c --mail-type=BEGIN", "job.sh:2: --mail-type: no mail is sent: only of its end, with END or FAIL"),
        ("--mail-user=a@b.c --mail-type=BEGIN,END", "job.sh:2: --mail-type: a mail is sent of its end only"),
    ],
)
def test_which_mails_are_sent(given: str, told: str) -> None:
    assert read("job.sh", lines(given)).notes == [told]


def test_a_script_may_use_the_index_of_both_systems() -> None:
    body = "python train.py ${SLURM_ARRAY_TASK_ID:-$TRAINMASTER_ARRAY_INDEX} $SLURM_ARRAY_JOB_ID"
    assert read("job.sh", lines("--array=0-1", body=body)).notes == [
        "job.sh:3: SLURM_ARRAY_JOB_ID is not set",
        "job.sh:3: SLURM_ARRAY_TASK_ID is not set; use TRAINMASTER_ARRAY_INDEX",
    ]


def test_an_array_that_waits_and_options_override_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draft = draft_script(Path("job.sh"), lines("-a 0-2%1 -d afterok:prepare -b now+60"), [], {})
    assert (draft.start, draft.array) == ({"after": [{"job": "prepare", "when": "ok"}], "begin_in_s": 60.0}, Array((0, 1, 2), 1))
    assert overridden(draft.start, {"begin_s": 5.0}) == {"after": [{"job": "prepare", "when": "ok"}], "begin_s": 5.0}
    assert overridden(draft.start, None) == draft.start
    assert overridden(None, None) is None


WORDS = st.sampled_from(["-n", "-N 2", "--gres=gpu", "--gpus=a:1", "-t", "1-", "--mem", "'", '"', "#", "\\", "--", "-", "=", "--x=", "-L a:", "--export=,", "-a 1-%", "-b now+", "-d after:", "--mail-type=,"])


@generated(st.lists(WORDS | st.text(max_size=5), max_size=6), st.text(max_size=20))
def test_any_script_is_read_or_refused(given: list[str], body: str) -> None:
    with suppress(UsageError):
        assert read("job.sh", lines(*given, body=body)).interpreter == ["/bin/bash"]


def test_a_script_becomes_a_job_and_options_override_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir()
    text = lines("-H", "-c 4 -t 60", "--export=A=1,B=1")
    draft = draft_script(Path("jobs/job.sh"), text, ["--lr", "0.1"], {"cpus": 2.0, "env": ("B=2",)})
    assert (draft.hold, draft.directory, draft.notes) == ("held at submit", tmp_path, ())
    spec = from_mapping(draft.spec)
    assert (spec.command, spec.name, spec.time_limit_s) == (("/bin/bash", "jobs/job.sh", "--lr", "0.1"), "job", 3600.0)
    assert (spec.resources, spec.environment.variables) == (Resources(cpus=2.0, ranks_given=False), {"A": "1", "B": "2"})
    with pytest.raises(UsageError) as caught:
        draft_script(tmp_path / "job.sh", text, [], {"workdir": "jobs"})
    assert caught.value.message == f"{tmp_path}/job.sh is not below {tmp_path}/jobs, the directory that is copied for the job"
    in_place = draft_script(Path("jobs/job.sh"), text, [], {"workdir": "jobs"}, in_place=True)
    assert in_place.spec["command"] == ["/bin/bash", os.fspath(tmp_path / "jobs" / "job.sh")]
