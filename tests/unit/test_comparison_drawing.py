"""Rendering of a comparison: in a terminal of a given width, and as a page."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.cli.inspect.compare import differences, standing
from trainmaster.cli.inspect.comparison_page import html
from trainmaster.model.redaction import numbered

IDS = ["digits-1", "digits-2"]
PATTERN = r"step (?P<step>\d+) loss (?P<loss>[\d.]+)|accuracy=(?P<accuracy>[\d.]+)"


def found(*rows: tuple[str, str, list[Any]], ids: list[str] = IDS, **more: Any) -> dict[str, Any]:
    """An answer of `GET /compare`."""
    jobs = [
        {"id": id, "state": "succeeded", "ran_s": 1.0, "started_s": 1.0, "attempts": 1, "restarts": 0, "experiment": "digits"}
        for id in ids
    ]
    told = [{"section": section, "field": name, "values": values, "equal": False} for section, name, values in rows]
    return {"jobs": jobs, "differences": told, "unknown": {}, "metrics": [], "metrics_equal": [], "series": {}, **more}


def test_packages_that_one_run_alone_has_hide_none_that_differ() -> None:
    lone = [("packages", f"package-{n:03}", ["1.0", None]) for n in range(105)]
    told = differences(found(*lone, ("packages", "torch", ["2.12.0", "2.13.0"]), ("packages", "xgboost", [None, "3.1"])), 60)
    assert told[:5] == [
        "", "Packages",
        "         digits-1  digits-2",
        "  torch  2.12.0    2.13.0",
        "  only digits-1: package-000 1.0, package-001 1.0,",
    ]  # fmt: skip
    assert told[-2:] == ["    has all", "  only digits-2: xgboost 3.1"]
    assert "package-099 1.0, … and 5 more: --json" in told[-3]
    assert max(map(len, told)) <= 60


def test_files_that_one_run_alone_has_are_named_without_their_digests() -> None:
    rows = [("files", "a.py", ["0" * 12, None]), ("files", "train.py", ["0" * 12, "1" * 12])]
    assert differences(found(*rows)) == [
        "", "Files",
        "            digits-1      digits-2",
        "  train.py  000000000000  111111111111",
        "  only digits-1: a.py",
    ]  # fmt: skip


def test_values_that_differ_do_not_look_equal() -> None:
    """`0.1235` stood in both columns, and one of them was the best."""
    last = [{"step": 1, "value": 0.123456789}, {"step": 1, "value": 0.123456788}]
    other = {"name": "acc", "primary": False, "mode": None, "winner": None, "best": [None, None]}
    loss = {"name": "loss", "primary": True, "mode": "min", "winner": 1, "last": last, "best": last}
    rows = [loss, {**other, "last": [{"step": 1, "value": 0.123456789}, None]}]
    assert standing(found(metrics=rows)) == [
        "", "Metrics (* the best)",
        "                        digits-1          digits-2",
        "  loss (primary), last  0.123456789 at 1  0.123456788 at 1",
        "  loss (primary), min   0.123456789 at 1  0.123456788 at 1 *",
        "  acc, last             0.1235 at 1       -",
    ]  # fmt: skip


def test_what_is_equal_or_not_recorded_of_others_is_not_one_runs_alone() -> None:
    told = found(("packages", "torch", ["2.13.0", "2.13.0", None]), ids=[*IDS, "digits-3"], unknown={"packages": ["digits-3"]})
    told["differences"][0]["equal"] = True
    assert differences(told)[:4] == [
        "", "Packages",
        "                 digits-1  digits-2  digits-3",
        "  torch (equal)  2.13.0    2.13.0    -",
    ]  # fmt: skip


def test_the_same_is_only_what_was_compared() -> None:
    """`code … the same` was said of two jobs that ran another text of one file in place."""
    doubts = ["Python and packages: no Python was found for its command", "data d: it may have changed", "what it reads, such as code"]
    why = dict.fromkeys(IDS, "there is no copy of them")
    told = differences(found(unknown={"files": IDS}, unknown_because={"files": why}, not_compared=doubts))
    assert told[1] == "Nothing differs, as far as it is known: spec, parameters and hardware are the same."
    assert differences(found())[1] == "Nothing differs: spec, parameters, code, packages and hardware are the same."


def test_values_are_cut_to_the_terminal_and_names_are_not() -> None:
    rows = found(("spec", "metrics.pattern", [PATTERN, None]))
    assert differences(rows, 60)[2:4] == [
        "                   digits-1                         digits-2",
        r"  metrics.pattern  step (?P<step>\d+) l…y>[\d.]+)   -",
    ]
    assert PATTERN in differences(rows)[3]
    many = found(
        ("spec", "checkpoint.resume_arguments", ["--resume {path} --strict"] * 7), ids=[f"digits-{n}" for n in range(7)]
    )
    assert differences(many, 80)[3] == "  checkpoint.resume_arguments" + "  --resume…ict" * 7


COMMAND = "python train.py configs/base.yaml --data /scratch/shared/imagenet/train --epochs 20 --amp"
LINES = [f"{COMMAND} --lr 0.1 model.depth=12", f"{COMMAND.replace('base', 'large')} --lr -0.2 --compile model.depth=24"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_of_long_commands_the_arguments_that_differ_are_shown_one_a_line(wrapped: bool) -> None:
    lines = [f"bash -c '{line}'" for line in LINES] if wrapped else LINES
    compared = found(("spec", "command", list(lines)), ("spec", "roles.eval.command", [COMMAND, COMMAND + " --steps 5"]))
    assert differences(compared, 80) == [
        "", "Spec",
        "                              digits-1           digits-2",
        "  command argument 2          configs/base.yaml  configs/large.yaml",
        "  command --lr                0.1                -0.2",
        "  command model.depth         12                 24",
        "  command --compile           -                  given",
        "  roles.eval.command --steps  -                  5",
    ]  # fmt: skip
    page = html(compared)
    assert "<td>command --lr</td><td>0.1</td><td>-0.2</td>" in page
    assert "imagenet" not in page


def test_a_command_that_is_short_or_one_runs_alone_stays_whole() -> None:
    short = found(("spec", "command", ["python a.py", "python b.py"]))
    assert differences(short, 80)[3] == "  command  python a.py  python b.py"
    lone = found(("spec", "command", [LINES[0], None]))
    assert LINES[0] in html(lone)


def test_long_arguments_are_shown_from_where_they_differ() -> None:
    values = [f"python train.py --out /scratch/{'project/' * 20}{end}" for end in ("first/run", "second/run")]
    told = differences(found(("spec", "command", values)), 80)
    assert told[3] == "  command --out  …project/first/run  …project/second/run"


def test_arguments_in_another_order_and_quotes_that_do_not_end_are_told() -> None:
    again = found(("spec", "command", [f"{COMMAND} --lr 0.1 --seed 2", f"{COMMAND} --seed 2 --lr 0.1"]))
    assert differences(again, 80)[3].startswith("  command, ordered or written otherwise  ")
    assert max(map(len, differences(again, 80))) <= 80
    odd = found(("spec", "command", [f"{COMMAND} --note 'a", f"{COMMAND} --note 'b"]))
    assert differences(odd, 80)[3] == "  command --note  'a        'b"


def test_commands_that_differ_in_what_is_hidden_say_so() -> None:
    lines = [numbered(f"{COMMAND} --token (hidden) --lr 1", number) for number in (1, 2)]
    told = differences(found(("spec", "command", list(lines))), 80)
    assert told[3] == "  command, what is hidden  (hidden) 1  (hidden) 2"
    assert len(told) == 4


def axis(page: str, anchor: str) -> list[str]:
    """The labels of an axis: `end` is the values', `middle` the steps'."""
    return re.findall(rf'text-anchor="{anchor}">([^<]*)<', page)


def test_the_axes_of_a_page_have_round_numbers() -> None:
    page = html(found(series={"loss": [[[1, 2.301], [900, 0.000214]], [[1, 1.0], [60, 0.2294]]]}))
    assert (axis(page, "end"), axis(page, "middle")) == (["0", "0.5", "1", "1.5", "2", "2.5"], ["200", "400", "600", "800"])


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=5))
@pytest.mark.filterwarnings("error", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # others' leftovers
def test_any_curve_lies_within_its_picture(points: list[tuple[float, float]]) -> None:
    """Law: whatever the numbers, every point of the curve is on the canvas, and either axis has one to nine labels."""
    page = html(found(series={"loss": [[list(point) for point in points], []]}))
    line = re.search(r'<polyline class="curve c0" points="([^"]*)"', page)
    assert line is not None
    places = [tuple(map(float, pair.split(","))) for pair in line[1].split()]
    assert all(math.isfinite(x) and 0 <= x <= 480 and 0 <= y <= 270 for x, y in places)
    assert all(1 <= len(axis(page, anchor)) <= 9 for anchor in ("end", "middle"))


def test_a_page_may_break_a_name_at_its_dots_and_never_a_number() -> None:
    page = html(found(("spec", "resources.memory_bytes", [0.25, 0.5])))
    assert "<td>resources.<wbr>memory_<wbr>bytes</td><td>0.25</td><td>0.5</td>" in page


def test_what_runs_call_themselves_cannot_write_the_page() -> None:
    page = html(found(("tags", "<b>", ["<script>", '" onload="'])))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<td>&lt;b&gt;</td>" in page
