"""Terminal output, compared character by character."""

import math

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.cli.render import curve, human, table, timeline


def attempt(number: int, state: str, placed_s: float, **more: object) -> dict[str, object]:
    base = {"number": number, "state": state, "placed_s": placed_s, "started_s": None, "ended_s": None, "nodes": ["n0"]}
    return {**base, "resumed_from_step": None, "cause": None, "message": None, **more}


def job(*attempts: dict[str, object], ended_s: float | None = None) -> dict[str, object]:
    return {"id": "digits-1", "created_s": 100.0, "ended_s": ended_s, "attempts": list(attempts)}


RESTARTED = job(
    attempt(1, "restarted", 110.0, started_s=120.0, ended_s=150.0, cause="killed", message="rank 1 was killed by SIGKILL"),
    attempt(2, "succeeded", 152.0, started_s=155.0, ended_s=200.0, resumed_from_step=120,
            resumed_evidence="seen", resumed_because=["its first step was 121"]),
    ended_s=200.0,
)


def test_a_curve_has_its_scale_and_its_steps() -> None:
    assert curve.draw([(0, 1), (10, 5), (20, 1), (30, 3)], 40, 5) == [
        "5 ┤           ╭──╮",
        "4 ┤        ╭──╯  ╰──╮",
        "3 ┤     ╭──╯        ╰─╮            ╭───",
        "2 ┤  ╭──╯             ╰──╮    ╭────╯",
        "1 ┤──╯                   ╰────╯",
        "  └step 0                            30",
    ]


def test_a_curve_in_plain_ascii() -> None:
    assert curve.draw([(step, 8.0 - step) for step in range(8)], 24, 4, ascii_only=True) == [
        "    8 |---.",
        "5.667 |   '----.",
        "3.333 |        '----.",
        "    1 |             '--",
        "      +step 0         7",
    ]


def test_a_flat_curve_lies_in_the_middle() -> None:
    assert curve.draw([(0, 2.0), (10, 2.0)], 30, 3) == [
        "  ┤",
        "2 ┤──────────────────────────",
        "  ┤",
        "  └step 0                  10",
    ]


def test_values_that_are_not_finite_are_marked_where_they_are() -> None:
    points = [(0, math.nan), (1, 4.0), (2, math.inf), (3, 1.0), (4, math.nan), (5, math.nan)]
    assert curve.draw(points, 27, 3, ascii_only=True) == [
        "  4 |    ---.",
        "2.5 |       '--.",  # the line goes on over a single one
        "  1 |          '--",
        "    +step 0              5",
        "nan  x       x       xxxxx",
    ]


def test_a_metric_says_since_when_it_is_not_finite() -> None:
    told = {"value": "nan", "since_step": 4, "last_step": 3, "last_value": 1 / 3}
    assert human.diverged(told) == "nan since step 4, last finite 0.3333 at 3"
    assert human.diverged({**told, "last_step": None, "last_value": None}) == "nan since step 4"
    assert human.diverged({**told, "value": "-inf", "since_step": None, "last_step": None}) == "-inf, last finite 0.3333"


def test_a_scale_is_of_what_is_drawn() -> None:
    spike = [(step, 90.0 if step == 500 else 2.0 - step / 500) for step in range(1001)]
    assert [line.split(" ┤")[0].strip() for line in curve.draw(spike, 40, 3)[:3]] == ["4.398", "2.205", "0.012"]
    assert curve.draw([(0, 0.3), (1, 0.2), (2, 0.1), (3, 0.1 - 0.3 + 0.2)], 40, 4)[3].startswith("  0 ┤")


def test_a_failed_job_s_last_attempt_leaves_the_failure_to_the_job() -> None:
    first = attempt(1, "restarted", 110.0, started_s=120.0, ended_s=150.0, cause="killed", message="by SIGKILL")
    last = attempt(2, "failed", 152.0, started_s=155.0, ended_s=200.0, cause="program", message="exited with code 1")
    assert timeline.draw({**job(first, last, ended_s=200.0), "state": "failed"}, 200.0, 60) == [
        "     0 s   1 min 40 s",
        "   1   ░█████          restarted, ran 30 s on n0",
        "     killed: by SIGKILL",
        "   2         ░███████  failed, ran 45 s on n0",
        "     given no checkpoint; it may find files of its own",
    ]


