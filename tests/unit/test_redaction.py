"""Secrets are never shown: credentials in commands, variables, parameters, data, notes, events, comparisons."""

import shlex
import time
from dataclasses import asdict, replace

import pytest

from trainmaster.control.observe import take_report
from trainmaster.control.world import Batch, World
from trainmaster.model import events as ev
from trainmaster.model import redaction
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job, State
from trainmaster.model.options.credentials import is_credential
from trainmaster.model.redaction import HIDDEN, line, shown, text, values, variables, without_signature
from trainmaster.model.spec import DataVersion, Environment, JobSpec, Origin, Role
from trainmaster.ports.store import Recorded
from trainmaster.server.jobs.data_versions import data_versions
from trainmaster.server.record.differences import Run, compare
from trainmaster.server.views import resources
from trainmaster.server.views.event_text import event_view
from trainmaster.testing import builders
from trainmaster.tracking.runs import run_of

SECRET = "hunter2-hunter2"
SIGNED = "https://bucket.s3.amazonaws.com/train.tar?X-Amz-Credential=AKID&X-Amz-Signature=abcdef"


@pytest.mark.parametrize(
    "name",
    [
        "--token", "--hub_token", "hub.token", "HF_TOKEN", "--hf-token", "--api-key", "--apiKey", "WANDB_API_KEY", "OPENAI_API_KEY",
        "--password", "DB_PASSWORD", "DB_PASS", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "--client-secret",
        "GITHUB_PAT", "privateKey", "--auth-token", "access_token",
    ],
)  # fmt: skip
def test_names_of_credentials(name: str) -> None:
    """S9: an option or a variable of this name."""
    assert is_credential(name, SECRET)
    equals = f"train.py {name}={SECRET} --lr 0.1"
    assert SECRET not in line(equals)
    assert "--lr 0.1" in line(equals)
    assert SECRET not in str(redaction.command(("train.py", f"{name}={SECRET}")))
    if name.startswith("--"):
        assert line(f"a {name} '{SECRET}' b") == f"a {name} {HIDDEN} b"
        assert redaction.command(("a", name, SECRET, "b")) == ("a", name, HIDDEN, "b")


@pytest.mark.parametrize(
    "told",
    [
        "--lr 0.1", "--tokenizer gpt2", "--max-tokens 2048", "--eos-token '</s>'", "--pad_token=<pad>", "--token-dropout 0.1",
        "--key value", "--token-file /run/token", "--cost-per-token x", "--primary-key id", "--use-auth-token true", "--steps=10 --seed=1",
        "LR=1e-4 python train.py", "python -c 'print(1)'", "ssh://git@host/x", "https://host/x?page=2",
    ],
)  # fmt: skip
def test_what_is_no_credential_is_shown(told: str) -> None:
    assert line(f"python train.py {told}") == f"python train.py {told}"


def test_known_forms_are_hidden_wherever_they_stand() -> None:
    """S9: tokens that their form tells, passwords in URLs, signed queries."""
    forms = (
        "hf_" + "a1" * 12,
        "ghp_" + "b2" * 18,
        "AKIA" + "C3" * 8,
        "tm_" + "d-_4" * 10,
        "eyJhbGciOiJI.eyJzdWIiOiIx.sig-nature",
    )
    assert [text(f"see {form}, there") for form in forms] == [f"see {HIDDEN}, there"] * len(forms)
    assert text("https://ann:pw@host/x and postgres://u:p@db") == f"https://ann:{HIDDEN}@host/x and postgres://u:{HIDDEN}@db"
    assert line("curl -H 'Authorization: Bearer abcdefghij'") == f"curl -H 'Authorization: Bearer {HIDDEN}'"
    assert text(f"look at {SIGNED} now") == "look at https://bucket.s3.amazonaws.com/train.tar now"
    assert (
        without_signature("https://a.blob.core.windows.net/c/x?sv=1&sig=zz#part") == "https://a.blob.core.windows.net/c/x#part"
    )
    assert text("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\n") == HIDDEN + "\n"


