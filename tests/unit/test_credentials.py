"""Credentials in lines of a shell, in arguments and in prose: found by the words."""

import shlex
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.control.observe import take_report
from trainmaster.control.world import Batch, World
from trainmaster.model import redaction
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import State
from trainmaster.model.redaction import HIDDEN, line, prose, shown, values
from trainmaster.model.spec import CheckpointSpec, Environment, JobSpec, Role
from trainmaster.ports.store import Recorded
from trainmaster.server.record.differences import Run, compare
from trainmaster.server.views import resources
from trainmaster.server.views.event_text import event_view
from trainmaster.testing import builders
from trainmaster.tracking.runs import run_of

SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("t.py --password=-SECRET", "t.py --password=(hidden)"),
        ("A=1;API_KEY=SECRET t.py", "A=1;API_KEY=(hidden) t.py"),
        ("API_KEY=SECRET;t.py --lr 1", "API_KEY=(hidden);t.py --lr 1"),
        ("t.py --token SECRET; echo done", "t.py --token (hidden); echo done"),
        ("t.py 'AccountName=me;AccountKey=SECRET==;Suffix=x'", "t.py 'AccountName=me;AccountKey=(hidden);Suffix=x'"),
        ("t.py --dsn 'Server=h;Pwd=SECRET;'", "t.py --dsn 'Server=h;Pwd=(hidden);'"),
        ("t.py --set lr=0.1,api_key=SECRET,depth=3", "t.py --set lr=0.1,api_key=(hidden),depth=3"),
        ("t.py --override=logger.api_key=SECRET", "t.py --override=logger.api_key=(hidden)"),
        (r't.py "{\"api_key\": \"SECRET\"}"', r't.py "{\"api_key\": (hidden)}"'),
        (r't.py "{\"a\": 1, \"password\":\"x y SECRET\"}"', r't.py "{\"a\": 1, \"password\":(hidden)}"'),
        ("t.py '--password' SECRET x", "t.py '--password' (hidden) x"),
        ("""t.py --password='a'"SECRET" x""", "t.py --password=(hidden) x"),
        ("t.py \"--api-key=a SECRET\" x", 't.py "--api-key=(hidden)" x'),
        ("t.py --password it\\'s\\ SECRET x", "t.py --password (hidden) x"),
        ("t.py --api-key \\\n  SECRET --lr 1", "t.py --api-key \\\n  (hidden) --lr 1"),
        ("python -c \"os.environ['HF_TOKEN'] = 'SECRET'\"", "python -c \"os.environ['HF_TOKEN'] = (hidden)\""),
        ("TOKEN+=SECRET t.py --api-keys SECRET", "TOKEN+=(hidden) t.py --api-keys (hidden)"),
        ("t.py --pass SECRET --pwd SECRET", "t.py --pass (hidden) --pwd (hidden)"),
        ("# don't\nt.py --password 'a SECRET' x", "# don't\nt.py --password (hidden) x"),
        ("cat <<E\napi_key: SECRET\nb: \"it's\"\nE", "cat <<E\napi_key: (hidden)\nb: \"it's\"\nE"),
        ("t.py {api_key: SECRET, lr: 1}", "t.py {api_key: (hidden), lr: 1}"),
        (r'bash -c "curl -H \"X-Api-Key: a SECRET\" $HOST"', r'bash -c "curl -H \"X-Api-Key: (hidden)\" $HOST"'),
        ("curl -H'X-Api-Key: a SECRET' -H\"Authorization: token SECRET\"", "curl -H'X-Api-Key: (hidden)' -H\"Authorization: token (hidden)\""),
        ("x '(--token SECRET)'", "x '(--token (hidden)'"),
        ("bash -lc 'TOKEN=SECRET; t.py --lr 1'", "bash -lc 'TOKEN=(hidden); t.py --lr 1'"),
        ("t.py --credential SECRET --passphrase SECRET", "t.py --credential (hidden) --passphrase (hidden)"),
        ("curl --cookie SECRET -H 'authorization: SECRET'", "curl --cookie (hidden) -H 'authorization: (hidden)'"),
    ],
)  # fmt: skip
def test_a_line_is_read_by_its_words(command: str, told: str) -> None:
    """Each was shown in full or in part."""
    assert line(command.replace("SECRET", SECRET)) == told
    assert line(told) == told