def test_too_little_for_a_curve_draws_nothing() -> None:
    assert [curve.draw(points) for points in ([], [(1, 2.0)], [(1, math.nan), (2, 1.0)], [(3, 1.0), (3, 2.0)])] == [[]] * 4


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats()), max_size=200).map(lambda points: sorted(points)))
def test_a_curve_keeps_within_its_columns(points: list[tuple[float, float]]) -> None:
    assert all(len(line) <= 80 for line in curve.draw(points))


def test_attempts_lie_on_one_time_axis() -> None:
    assert timeline.draw(RESTARTED, 200.0, 64) == [
        "     0 s       1 min 40 s",
        "   1   ░░██████            restarted, ran 30 s on n0",
        "     killed: rank 1 was killed by SIGKILL",
        "   2           ░█████████  succeeded, ran 45 s on n0",
        "     resumed from step 120: its first step was 121",
    ]


def test_attempts_in_plain_ascii() -> None:
    assert timeline.draw(RESTARTED, 200.0, 64, timeline.ASCII) == [
        "     0 s       1 min 40 s",
        "   1   --######            restarted, ran 30 s on n0",
        "     killed: rank 1 was killed by SIGKILL",
        "   2           -#########  succeeded, ran 45 s on n0",
        "     resumed from step 120: its first step was 121",
    ]


def test_an_attempt_that_goes_on_reaches_to_now() -> None:
    assert timeline.draw(job(attempt(1, "starting", 130.0)), 140.0, 64) == [
        "     0 s             40 s",
        "   1                ░░░░░  starting for 10 s on n0",
    ]


def test_a_lost_attempt_of_which_nothing_was_heard_does_not_say_how_long_it_ran() -> None:
    """`ran less than 0.1 s` was said of 66 s, whose heartbeats were lost with `metrics.db`."""
    lost = attempt(1, "restarted", 100.0, started_s=101.0, ended_s=110.0, ran_s=0.0)
    assert timeline.draw(job(lost, ended_s=110.0), 110.0, 64)[1].endswith("restarted for 10 s on n0")


def test_nodes_that_do_not_fit_beside_the_bar_stand_below_it() -> None:
    def drawn(*nodes: str) -> list[str]:
        one = attempt(1, "succeeded", 100.0, started_s=100.0, ended_s=100.05, nodes=nodes)
        return timeline.draw(job(one, ended_s=110.0), 110.0, 64)[1:]

    head = "   1 █                     succeeded, ran less than 0.1 s"
    assert drawn("n1") == [f"{head} on n1"]
    assert drawn("node1", "node2") == [head, "     on node1, node2"]
    most = ", ".join(f"node{n}" for n in range(6))
    assert drawn(*(f"node{n}" for n in range(64))) == [head, f"     on {most} and 58 more"]
    assert drawn("n" * 70) == [head, f"     on {'n' * 55}…"]


def test_what_an_attempt_got_of_its_choices_of_gpus_stands_beside_its_nodes() -> None:
    first = attempt(1, "restarted", 110.0, ended_s=120.0, choice=0)
    last = attempt(2, "succeeded", 152.0, ended_s=200.0, choice=1, nodes=["n1", "n2"])
    choices = [{"gpus": 1, "gpu_share": 0.0, "gpu_kind": "h100"}, {"gpus": 2, "gpu_share": 0.0, "gpu_kind": "a100"}]
    given = {**job(first, last, ended_s=200.0), "spec": {"resources": {"choices": choices}}}
    assert timeline.draw(given, 200.0, 64)[1:] == [
        "   1   ░░                  restarted for 10 s on n0: 1 × h100",
        "   2           ░░░░░░░░░░  succeeded for 48 s",
        "     on n1, n2: 2 × a100 each",
    ]


def test_many_attempts_are_drawn_in_part() -> None:
    ended = [attempt(n, "restarted", 100.0 + n, started_s=100.0 + n, ended_s=101.0 + n) for n in range(1, 31)]
    many = job(*ended, ended_s=200.0)
    lines = timeline.draw(many, 200.0)
    assert sum("restarted, ran" in line for line in lines) == 3 + 12
    assert lines[6] == "  …  15 more (tm show digits-1 --json has all)"
    assert all(table.width_of(line) <= 80 for line in lines)


