"""The command line alone: its output, streams and exit codes, and what it does not import."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from contract_answers import DETAIL, JOB, TABLE, route
from contract_server import serving

from trainmaster.cli.app import ALIASES, COMMANDS, run
from trainmaster.cli.inspect.why import expected, sentence
from trainmaster.client.api import STATES
from trainmaster.model.job import State

HEAVY = ("pydantic", "httpx", "rich", "sqlalchemy", "fastapi", "numpy", "asyncio", "yaml")
Tm = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Tm:
    """Run one command line in this process, without a server. Returns exit code, output, and other messages."""
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRAINMASTER_SERVER", raising=False)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        told = capsysbinary.readouterr()
        return code, told.out.decode(), told.err.decode()

    return invoke


def test_every_command_loads_and_has_help(tm: Tm) -> None:
    assert {name: tm(name, "--help")[0] for name in COMMANDS} == dict.fromkeys(COMMANDS, 0)
    assert {ALIASES[alias][0] for alias in ALIASES} <= COMMANDS.keys()
    assert tm("ps", "-h") == tm("ps", "--help")
    code, out, _ = tm()
    assert code == 0
    assert all(f"  {name} " in out for name in COMMANDS)
    assert not any(f"  {alias} " in out for alias in ALIASES)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("shwo digits", "error: there is no command 'shwo'\n  did you mean: tm show\n"),
        ("squee", "error: there is no command 'squee'\n  did you mean: tm ps\n"),
        ("xyzzy", "error: there is no command 'xyzzy'\n  all commands: tm --help\n"),
        ("list", "error: there is no command 'list'\n  use: tm ps\n"),
        ("drain node1", "error: there is no command 'drain'\n  use: tm nodes drain\n"),
        ("status digits-1", "error: there is no command 'status'\n  use: tm show\n"),
        ("train.py --lr 1", "error: there is no command 'train.py'\n  to run it: tm run -- python train.py --lr 1\n"),
        ("python train.py", "error: there is no command 'python'\n  to run it: tm run -- python train.py\n"),
        ("train.yaml", "error: there is no command 'train.yaml'\n  to run it: tm run train.yaml\n"),
        ("run", "error: nothing to run\n  tm run train.yaml   or   tm run -- python train.py\n"),
        ("run --", "error: there is no command after --\n  tm run -- python train.py\n"),
        (
            "run train.py",
            "error: 'train.py' is not a spec file\n"
            "  a command goes after --: tm run -- python train.py   a spec file: tm run train.yaml\n",
        ),
        (
            "submit python train.py",
            "error: 'python' is not a spec file\n"
            "  a command goes after --: tm submit -- python train.py   a spec file: tm submit train.yaml\n",
        ),
        *(
            (
                f"run --nodes {span} -- true",
                f"error: --nodes {span}: a range of nodes is two options\n"
                "  the smallest and the largest number: --nodes 2 --nodes-max 8\n",
            )
            for span in ("2..8", "2-8", "2:8")
        ),
        ("run --nodes x", "error: invalid value for '--nodes': 'x' is not a number\n  its options: tm run --help\n"),
        (
            "plan --nodes-min 2 -- true",
            "error: there is no option '--nodes-min': it is --nodes\n"
            "  the smallest and the largest number: --nodes 2 --nodes-max 8\n",
        ),
        ("run --nodes", "error: option '--nodes' requires an argument\n  its options: tm run --help\n"),
        ("ps --stat queued", "error: there is no option '--stat'; did you mean '--state'?\n  its options: tm ps --help\n"),
        ("show", "error: missing argument 'JOB'\n  the newest job: tm show @last   all of them: tm ps --all\n"),
        (
            "wait x --timeout abc",
            "error: invalid value for '--timeout': 'abc' is not a number\n  its options: tm wait --help\n",
        ),
        ("nodes drain", "error: missing argument 'NAME'\n  its options: tm nodes drain --help\n"),
        ("--server x ps --server y --server z", "error: --server is given more than once\n  it has one value: give it once\n"),
        ("squeue --project a --project b", "error: --project is given more than once\n  it has one value: give it once\n"),
        ("run --gpus 1 --gpus=2 -- true", "error: --gpus is given more than once\n  it has one value: give it once\n"),
        (
            "ps --state queued --state held --project a --project a",
            "error: --project is given more than once\n  it has one value: give it once\n",
        ),
        (
            "token create a --role member --role admin",
            "error: --role is given more than once\n  it has one value: give it once\n",
        ),
        ("token rm ada", "error: there is no command 'tm token rm'\n  use: tm token revoke\n"),
        ("checkpoints x", "error: there is no command 'checkpoints'\n  use: tm show JOB\n"),
        ("rm x --only work,logs", "error: --only has one kind, not 'work,logs'\n  repeat it: --only work --only logs\n"),
        (
            "run a.yaml -- python x.py",
            "error: both 'a.yaml' and a command after -- are given\n  give a FILE, or a COMMAND after --\n",
        ),
    ],
)
def test_what_cannot_be_meant(tm: Tm, line: str, said: str) -> None:
    assert tm(*line.split()) == (2, "", said)


def test_a_line_for_a_shell_without_its_dashes(tm: Tm) -> None:
    assert tm("run", "python3 train.py") == (
        2, "", "error: 'python3 train.py' is not a spec file\n"
        "  a command goes after --: tm run -- python3 train.py   a spec file: tm run train.yaml\n",
    )  # fmt: skip


def test_a_directory_in_place_of_a_spec(tm: Tm, tmp_path: Path) -> None:
    (tmp_path / "exp").mkdir()
    assert tm("run", "exp") == (2, "", "error: 'exp' is a directory\n  name the spec file in it: tm run exp/train.yaml\n")
    (tmp_path / "exp" / "own.yml").write_text("command: 'true'\n")
    assert tm("run", "exp/") == (2, "", "error: 'exp/' is a directory\n  name the spec file in it: tm run exp/own.yml\n")


def test_an_empty_file_of_rules_takes_none_away(tm: Tm, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# pools: {}\n")
    said = "error: empty.yaml: the file is empty\n  for a configuration with all defaults, write {}\n"
    assert tm("apply", "empty.yaml") == (2, "", said)


def test_what_cannot_be_the_name_of_a_job(tm: Tm) -> None:
    hint = "\n  name an id, a unique prefix of one, a name, @last or @last-failed\n"
    assert tm("show", "../jobs") == (2, "", f"error: '../jobs' is not the name of a job{hint}")
    assert tm("logs", "x", "\udcff") == (2, "", f"error: '\\udcff' is not the name of a job{hint}")
    with serving(route) as fake:
        assert tm("ps", "--server", fake.url, "--tag", "\udcff") == (2, "", "error: the request is not valid UTF-8 text\n")


def test_an_empty_name_among_several(tm: Tm) -> None:
    said = "error: the job's name is empty\n  name an id, a unique prefix of one, a name, @last or @last-failed\n"
    assert tm("compare", "digits-1", "") == (2, "", said)


def test_a_misspelt_option_of_run_may_be_the_program_s_or_ours(tm: Tm) -> None:
    assert tm("run", "--gpu", "2", "--", "true") == (
        2, "", "error: there is no option '--gpu'; did you mean '--gpus'?\n"
        "  put options of your program after --: tm run -- python train.py --gpu\n",
    )  # fmt: skip


def test_options_of_the_program_in_the_wrong_place(tm: Tm) -> None:
    code, out, said = tm("run", "--epochs", "3", "train.py")
    assert (code, out) == (2, "")
    assert said.endswith("put options of your program after --: tm run -- python train.py --epochs\n")


def test_the_states_that_may_be_asked_for_are_all_there_are() -> None:
    assert tuple(State) == STATES


def test_a_wrong_spec_is_told_by_file_and_line_before_any_server_is_started(tm: Tm, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("command: python train.py\nresources:\n  gpu: 2\n")
    code, _, said = tm("run", "bad.yaml")
    assert (code, said.splitlines()[0].startswith("bad.yaml:3:3: resources.gpu: unknown field")) == (2, True)
    code, out, said = tm("submit", "--json", "--param", "lr", "--", "true")
    assert (code, out, json.loads(said)["error"]["code"]) == (2, "", "usage")
    assert not (tmp_path / "home").exists()


def test_no_server(tm: Tm, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    message = f"no server is running on {tmp_path / 'home'} (as $TRAINMASTER_HOME says)"
    assert tm("ps") == (7, "", f"error: {message}\n  start it: tm up\n")
    code, out, said = tm("--json", "ps")
    assert (code, out) == (7, "")
    assert json.loads(said)["error"] == {
        "code": "unreachable", "message": message, "hint": "start it: tm up", "details": [], "request_id": "",
    }  # fmt: skip
    assert tm("down") == (0, "", f"no server was running on {tmp_path / 'home'}\n")


def test_a_list_for_people_and_for_scripts(tm: Tm) -> None:
    with serving(route) as server:
        code, out, said = tm("ps", "--server", server.url)
        assert (code, out.splitlines()[0].split(), said) == (
            0,
            ["ID", "STATE", "TRY", "STEP", "METRIC", "ELAPSED", "AGE", "WHERE", "/", "WHY"],
            "",
        )
        assert out.splitlines()[1].split()[:6] == ["digits-14", "failed", "1", "120", "loss", "0.25"]
        assert tm("--server", server.url, "ps", "-q")[:2] == (0, "digits-14\n")
        assert json.loads(tm("--server", server.url, "ps", "--json")[1]) == [{**JOB, "elapsed_s": 60.0}]


def test_one_job_fits_eighty_columns_and_says_all_that_matters(tm: Tm) -> None:
    with serving(route) as server:
        code, out, _ = tm("--server", server.url, "show", "@last")
        assert json.loads(tm("--server", server.url, "show", "@last", "--json")[1]) == DETAIL
    assert code == 0
    assert [line for line in out.splitlines() if len(line) > 80] == []
    for said in (
        "digits-14  failed after 1 min", "  needs      1 CPU, 2 ranks, at most 1 h", "git 01234567 with changes",
        "params     lr=0.1", "   1 ░███████████████████████████████████  failed, ran 1 min on n0",
        "Metric loss: 0.25 at step 120, best 0.25 at step 120", "step about 100", "Failure: program, rank 1", "  | ValueError: boom", "Note: the program does not load its checkpoint",
        "Work directory: /home/work/digits-14/n0", "Next: tm logs digits-14   tm get digits-14 out/a.png",
    ):  # fmt: skip
        assert said in out


@pytest.mark.parametrize(
    ("p50", "high90", "said"),
    [
        (720.0, 1800.0, "It will start in about 12 min (50 %: 8 to 20 min; 90 %: 60 s to 30 min)."),
        (720.0, 5400.0, "It will probably start within 1.5 h (50 %: 8 to 20 min; 90 %: 60 s to 1.5 h)."),
        (720.0, None, "It may start only after a long time (50 %: 8 to 20 min; 90 %: from 60 s on)."),
    ],
)
def test_a_bound_far_from_the_middle_is_what_is_said(p50: float, high90: float | None, said: str) -> None:
    eta_s = {"low90": 60.0, "low50": 480.0, "p50": p50, "high50": 1200.0, "high90": high90, "few": False, "jobs": 100}
    assert expected(eta_s) == said
    short = {**eta_s, "low90": 0.0, "low50": 0.0, "p50": 1.0, "high50": 2.0, "high90": 60.0}
    assert expected(short).startswith("It will start in about 1 s ")


def test_reading_one_job(tm: Tm) -> None:
    with serving(route) as server:
        assert tm("--server", server.url, "why", "@last")[:2] == (0, (
            "digits-14 is queued: waiting for 2 GPUs. It starts once digits-12 has ended.\n"
            "It will probably start within 1.5 h (90 %), from few finished jobs (3): its bounds are unreliable.\n"
        ))  # fmt: skip
        assert tm("--server", server.url, "logs", "@last")[:2] == (0, "a\n[1] b\n")
        assert tm("--server", server.url, "get", "@last")[1].splitlines() == [
            "PATH       KIND  SIZE  SHA-256       TRY", "out/a.png  plot  10 B  abababababab    1",
        ]  # fmt: skip
        assert tm("--server", server.url, "nodes")[1].splitlines() == [
            "NODE  STATE  CPUS FREE  MEMORY FREE  GPUS FREE               "
            "ALSO FREE                                                   JOBS",
            "n0    up     6 of 8     8 of 16 GiB  0 of 1 h100 (stand-in)  "
            "license 1 of 2, disk 64 of 128 GiB, network 60 of 100 Gbps  digits-14",
        ]


def test_nodes_are_listed_with_their_labels(tm: Tm) -> None:
    node = {**TABLE["GET /nodes"][1]["nodes"][0], "devices": [], "counted": {}}
    listed = (200, {"nodes": [{**node, "labels": {"rack": "r1", "zone": "a"}}, {**node, "name": "n1", "jobs": [], "labels": {}}]})
    with serving(lambda asked: listed) as server:
        assert tm("--server", server.url, "nodes")[1].splitlines() == [
            "NODE  STATE  CPUS FREE  MEMORY FREE  GPUS FREE  ALSO FREE  LABELS           JOBS",
            "n0    up     6 of 8     8 of 16 GiB  none       -          rack r1, zone a  digits-14",
            "n1    up     6 of 8     8 of 16 GiB  none       -          -                -",
        ]


def test_logs_of_what_there_is_not(tm: Tm) -> None:
    with serving(route) as server:
        said = [tm("--server", server.url, "logs", "@last", *more) for more in (["--rank", "2"], ["--attempt", "4"])]
    assert said == [
        (2, "", "error: digits-14 has no rank 2\n  it has ranks 0 to 1\n"),
        (2, "", "error: digits-14 has had no attempt 4\n  it has had 1\n"),
    ]


def test_why_in_one_sentence() -> None:
    def of(state: str, reason: str) -> str:
        return sentence({"id": "x-1", "state": state, "text": reason, "position": None})

    assert [
        of("queued", "x-1 is number 2 in the queue, waiting for 1 GPU"), of("queued", "cancel requested"),
        of("running", "running"), of("held", "held by ada: not yet"), of("cancelled", "cancelled by ada"),
        of("failed", "rank 0 exited with code 1"), of("stopping", "cancelled by ada"),
    ] == [
        "x-1 is number 2 in the queue, waiting for 1 GPU", "x-1 is queued: cancel requested",
        "x-1 is running", "x-1 is held by ada: not yet", "x-1 was cancelled by ada",
        "x-1 has failed: rank 0 exited with code 1", "x-1 is stopping: cancelled by ada",
    ]  # fmt: skip


def test_how_a_job_ended_is_the_exit_code_of_wait(tm: Tm) -> None:
    with serving(route) as server:
        code, out, _ = tm("--server", server.url, "wait", "digits-14")
    assert (code, out) == (10, "digits-14 failed after 1 min: rank 1 exited with code 1 (tm show digits-14)\n")


def test_all_are_tried_before_a_refusal_is_told(tm: Tm) -> None:
    with serving(route) as server:
        assert tm("--server", server.url, "kill", "other-1", "digits-14") == (
            5,
            "digits-14 is being cancelled\n",
            "error: other-1 has ended\nerror: 1 of 2 were rejected, first: other-1 has ended\n  h\n",
        )
        assert tm("--server", server.url, "show", "nope")[0] == 3


def test_a_damaged_artifact_is_not_kept(tm: Tm, tmp_path: Path) -> None:
    artifact = TABLE["GET /jobs/digits-14/artifacts/out/a.png"]
    with serving(lambda asked: artifact if "/artifacts/" in asked.line else route(asked)) as server:
        code, _, said = tm("--server", server.url, "get", "@last", "out/a.png")
    assert (code, said.splitlines()[0]) == (1, "error: out/a.png arrived damaged: its digest is not abababababab")
    assert list(tmp_path.glob("*a.png*")) == []


def test_who_has_named_artifacts_is_not_told_to_name_them(tm: Tm) -> None:
    """R20: a job whose glob matched nothing was answered with "name them in its spec"."""
    naming = "to store files, name them in its spec: artifacts: [out/*.png]"
    for names, told in ((["no*.bin", "x"], "its spec names no*.bin, x"), ([], naming)):
        detail = (200, {**DETAIL, "spec": {**DETAIL["spec"], "artifacts": names}})
        none = (200, {"id": "digits-14", "artifacts": [], "total": 0, "bytes": 0})
        with serving(lambda asked, detail=detail, none=none: none if "/artifacts" in asked.line else detail) as server:
            listed = tm("--server", server.url, "artifacts", "@last")
            fetched = tm("--server", server.url, "get", "@last", "a")
        assert listed == (0, "", f"digits-14 has no artifacts; {told}; see also: tm show digits-14\n")
        assert fetched == (3, "", f"error: digits-14 has no artifacts\n  {told}; see also: tm show digits-14\n")


def test_what_only_reads_loads_nothing_heavy(tmp_path: Path) -> None:
    lines = (["ps"], ["show", "@last"], ["why", "@last"], ["logs", "@last"], ["get", "@last"], ["cancel", "digits-14"],
             ["wait", "digits-14"], ["--help"])  # fmt: skip
    probe = f"import sys\nfrom trainmaster.cli.app import run\ncodes = [run(line) for line in {lines!r}]\n"
    probe += f"sys.stderr.write(repr((codes, sorted(set({HEAVY!r}) & set(sys.modules)))))"
    with serving(route) as server:
        environment = {"TRAINMASTER_HOME": str(tmp_path), "TRAINMASTER_SERVER": server.url}
        done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr.endswith("([0, 0, 0, 0, 0, 0, 10, 0], [])")


def test_the_version_needs_nothing_at_all() -> None:
    probe = "import sys; sys.argv[1:] = ['--version']\nfrom trainmaster.cli.main import main\nmain()\n"
    probe += "assert 'click' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "trainmaster 0.1.0\n"


def test_a_parameter_that_is_nearly_one_of_the_files_is_asked_about(tm: Tm, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("command: 'true'\nparams: {hidden: 3}\n")
    code, _, err = tm("render", "train.yaml", "--set", "hiddn=4")
    assert (code, err.splitlines()) == (
        2, ["error: train.yaml has no parameter 'hiddn'", "  did you mean 'hidden'?   a new one: --add-param hiddn=…"],
    )  # fmt: skip
    for options in (("--set", "hidden=4"), ("--set", "seed=4"), ("--add-param", "hiddn=4")):
        code, out, err = tm("render", "train.yaml", *options, "--json")
        assert code == 0, err
        assert f'"{options[1].partition("=")[0]}": 4' in out.replace("\\", ""), out


def test_a_batch_script_of_slurm_is_a_job(tm: Tm, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH -J digits -c 4\npython train.py $1\n")
    code, out, err = tm("render", "job.sh", "a", "--cpus", "2", "--json", "--", "--lr", "1")
    (launch,) = json.loads(out)
    assert (code, err, launch["command"], launch["cpus"]) == (0, "", ["/bin/bash", "job.sh", "a", "--lr", "1"], 2.0)
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --constraint=v100\npython train.py\n")
    code, _, err = tm("submit", "job.sh")
    assert (code, err.splitlines()[0]) == (
        2, "error: job.sh:2: --constraint: nodes have no features; choose a pool (--pool), or a kind of GPU (--gpus KIND:N)",
    )  # fmt: skip
    (tmp_path / "plain.sh").write_text("#!/bin/bash\npython train.py\n")
    assert tm("submit", "plain.sh")[2].startswith("error: 'plain.sh' is not a spec file\n")


def test_a_variable_of_the_shell_is_passed_on_by_its_name_and_a_token_not_shown(
    tm: Tm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.yaml").write_text("command: 'true'\nenvironment:\n  variables: [HF_TOKEN, FLAVOUR]\n")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("FLAVOUR", "vanilla")
    for verb in ("submit", "plan", "render"):
        code, _, err = tm(verb, "--env", "HF_TOKEN", "--", "true")
        assert (code, err.splitlines()) == (
            2,
            [
                "error: env: the variable 'HF_TOKEN' is not set here, or not exported; export it, or give it a value",
                "  export HF_TOKEN=…   or: --env HF_TOKEN=VALUE",
            ],
        )
        code, _, err = tm(verb, "train.yaml")
        assert code == 2
        assert "train.yaml:3:15: environment.variables[0]: the variable 'HF_TOKEN' is not set here" in err
    monkeypatch.setenv("HF_TOKEN", "hf-of-ann")
    for words in (("--env", "HF_TOKEN", "--env", "FLAVOUR", "--", "true"), ("train.yaml",)):
        code, out, err = tm("render", *words)
        assert code == 0, err
        assert '"HF_TOKEN": "(hidden)"' in out
        assert '"FLAVOUR": "vanilla"' in out