@pytest.mark.parametrize(
    "told",
    [
        "docker run --pwd /work x", "cd $PWD; t.py --pass 2", "PWD=/x t.py", "find . -name '*.txt' --pat '*.py'", "t.py a;b=c;d=e,f=g",
        "t.py --prompt 'What is a secret?' x", "t.py --eos-token '</s>' --layers '[1, 2]'", "awk -F: '{print $1}' keys.txt",
        "t.py --token\nls x", "t.py --map 'key: value'", 'echo "it\'s a key" > out', "t.py --tokens a=1;b=2", "t.py 'a \"b\" c' --key=x",
    ],
)  # fmt: skip
def test_a_line_without_credentials_is_shown_as_it_is(told: str) -> None:
    assert line(told) == told


WORDS = st.sampled_from(
    [
        "t.py", "--lr", "0.1", "--password", "--api-key", "-H", "-c", "curl", "-u", "bob:pw-1", "it's pw-1", "-pw-1", "a b", "x;y", "",
        "--api-key=-pw-1", "--token=a 'b' pw-1", "X-Api-Key: pw-1", '{"api_key": "pw-1"}', "A=1;API_KEY=pw-1", "$(ls)", "K=1 TOKEN=pw-1 ls",
    ]
)  # fmt: skip


@given(st.lists(WORDS, max_size=6))
def test_a_line_hides_what_its_arguments_hide(arguments: list[str]) -> None:
    """A comparison shows arguments as a line, and showed credentials that the list of arguments hid."""
    assert shlex.split(line(shlex.join(arguments))) == list(redaction.command(arguments))


def test_a_comparison_hides_the_credentials_of_arguments() -> None:
    jobs = [
        replace(builders.job(), spec=JobSpec(("t.py", "--password", "it's" + SECRET))),
        replace(builders.job(), spec=JobSpec(("t.py", "--password=-" + SECRET))),
        replace(builders.job(), spec=JobSpec("t.py --password another")),
    ]
    (found,) = (one.values for one in compare(list(map(Run, jobs))).fields if one.field == "command")
    assert found == [
        f"t.py --password {HIDDEN}  # hidden: 1", f"t.py --password={HIDDEN}", f"t.py --password {HIDDEN}  # hidden: 2"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("it sent Authorization: Bearer abcdefghij there", "it sent Authorization: Bearer (hidden) there"),
        ("the leak was password=SECRET, again", "the leak was password=(hidden) again"),
        ("unrecognized arguments: --wandb-key SECRET", "unrecognized arguments: --wandb-key (hidden)"),
        ("Command '['curl', '--token', 'SECRET']' failed", "Command '['curl', '--token', (hidden)]' failed"),
        ("Namespace(api_key='a SECRET', lr=1)", "Namespace(api_key=(hidden), lr=1)"),
        ("I don't know: password='a SECRET' it's", "I don't know: password=(hidden) it's"),
        ("it ran (t.py --token SECRET", "it ran (t.py --token (hidden)"), ("mysql -pSECRET failed", "mysql -p(hidden) failed"),
        ('config {"api_key": "SECRET", "lr": 1}', 'config {"api_key": (hidden), "lr": 1}'),
    ],
)  # fmt: skip
def test_a_credential_in_prose_is_hidden(said: str, told: str) -> None:
    assert prose(said.replace("SECRET", SECRET)) == told
    assert prose(told) == told


@pytest.mark.parametrize(
    "said",
    [
        "Secret: lower lr at step 1000", "auth token: stale after 1 h", "the cookie: keep it small", "pass: 3 of 5; password: n/a",
        "t.py: error: argument --api-key: expected one argument", "Option '--api-key' requires a value", "--hub-token was removed",
        "the --token is missing", "don't use 'the key' \"it", "key=value, lr=0.1", "KeyError: 'api_key'", "see https://h/x?page=2",
    ],
)  # fmt: skip
def test_a_sentence_about_credentials_is_kept_whole(said: str) -> None:
    """A note and a reason are stored as they are shown: what is hidden of them is lost."""
    assert prose(said) == said