def test_a_table_fits_its_terminal_by_shortening_words_not_ids() -> None:
    rows = [["a-1", "running", "10", "n0"], ["digits-14", "queued", "-", "waiting for 2 GPUs on a node that is full"]]
    assert table.draw(("ID", "STATE", "STEP", "WHY"), rows, 40) == [
        "ID         STATE    STEP  WHY",
        "a-1        running    10  n0",
        "digits-14  queued      -  waiting for 2…",
    ]


def test_a_narrow_terminal_loses_the_spare_columns_before_anything_is_cut() -> None:
    rows = [["digits-14", "succeeded", "loss 0.25", "n0"], ["x-1", "failed", "-", "rank 0 exited with code 1"]]
    headers = ("ID", "STATE", "METRIC", "WHERE")
    assert table.draw(headers, rows, 41, spare=(2,)) == [
        "ID         STATE      METRIC     WHERE",
        "digits-14  succeeded  loss 0.25  n0",
        "x-1        failed     -          rank 0…",
    ]
    assert table.draw(headers, rows, 40, spare=(2,)) == [
        "ID         STATE      WHERE",
        "digits-14  succeeded  n0",
        "x-1        failed     rank 0 exited wit…",
    ]


def test_a_column_without_any_number_is_flush_left() -> None:
    assert table.draw(("ID", "STEP", "TRY"), [["a", "-", "-"], ["b", "-", "12"]], None) == [
        "ID  STEP  TRY",
        "a   -       -",
        "b   -      12",
    ]


def test_a_piped_table_is_whole() -> None:
    long = "waiting for 2 GPUs on a node " * 20
    assert table.draw(("ID", "WHY"), [["a-1", long]], None)[1] == f"a-1  {long.strip()}"


def test_wide_characters_count_as_two_columns() -> None:
    assert [table.width_of("学習"), table.fit("学習ジョブ", 7)] == [4, "学習ジ…"]


def test_times_as_a_person_says_them() -> None:
    spans = [0, 0.44, 9.99, 12, 200, 7500, 90000 * 4, 2.04]
    assert [human.duration(span) for span in spans] == [
        "less than 0.1 s", "0.4 s", "9.9 s", "12 s", "3 min 20 s", "2 h 5 min", "4 d 4 h", "2 s",
    ]  # fmt: skip
    assert [human.ago(then, 1000.0) for then in (None, 1000.5, 999.5, 955.0, 100.0)] == [
        "-", "just now", "just now", "45 s ago", "15 min ago",
    ]  # fmt: skip


def test_numbers_as_a_person_reads_them() -> None:
    values = [None, 3.0, 0.023456, 12345.678, math.nan, math.inf]
    assert [human.number(value) for value in values] == ["-", "3", "0.02346", "1.235e+04", "nan", "inf"]
    assert [human.memory_of(part, 2**34) for part in (2**34, 3 * 2**32)] == ["16 of 16 GiB", "12 of 16 GiB"]
    assert [human.size(count) for count in (0, 999, 34_000, 1_234_567_890)] == ["0 B", "999 B", "34 kB", "1.23 GB"]


def test_what_a_program_printed_cannot_take_over_the_terminal() -> None:
    assert human.printable("loss\t\x1b[31m1\x07 学é\n") == "loss\t\\x1b[31m1\\x07 学é\n"


def test_what_an_attempt_was_given() -> None:
    def line(**more: object) -> str:
        return timeline.resumed_line(attempt(2, "running", 1.0, **more))

    assert line() == ""
    assert line(resumed_from="0001-00002", resumed_from_step=20, resumed_about=False) == "given step 20"
    assert line(resumed_from="0001-00002", resumed_from_step=20, resumed_about=True) == "given about step 20"
    assert line(resumed_from="0001-00002") == "given checkpoint 0001-00002, whose step is not known"
    saved = {"attempt": 1, "after_s": 40.0}
    assert line(resumed_from="0001-00002", resumed_saved=saved) == "given checkpoint 0001-00002, saved 40 s after attempt 1 began"


def test_what_an_attempt_was_given_is_told_whole_in_a_narrow_terminal() -> None:
    saved = {"resumed_from": "0002-00001", "resumed_from_step": 99, "resumed_saved": {"attempt": 2, "after_s": 5.0}}
    assert timeline.told(attempt(3, "running", 1.0, **saved), 75) == [
        "given checkpoint 0002-00001, saved 5 s after attempt 2 was given step 99",
    ]
