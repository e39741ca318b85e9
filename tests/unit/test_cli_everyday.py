"""The everyday commands without a server: columns, sorting, tables on any terminal, logs, suggestions, help."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest
from contract_answers import DETAIL, JOB
from contract_server import Answer, Asked, serving
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.cli import help as helps
from trainmaster.cli.app import ALIASES, COMMANDS, run
from trainmaster.cli.inspect.logs import _ranks
from trainmaster.cli.inspect.ps import COLUMNS
from trainmaster.cli.render.log_stream import Lines, LogPrinter
from trainmaster.cli.render.output import Output
from trainmaster.cli.render.table import draw, width_of
from trainmaster.cli.suggestions import ELSEWHERE, GROUPS, LINES, MISSING
from trainmaster.errors import UsageError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """One command line in this process, in an empty directory and without a server of its own."""
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRAINMASTER_SERVER", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        told = capsysbinary.readouterr()
        return code, told.out.decode(), told.err.decode()

    return call


# --- tm ps

A = {**JOB, "id": "a-1", "seq": 1, "member": "ada", "started_s": 1000.0, "ended_s": 1300.0, "metrics": {"loss": 0.5}, "class": "training"}
B = {**A, "id": "b-2", "seq": 2, "member": "ben", "ended_s": 1100.0, "metrics": {"loss": None}, "tags": {"owner": "team-a"}, "priority": 5}
C = {**A, "id": "c-3", "seq": 3, "state": "queued", "started_s": None, "ended_s": None, "attempt": 0, "metrics": {}, "nodes": []}
C = {**C, "reason": "waiting for\n2 GPUs \x1b[31m学習"}


def test_held_jobs_are_listed_with_their_member(invoke: Run) -> None:
    held = [{"id": f"kept-{n}", "project": "p", "member": member, "reason": "held at submit"} for n, member in ((1, "ada"), (2, ""))]
    with serving(lambda _: (200, {"jobs": [], "total": 0, "held": held, "now_s": 1.0})) as server:
        assert invoke("--server", server.url, "queue")[2].splitlines()[1:] == [
            "held, and not in the queue: kept-1 of ada (held at submit); release it: tm release kept-1",
            "held, and not in the queue: kept-2 (held at submit); release it: tm release kept-2",
        ]


def listed(asked: list[str]) -> Callable[[Asked], Answer]:
    def answer(request: Asked) -> Answer:
        if request.line.startswith("GET /jobs"):
            asked.append(request.line)
            return 200, {"jobs": [C, B, A]}
        return 200, {"troubles": []}

    return answer


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        (["--mine"], "limit=50&all=0&mine=1"),
        (["--user", "ada", "-n", "3"], "limit=3&all=0&member=ada"),
        (["--tag", "owner=team-a", "--tag", "kind", "--limit", "9"], "limit=9&all=0&tag=owner%3Dteam-a&tag=kind"),
        (["--name", "digits*", "--experiment", "e", "--project", "p", "-a"], "limit=50&all=1&name=digits%2A&project=p&experiment=e"),
        (["--since", "1795183200", "--until", "1795183300"], "limit=50&all=0&since_s=1795183200.0&until_s=1795183300.0"),
        (["--state", "failed", "--state", "held"], "limit=50&all=0&state=failed&state=held"),
    ],
)
def test_the_server_filters(invoke: Run, arguments: list[str], query: str) -> None:
    asked: list[str] = []
    with serving(listed(asked)) as server:
        assert invoke("ps", "--server", server.url, *arguments)[0] == 0
    assert asked == [f"GET /jobs?{query}"]


def test_a_list_that_an_older_server_did_not_filter_is_not_shown(invoke: Run) -> None:
    with serving(lambda request: (200, {"jobs": [JOB]})) as server:
        assert invoke("ps", "--server", server.url, "--mine", "-q") == (
            1, "", "error: the server is of an older version, which does not filter by mine\n  update it\n",
        )  # fmt: skip
        assert invoke("ps", "--server", server.url, "--state", "failed", "-q")[:2] == (0, "digits-14\n")


@pytest.mark.parametrize(
    ("sort", "ids"),
    [
        ("elapsed", ["b-2", "a-1", "c-3"]),
        ("-elapsed", ["a-1", "b-2", "c-3"]),
        ("metric", ["a-1", "c-3", "b-2"]),
        ("id", ["a-1", "b-2", "c-3"]),
        ("-priority", ["b-2", "c-3", "a-1"]),
        ("state", ["c-3", "b-2", "a-1"]),
        ("user", ["c-3", "a-1", "b-2"]),
    ],
)
def test_jobs_are_sorted_by_a_column(invoke: Run, sort: str, ids: list[str]) -> None:
    """Jobs without a value come last; equal ones stay as they were, newest first."""
    with serving(listed([])) as server:
        code, out, _ = invoke("ps", "--server", server.url, "--sort", sort, "-q")
        assert code == 0
        told = json.loads(invoke("ps", "--server", server.url, "--sort", sort, "--json")[1])
    assert out.split() == ids == [job["id"] for job in told]
    assert {job["id"]: job["elapsed_s"] for job in told} == {"a-1": 300.0, "b-2": 100.0, "c-3": None}


def test_columns_are_chosen(invoke: Run) -> None:
    with serving(listed([])) as server:
        at = ("--server", server.url)
        assert invoke("ps", *at, "--columns", "id,user,elapsed,tags,priority")[1].splitlines() == [
            "ID   USER  ELAPSED     TAGS          PRIORITY",
            "c-3  ada   -           -                    0",
            "b-2  ben   1 min 40 s  owner=team-a         5",
            "a-1  ada   5 min       -                    0",
        ]  # fmt: skip
        headers = invoke("ps", *at, "--columns", "+user")[1].splitlines()[0].split("  ")
        assert [name.strip() for name in headers if name] == ["ID", "STATE", "TRY", "STEP", "METRIC", "ELAPSED", "AGE", "USER", "WHERE / WHY"]
        wide = invoke("ps", *at, "--wide")[1].splitlines()
        assert all(name in wide[0] for name in ("NAME", "USER", "PROJECT", "CLASS", "PRIORITY", "TAGS", "ELAPSED"))
        assert wide[1].endswith("waiting for 2 GPUs \\x1b[31m学習")
        assert invoke("ps", *at, "--columns", "id,usr") == (
            2, "", f"error: --columns: there is no column 'usr'; did you mean 'user'?\n  there are {', '.join(COLUMNS)}\n",
        )  # fmt: skip
        assert invoke("ps", *at, "--mine", "--user", "ada")[0] == 2


cells = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("学習\n\x1b\u200b\u0301😀\ufe0f\u202e"), max_size=40)


@given(st.lists(st.tuples(*[cells] * 4), min_size=1, max_size=4), st.integers(1, 120), st.lists(st.sampled_from([1, 2]), unique=True))
def test_a_table_never_breaks(rows: list[tuple[str, ...]], width: int, spare: list[int]) -> None:
    """Whatever is in its cells and however narrow the terminal is: one line for each row, no wider, nothing that moves a cursor."""
    lines = draw(("ID", "STATE", "STEP", "WHERE / WHY"), [list(row) for row in rows], width, spare)
    assert len(lines) == len(rows) + 1
    assert all(width_of(line) <= width for line in lines)
    assert all(line.isprintable() for line in lines)


def test_columns_stay_below_each_other() -> None:
    rows = [["a-1", "学習 " + "x" * 500], ["b", "e\u0301\u200b\n\tq"]]
    assert draw(("ID", "WHY"), rows, 20) == ["ID   WHY", "a-1  学習 xxxxxxxxx…", "b    e\u0301\\u200b q"]
    assert [category(character) for character in "\u0301\u200b"] == ["Mn", "Cf"]


# --- tm logs


@pytest.mark.parametrize(("given", "ranks"), [(["0"], (0,)), (["0,2-4", "3", "9"], (0, 2, 3, 4, 9)), ([], ())])
def test_ranks_are_named(given: list[str], ranks: tuple[int, ...]) -> None:
    assert _ranks(given) == ranks


@pytest.mark.parametrize("given", ["", "a", "1-", "-1", "1,,2", "0-99999", "²"])
def test_ranks_that_are_none(given: str) -> None:
    with pytest.raises(UsageError):
        _ranks([given])


CHUNKS: list[dict[str, Any]] = [
    {"attempt": 1, "rank": 0, "role": None, "text": "loss 1\nacc 2\nlo"},
    {"attempt": 1, "rank": 1, "role": None, "text": "loss 3\n"},
    {"attempt": 1, "rank": 0, "role": None, "text": "ss 4\nx"},
    {"attempt": 1, "rank": -1, "role": "eval", "text": "loss 5"},
]


def has_loss(line: str) -> bool:
    return "loss" in line


def test_only_lines_that_match_are_printed_with_their_job(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    printer = LogPrinter(Output(), ranks=2, lines=Lines("a-1", has_loss))
    printer.page(CHUNKS)
    printer.finish()
    assert capsysbinary.readouterr().out.decode().splitlines() == [
        "a-1 | loss 1", "a-1 | [1] loss 3", "a-1 | loss 4", "a-1 | [eval] loss 5",
    ]  # fmt: skip


def test_lines_that_match_as_json(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    out = Output()
    out.json = True
    printer = LogPrinter(out, ranks=2, lines=Lines("a-1", has_loss))
    printer.page(CHUNKS)
    printer.finish()
    told = [json.loads(line) for line in capsysbinary.readouterr().out.decode().splitlines()]
    assert [(one["job"], one["rank"], one["role"], one["text"]) for one in told] == [
        ("a-1", 0, None, "loss 1\n"), ("a-1", 1, None, "loss 3\n"), ("a-1", 0, None, "loss 4\n"), ("a-1", -1, "eval", "loss 5\n"),
    ]  # fmt: skip


TIMED: list[dict[str, Any]] = [
    {"attempt": 1, "rank": 0, "role": None, "text": "loss 1\nacc 2\nlo", "times": [[2, 100.25], [1, 101.5]]},
    {"attempt": 1, "rank": 1, "role": None, "text": "loss 3\nloss 4\n", "times": [[2, 102.0]]},
    {"attempt": 1, "rank": 0, "role": None, "text": "ss 5\nx", "times": [[1, 103.0], [1, None]]},
]


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Five and a half hours ahead of UTC, as in India."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
def test_lines_with_times(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """A line has the time of its beginning, also if its end comes later."""
    printer = LogPrinter(Output(), lines=Lines(times=True))
    printer.page(TIMED)
    printer.finish()
    said = capsysbinary.readouterr()
    assert (said.out.decode().splitlines(), said.err) == ([
        "1970-01-01T05:31:40+05:30 loss 1", "1970-01-01T05:31:40+05:30 acc 2", "[1] 1970-01-01T05:31:42+05:30 loss 3",
        "[1] 1970-01-01T05:31:42+05:30 loss 4", "1970-01-01T05:31:41+05:30 loss 5", "-                         x",
    ], b"")  # fmt: skip
    printer = LogPrinter(Output(), lines=Lines("a-1", times=True))
    printer.page([{"attempt": 2, "rank": 0, "role": None, "text": "far\n", "times": [[1, 1e300]]}])
    assert capsysbinary.readouterr().out.decode() == "a-1 | -                         far\n"
    untimed = {"attempt": 2, "rank": 0, "role": None, "text": "old\n", "times": [[1, None]]}
    printer.page([untimed, untimed])
    said = capsysbinary.readouterr()
    assert said.out.decode().splitlines() == ["a-1 | -                         old"] * 2
    assert said.err.decode().splitlines() == [
        "times of lines of attempt 2 of a-1 are not known: an older version ran it, or they could not be written",
    ]  # fmt: skip


@pytest.mark.parametrize("times", [True, False])
def test_lines_that_match_have_their_times_as_json(capsysbinary: pytest.CaptureFixture[bytes], times: bool) -> None:
    out = Output()
    out.json = True
    printer = LogPrinter(out, lines=Lines(keep=has_loss, times=times))
    printer.page(TIMED)
    printer.finish()
    told = [json.loads(line) for line in capsysbinary.readouterr().out.decode().splitlines()]
    assert [(one["text"], one.get("times")) for one in told] == [
        ("loss 1\n", [[1, 100.25]] if times else None),
        ("loss 3\nloss 4\n", [[2, 102.0]] if times else None),
        ("loss 5\n", [[1, 101.5]] if times else None),
    ]


def logged(request: Asked) -> Answer:
    """Two jobs that have ended, followed or not."""
    path, _, query = request.line.removeprefix("GET /jobs/").partition("?")
    job, _, what = path.partition("/")
    if not what:
        return 200, {**DETAIL, "id": job}
    if "after=" in query:
        return 200, {"chunks": [], "cursor": "end", "state": "failed", "ended": True}
    chunks = [{"attempt": 1, "rank": 0, "role": None, "text": f"{job} says loss\nelse\n"}]
    return 200, {"chunks": chunks, "cursor": "c", "state": "failed", "ended": True}


def test_several_jobs_are_followed_at_once(invoke: Run) -> None:
    before = threading.active_count()
    with serving(logged) as server:
        code, out, said = invoke("logs", "--server", server.url, "-f", "--rank", "0", "--grep", "LOSS|x+y", "a", "b")
        assert (code, out, said) == (0, "", "")
        code, out, _ = invoke("logs", "--server", server.url, "-f", "--rank", "0", "--grep", "(?i)LOSS", "a", "b")
        assert (code, sorted(out.splitlines())) == (0, ["a | a says loss", "b | b says loss"])
        assert invoke("logs", "--server", server.url, "-n", "5", "--rank", "0", "b", "a")[1].splitlines() == [
            "b | b says loss", "b | else", "a | a says loss", "a | else",
        ]  # fmt: skip
        code, _, said = invoke("logs", "--server", server.url, "--grep", "(?=x)", "a")
    assert (code, said.startswith("error: --grep: this pattern cannot be used: a look-ahead")) == (2, True)
    assert threading.active_count() <= before + 1


def test_an_older_server_cannot_select_by_time(invoke: Run) -> None:
    refusal = "error: the server is of an older version, which knows no times of lines\n  update it\n"
    with serving(logged) as server:
        assert invoke("logs", "--server", server.url, "--since", "10m", "a") == (1, "", refusal)
        assert invoke("logs", "--server", server.url, "-t", "-f", "a", "b") == (1, "", refusal)


# --- no server, other names, help


@pytest.mark.parametrize(
    "command",
    ["ps", "show x", "why x", "logs x", "queue", "top", "nodes", "usage", "compare x y", "artifacts x", "get x", "get-spec x", "wait x",
     "export", "policy", "storage", "token list", "note --list", "metrics x", "gpus", "storage gc --dry-run", "rm x --dry-run",
     "prune --dry-run", "plan cluster.yaml", "token create x", "token revoke x", "storage gc", "storage verify", "apply cluster.yaml",
     "nodes drain x", "nodes resume x", "nodes lost x"],
)  # fmt: skip
def test_commands_that_read_or_administer_start_no_server(invoke: Run, tmp_path: Path, command: str) -> None:
    home = tmp_path / "home"
    (tmp_path / "cluster.yaml").write_text("pools: {a: {nodes: [n0]}}\n")
    code, out, said = invoke(*command.split())
    message = f"error: no server is running: $TRAINMASTER_HOME names {home}, which does not exist\n"
    assert (code, out, said) == (7, "", message + "  check the name   a new home there: tm up\n")
    assert not home.exists()


def test_it_says_which_home_was_looked_at(invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "home.json").write_text("{}")
    assert invoke("ps")[2] == f"error: no server is running on {home} (as $TRAINMASTER_HOME says)\n  start it: tm up\n"
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "hmoe"))
    assert invoke("ps")[2].splitlines()[1] == f"  did you mean {home}?   a new home there: tm up"
    monkeypatch.delenv("TRAINMASTER_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    default = tmp_path / "state" / "trainmaster"
    assert invoke("ps")[2].splitlines()[0] == f"error: no server is running, and {default} (the default home) does not exist"
    default.mkdir(parents=True)
    assert invoke("ps")[2].splitlines()[0] == f"error: no server is running on {default} (the default home)"


def test_up_and_down_mean_this_machines_own_server(invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in ("up", "down"):
        code, _, said = invoke(command, "--server", "http://127.0.0.1:9")
        assert (code, said.splitlines()[0]) == (2, "error: tm up and tm down are about this machine's own server, not http://127.0.0.1:9")
    monkeypatch.setenv("TRAINMASTER_SERVER", "http://127.0.0.1:9")
    assert invoke("down") == (0, "", (
        f"no server was running on {tmp_path / 'home'}, which does not exist\n"
        "this is this machine's own server; other commands use http://127.0.0.1:9, which $TRAINMASTER_SERVER names\n"
    ))  # fmt: skip


def test_what_others_call_it(invoke: Run) -> None:
    known = {*COMMANDS, *ALIASES}
    assert {target.split()[0] for target in ELSEWHERE.values()} <= COMMANDS.keys()
    assert not known & (ELSEWHERE.keys() | MISSING.keys())
    assert not ELSEWHERE.keys() & MISSING.keys()
    assert invoke("sacct")[2] == "error: there is no command 'sacct'\n  use: tm ps --all --wide\n"
    assert invoke("cordon", "n0")[2] == "error: there is no command 'cordon'\n  use: tm nodes drain\n"
    assert "is not there yet; meanwhile: tm submit -- sleep 2h" in invoke("salloc")[2]
    assert {target.split()[0] for target in LINES.values()} <= COMMANDS.keys()
    assert {line.split()[0] for line in LINES} <= set(GROUPS)
    assert not known & set(GROUPS)


@pytest.mark.parametrize(
    ("line", "use"),
    [("scontrol hold j", "hold"), ("scontrol release j", "release"), ("scontrol requeue j", "rerun"), ("scontrol", "show"),
     ("scontrol update job=j priority=3", "update"), ("scontrol update NodeName=n0 State=drain", "nodes drain"),
     ("scontrol show job j", "show"), ("scontrol -d show j", "show"), ("scontrol show nodes", "nodes"), ("docker container ls", "ps"),
     ("docker stop x", "cancel"), ("docker run -it x", "run"), ("kubectl get pods", "ps"), ("kubectl logs -f p", "logs"),
     ("kubectl delete pod p", "cancel"), ("sky launch x.yaml", "run"), ("sky exec c", "exec"), ("sky jobs queue", "ps"),
     ("sky jobs cancel 3", "cancel"), ("ray job submit", "submit"), ("dstack ps", "ps")],
)  # fmt: skip
def test_the_second_word_says_what_is_meant(invoke: Run, line: str, use: str) -> None:
    assert invoke(*line.split()) == (2, "", f"error: there is no command '{line.split()[0]}'\n  use: tm {use}\n")


@pytest.mark.parametrize(("given", "code"), [("10", 2), ("1.5", 2), (" 90 ", 2), ("10m", 7), ("1h30m", 7)])
def test_a_time_limit_needs_a_unit(invoke: Run, given: str, code: int) -> None:
    found, _, said = invoke("update", "x", "--time-limit", given, "--server", "http://127.0.0.1:9")
    assert found == code
    if code == 2:
        number = given.strip()
        assert said == (
            f"error: --time-limit {number}: {number} of what?\n"
            f"  minutes: --time-limit {number}m  hours: {number}h  seconds: {number}s\n"
        )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("prune --older-than 7", "--older-than: 7 of what?; did you mean '7d'?\n  write 90m, 24h or 30d"),
        ("storage gc --grace 7", "--grace: 7 of what?; did you mean '7d'?\n  write 90m, 24h or 7d"),
        ("token create x --expires 30", "--expires: 30 of what?; did you mean '30d'?\n  write 12h or 30d"),
        ("cancel x --grace 1.5", "--grace: 1.5 of what?; did you mean '1.5s'?\n  such as --grace 5s, or --now to kill at once"),
    ],
)
def test_every_duration_needs_a_unit(invoke: Run, line: str, told: str) -> None:
    assert invoke(*line.split(), "--server", "http://127.0.0.1:9") == (2, "", f"error: {told}\n")


def test_help_and_version_are_commands(invoke: Run) -> None:
    assert invoke("help", "nodes", "drain")[1] == invoke("nodes", "drain", "--help")[1]
    assert invoke("help")[1] == invoke("--help")[1]
    assert invoke("help", "sinfo")[:2] == (2, "")
    assert invoke("version")[1] == invoke("--version")[1]
    assert {name for names in helps.GROUPS.values() for name in names} <= COMMANDS.keys()  # others are listed after these