def test_variables_are_shown_only_where_they_are_evidently_no_secrets() -> None:
    """S9: values of `--env`."""
    plain = {"OMP_NUM_THREADS": "4", "DEBUG": "true", "CACHE": "/scratch", "NCCL_DEBUG": "INFO", "LR": "1e-4", "EMPTY": ""}
    assert variables(plain) == plain
    assert set(variables({"ANY": SECRET, "MY_TOKEN": "1234", "WANDB_API_KEY": "k", "HF_TOKEN": SECRET}).values()) == {HIDDEN}
    assert values({"lr": 0.1, "note": "x", "api_key": SECRET}) == {"lr": 0.1, "note": "x", "api_key": HIDDEN}


def job_with_secrets(secret: str) -> Job:
    spec = JobSpec(
        ("python", "train.py", f"--token={secret}", "--password", secret, "--lr", "0.1"),
        environment=Environment(variables={"SERVICE": secret, "OMP_NUM_THREADS": "4"}),
        params={"api_key": secret, "lr": 0.1}, tags={"client_secret": secret},
        roles={"eval": Role(f"curl --api-key {secret}")}, data={"train": f"{SIGNED}{secret}"},
    )  # fmt: skip
    origin = Origin("ann", variables={"PATH": "/bin", "MINE": secret})
    data = (DataVersion("train", without_signature(f"{SIGNED}{secret}")),)
    return replace(builders.job(spec=spec), origin=origin, data=data, run_params={"token": secret})


def test_a_secret_is_in_no_view_of_a_job() -> None:
    """S9: in `show`, its JSON, events, a tracker's run; the spec itself keeps it for the program."""
    job = job_with_secrets(SECRET)
    assert SECRET in str(job.spec)
    told = [
        resources.job_view(job, {}, ""), resources.job_detail(job, [], {}, "", []), run_of(job, "server"),
        event_view(Recorded(1, 1.0, job.id, None, ev.Submitted(1, job.spec, job.origin, job.code, 1.0), "")),
        event_view(Recorded(1, 1.0, job.id, 1, ev.CommandRun(1, "ann", f"curl --token {SECRET}", 0), "")),
        event_view(Recorded(1, 1.0, job.id, 1, ev.RunDataLogged(1, 0, {"token": SECRET}, {}), "")),
        asdict(shown(job.spec)),
    ]  # fmt: skip
    assert [SECRET in str(one) for one in told] == [False] * len(told)
    assert "X-Amz" not in str(told)
    assert "0.1" in str(told[0])


def test_a_comparison_says_that_hidden_values_differ_and_not_what_they_are() -> None:
    """S9: `tm compare` and its page."""
    found = compare([Run(job_with_secrets(secret)) for secret in (SECRET, "another-secret", SECRET)])
    assert SECRET not in str(found)
    assert "another-secret" not in str(found)
    fields = {(one.section, one.field): one.values for one in found.fields}
    assert fields["variables", "SERVICE"] == [f"{HIDDEN} 1", f"{HIDDEN} 2", f"{HIDDEN} 1"]
    assert fields["params", "api_key"] == [f"{HIDDEN} 1", f"{HIDDEN} 2", f"{HIDDEN} 1"]
    assert [line.rpartition("  # ")[2] for line in fields["spec", "command"]] == ["hidden: 1", "hidden: 2", "hidden: 1"]
    assert len({line.rpartition("  # ")[0] for line in fields["spec", "command"]}) == 1


def test_commands_that_differ_in_what_is_shown_are_not_numbered() -> None:
    """A number behind a line would be read as an argument of it."""
    runs = [Run(replace(builders.job(), spec=JobSpec(f"a --token {SECRET} --lr {lr}"))) for lr in (1, 2)]
    lines = [one.values for one in compare(runs).fields if one.field == "command"]
    assert lines == [[f"a --token {HIDDEN} --lr 1", f"a --token {HIDDEN} --lr 2"]]


def test_a_signed_query_is_not_kept_with_the_version_of_the_data() -> None:
    """S9: the spec keeps the URL, which the program reads; the record does not keep the signature."""
    spec = JobSpec("true", data={"train": SIGNED})
    (version,) = data_versions([{"name": "train", "uri": SIGNED}], spec)
    assert version.uri == "https://bucket.s3.amazonaws.com/train.tar"