def test_a_parameter_may_be_a_line() -> None:
    params = {"args": f"--api-key {SECRET} --lr 1", "prompt": "Secret: tell me", "hydra": f"a.b=1,api_key={SECRET}", "n": 1}
    told = {"args": f"--api-key {HIDDEN} --lr 1", "prompt": "Secret: tell me", "hydra": f"a.b=1,api_key={HIDDEN}", "n": 1}
    assert values(params) == told
    variables_of = {"EXTRA": f"--api-key {SECRET}", "STORE": f"AccountName=me;AccountKey={SECRET}"}
    own = shown(JobSpec("true", environment=Environment(variables=variables_of)), own=True).environment.variables
    assert own == {"EXTRA": f"--api-key {HIDDEN}", "STORE": f"AccountName=me;AccountKey={HIDDEN}"}


def test_the_credentials_of_its_commands_are_hidden_in_what_its_program_says_and_logs() -> None:
    spec = JobSpec(
        ("t.py", "--api-key", "key-1 x", "--password=-key-2", "--token", "$TOKEN", "--lr", "0.1", "--hub-token", "{own}"),
        roles={"eval": Role("A=1;API_KEY=key-3;eval --lr 0.1")}, checkpoint=CheckpointSpec(resume_arguments="--token key-4 {path}"),
        params={"own": "key-5", "args": "--token key-6", "password": 87654321}, environment=Environment(variables={"EXTRA": "--api-key key-7"}),
    )  # fmt: skip
    said = "bad: key-1 x, -key-2, key-3, key-4, key-5, key-6, key-7, 87654321; 0.1 $TOKEN eval"
    clean = "bad: " + ", ".join([HIDDEN] * 8) + "; 0.1 $TOKEN eval"
    assert redaction.without_known(said, redaction.known(spec)) == clean
    assert redaction.logged({"cmd": said, "api_key": "x", "lr": "0.1", "gone": None}, spec) == {
        "cmd": clean, "api_key": HIDDEN, "lr": "0.1", "gone": None,
    }  # fmt: skip


def test_what_a_program_logs_is_kept_for_it_and_hidden_where_it_is_shown() -> None:
    """After a restart the program reads its parameters again."""
    spec = JobSpec(f"t.py --api-key {SECRET}")
    batch = Batch(World(), 100.0)
    batch.world.put(replace(builders.placed(replace(builders.job(), spec=spec)), state=State.RUNNING))
    report = {"kind": "run", "n": 1, "params": {"cmd": f"['--api-key', '{SECRET}']", "best": SECRET}, "tags": {"of": SECRET}}
    assert take_report(batch, AgentKey("train-1", 1, 0), report) is None
    job, (row,) = batch.world.jobs["train-1"], batch.events
    assert (job.run_params["best"], job.run_tags["of"]) == (SECRET, SECRET)
    event = Recorded(1, 1.0, job.id, 1, row.event, "")
    told = [resources.job_detail(job, [], {}, "", []), run_of(job, "server"), event_view(event, spec)]
    assert [SECRET in str(one) for one in told] == [False] * 3
    assert "--api-key" in str(event_view(event, spec))


@pytest.mark.parametrize(
    "hostile",
    [
        *(f"token {one}" for one in ("a: " * 70_000, "'a: " * 50_000, '"a":' * 50_000, "a=" * 100_000, "'a=" * 70_000, "key=" * 50_000)),
        *(f"token {one}" for one in ("\\" * 200_000, "'" * 200_000, "\\\"" * 100_000, "\"'" * 100_000, "x=1;key_token=a," * 12_000)),
        "--token x " * 20_000, "'--token', " * 20_000, "token='a " * 20_000, 'x "' + "\\\" " * 60_000 + "token=", "a;token:" * 25_000,
    ],
)  # fmt: skip
def test_hostile_words_are_read_in_linear_time(hostile: str) -> None:
    began_s = time.process_time()
    line(hostile)
    prose(hostile)
    redaction.command((hostile, hostile[:-1]))
    assert time.process_time() - began_s < 6.0  # a quadratic form takes minutes