@pytest.mark.parametrize(
    "arguments",
    [
        ("bash", "-c", "OMP_NUM_THREADS=1 HF_TOKEN=SECRET python train.py"), ("bash", "-c", "PGPASSWORD=SECRET psql"),
        ("env", "PGPASSWORD=SECRET", "psql"), ("curl", "-H", "X-Api-Key: SECRET", "host"), ("curl", "-H", "X-Api-Key:SECRET"),
        ("curl", "-H", "Authorization: token SECRET and more"), ("train.py", "--wandb-key", "SECRET"), ("train.py", "--wandb_key=SECRET"),
        ("mysql", "-u", "root", "-pSECRET", "db"), ("/usr/bin/mysqldump", "-pSECRET"), ("sshpass", "-p", "SECRET", "ssh", "host"),
        ("curl", "-u", "bob:SECRET", "host"), ("curl", "-sSubob:SECRET", "host"), ("curl", "--user", "bob:SECRET"),
        ("bash", "-c", "mysql -pSECRET < x && curl -u bob:SECRET host"), ("train.py", '{"password": "SECRET", "lr": 0.1}'),
        ("bash", "-c", "curl -H 'X-Api-Key: SECRET' host"), ("bash", "-c", "A=1 train.py --lr=0.1 --hub-token SECRET"),
    ],
)  # fmt: skip
def test_credentials_of_arguments_and_of_the_same_line(arguments: tuple[str, ...]) -> None:
    """Each was shown in full, as arguments or as a line."""
    told = tuple(one.replace("SECRET", SECRET) for one in arguments)
    assert SECRET not in str(redaction.command(told))
    assert SECRET not in line(shlex.join(told))
    assert redaction.command(told) != tuple(HIDDEN for _ in told)


def test_a_header_in_prose_is_hidden_with_its_scheme_shown() -> None:
    assert line("it sent Authorization: Bearer abcdefghij there") == f"it sent Authorization: Bearer {HIDDEN} there"
    assert line("the leak was password=hunter2, again") == f"the leak was password={HIDDEN} again"
    assert redaction.command(("x", '{"password": "a b", "lr": 0.1}')) == ("x", f'{{"password": {HIDDEN}, "lr": 0.1}}')


@pytest.mark.parametrize(
    "told",
    [
        ("docker", "run", "-u", "1000:1000", "-p", "80:80"), ("rsync", "-u", "host:data", "."), ("mkdir", "-p", "out"), ("python", "-u", "x.py"),
        ("train.py", "--map", "token: 5"), ("docker", "run", "registry/secret:latest"), ("train.py", "--opt=a b=c"), ("curl", "-u", "1:2"),
    ],
)  # fmt: skip
def test_arguments_without_credentials_are_shown_whole(told: tuple[str, ...]) -> None:
    assert redaction.command(told) == told
    assert line(shlex.join(told)) == shlex.join(told)


def test_the_credentials_that_a_spec_gives_are_hidden_in_what_its_program_says() -> None:
    variables = {"API_TOKEN": SECRET, "LONG_TOKEN": SECRET + SECRET, "LR": "0.01", "DB_PASSWORD": "x", "USE_TOKEN": "true"}
    key = "BEGIN\n" + "k" * 20 + "\nEND"
    spec = JobSpec("true", environment=Environment(variables={**variables, "SSH_KEY": key}), params={"api_key": "param-secret"})
    secrets = redaction.known(spec)
    said = f"KeyError: {SECRET}{SECRET} {SECRET} lr=0.01 true x param-secret {'k' * 20} http://u:pw@host"
    assert redaction.without_known(said, secrets) == (
        f"KeyError: {HIDDEN} {HIDDEN} lr=0.01 true x {HIDDEN} {HIDDEN} http://u:{HIDDEN}@host"
    )


def test_what_a_program_prints_of_the_credentials_given_to_it_is_not_recorded() -> None:
    """In an exception, its last lines, a launch that fails, and warnings: `tm show`, `tm why`, the logbook and every JSON."""
    spec = JobSpec("true", environment=Environment(variables={"API_TOKEN": SECRET}))
    batch = Batch(World(), 100.0)
    batch.world.put(replace(builders.placed(replace(builders.job(), spec=spec)), state=State.RUNNING))
    said = f"KeyError: '{SECRET}'"
    rank = {
        "rank": 0, "exit_code": 1, "signal": None, "stopped_by_us": False, "ended_after_s": 1.0, "last_lines": [said, "x"],
        "error": said, "peak_memory_bytes": 0, "cpu_s": 0.0, "raised": said,
    }  # fmt: skip
    ended = {
        "kind": "ended", "n": 0, "ranks": [rank], "roles": [{**rank, "rank": -1, "role": "eval"}], "launch_error": said,
        "machine_error": said, "launch_lines": [said], "over_memory": False, "memory_limit_bytes": None, "peak_memory_bytes": 0,
        "port_in_use": False, "last_step": None, "first_step": None, "ran_s": 1.0, "unread": said,
    }  # fmt: skip
    for report in (
        {"kind": "warned", "n": 1, "topic": "t", "text": said}, {"kind": "not_kept", "n": 2, "name": "a", "why": said}, ended
    ):  # fmt: skip
        assert take_report(batch, AgentKey("train-1", 1, 0), report) is None
    recorded = [row.event for row in batch.events]
    assert len(recorded) == 3
    assert SECRET not in str(recorded)
    assert isinstance(recorded[2], ev.NodeEnded)
    assert recorded[2].outcome.ranks[0].last_lines == (f"KeyError: '{HIDDEN}'", "x")
    assert SECRET not in str(batch.world.jobs["train-1"].attempt)


@pytest.mark.parametrize(
    "hostile",
    [
        "a" * 10**6, "a=" * 500_000, "--a " * 250_000, "--token" * 150_000, "a='" * 300_000 + '"', "eyJ-" * 250_000, "eyJaaaaaaaa." * 90_000,
        "a" * 500_000 + "://", "http://" * 140_000, "Bearer " * 140_000, "Bearer" + " " * 10**6, "-" * 10**6, "--a" + " " * 10**6,
        "hf_" * 300_000, "-----BEGIN PRIVATE KEY-----" * 40_000, "://@" * 250_000, "A" * 10**6, "http://x?" + "&a=" * 300_000,
        "curl" + " -u a:" * 60_000, "mysql" + " -pa" * 120_000, "a: " * 120_000, "'a: " * 120_000, '"a":' * 120_000, "sshpass -p " * 60_000,
        "curl" + "-u" * 500_000, "mysql" * 200_000 + " -p", "a:" * 500_000,
    ],
)  # fmt: skip
def test_a_hostile_command_is_read_in_linear_time(hostile: str) -> None:
    """S9: one megabyte, as much as a spec may hold."""
    began_s = time.process_time()
    line(hostile)
    redaction.command((hostile, hostile[:-1]))
    assert time.process_time() - began_s < 6.0  # a quadratic form takes minutes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STORAGE_KEY", "/abcdef=="), ("HF_KEY", SECRET), ("PGPASSWORD", "12345"), ("MY_TOKEN", "1234"), ("WANDB_SECRET", "./x"),
        ("DB_PASSWORD", "none"), ("EOS_TOKEN", "</s>"), ("HF_TOKEN", "0"),
    ],
)  # fmt: skip
def test_a_variable_that_its_name_makes_a_credential_is_hidden_whatever_its_value(name: str, value: str) -> None:
    """A value that begins with `/`, or a number, is shown of other variables, and was of these."""
    assert variables({name: value}) == {name: HIDDEN}
    assert variables({"TOKEN_FILE": "/run/token", "TOKENIZERS_PARALLELISM": "false", "KEYS": "4"}) == {
        "TOKEN_FILE": "/run/token", "TOKENIZERS_PARALLELISM": "false", "KEYS": "4",
    }  # fmt: skip


def test_a_comparison_says_of_tokens_among_the_variables_only_who_has_one() -> None:
    """Each person passes on another token, and one person another one next month."""

    def run(**given: str) -> Run:
        return Run(replace(builders.job(), spec=JobSpec("true", environment=Environment(variables=given))))

    found = compare([run(HF_TOKEN=SECRET, API_KEY="a"), run(HF_TOKEN="another-secret")])
    assert [(one.field, one.values) for one in found.fields if one.section == "variables"] == [("API_KEY", [HIDDEN, None])]
