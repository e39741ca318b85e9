"""The headline of a failure: the exception, whatever libraries print after it. `failure_tails.txt` is the corpus."""

import time
from pathlib import Path

import pytest

from trainmaster.wire.exceptions import TAIL_LINES, raised


def tails() -> list[tuple[str, str | None, list[str]]]:
    """(name, expected, lines) of the corpus."""
    text = (Path(__file__).parent / "failure_tails.txt").read_text().replace("\\x1b", "\x1b")
    found = []
    for tail in text.split("=== ")[1:]:
        head, *lines = tail.split("\n")
        name, _, expected = head.partition(": ")
        found.append((name, None if expected == "None" else expected, lines[:-1]))
    return found


@pytest.mark.parametrize(("name", "expected", "lines"), tails(), ids=[name for name, *_ in tails()])
def test_the_exception_is_named_whatever_follows_it(name: str, expected: str | None, lines: list[str]) -> None:
    assert raised(lines) == expected


def test_an_exception_that_the_program_survived_is_not_named() -> None:
    (lines,) = (lines for name, _, lines in tails() if name == "plain")
    assert raised([*lines, *(f"step {step} loss 0.3" for step in range(50))]) == "ValueError: boom"
    assert raised([*lines, *(f"step {step} loss 0.3" for step in range(100))]) is None


TRACEBACK = "Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((TRACEBACK, '  File "x.py", line 1', "    import y", "ImportError: no y", "bye"), "ImportError: no y"),
        ((TRACEBACK, "    a", "KeyError: 1", "", "During handling", TRACEBACK, "    b", "x.Boom: 2", "more of it"), "x.Boom: 2"),
        ((f"[rank1]: {TRACEBACK}", "[rank1]:     a", "[rank1]: StopIteration"), "StopIteration"),
        ((TRACEBACK, "    f()", "t.f.<locals>.E: x", "wandb: ", "", "wandb: Run history:", "wandb: loss 1"), "t.f.<locals>.E: x"),
        ((TRACEBACK, "    f()", "Not an exception!", "", "Done"), None),
        (('{"msg": "' + TRACEBACK + ' boom"}', "saved"), None),
        (("UserWarning: low disk",), None),
        (("    deep", "ValueError: the traceback's head is cut off"), "ValueError: the traceback's head is cut off"),
        ((TRACEBACK, "    x"), None),
        (("MyError: " + "x" * 300,), "MyError: " + "x" * 150 + "…"),
        ((), None),
    ],
)
def test_tracebacks_that_are_cut_off_or_nested(lines: tuple[str, ...], expected: str | None) -> None:
    assert raised(lines) == expected


BOOM = (TRACEBACK, "    f()", "ValueError: boom")
OTHER = (TRACEBACK, "    g()", "KeyError: 1")
CHAINED = (*OTHER, "", "During handling of the above exception, another exception occurred:", "", TRACEBACK, "    h()", "OSError: 2")
CALLED = "subprocess.CalledProcessError: Command '['ffmpeg']' returned non-zero exit status 1."
TORCHRUN = (TRACEBACK, "    x", "x.ChildFailedError: ", "  rank      : 1 (local_rank: 1)", "  exitcode  : 1 (pid: 7)")


def of_rank(rank: int, lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"[rank{rank}]: {line}" for line in lines)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((*BOOM, "Error in atexit._run_exitfuncs:", *OTHER), "ValueError: boom"),
        (("--- Logging error ---", *OTHER, "Call stack:", "    log()", "Arguments: ()"), None),
        ((*BOOM, "Exception ignored in: <function X.__del__>", *CHAINED), "ValueError: boom"),
        ((*BOOM, "Exception in thread Thread-1:", *CHAINED), "ValueError: boom"),
        ((*BOOM, "Task exception was never retrieved", "future: <Task finished>", *OTHER), "ValueError: boom"),
        ((*OTHER, "step 1 loss 2", TRACEBACK, "    run()", CALLED), CALLED),
        ((*of_rank(1, BOOM), *of_rank(0, OTHER), *TORCHRUN), "ValueError: boom"),
        ((*of_rank(0, OTHER), *TORCHRUN), "x.ChildFailedError: rank      : 1 (local_rank: 1)"),
        ((*BOOM, "wandb: Run summary:", "wandb: epoch 3", "wandb: WARNING failed to sync"), "ValueError: boom"),
    ],
)
def test_another_exception_than_the_one_that_ended_it_is_not_named(lines: tuple[str, ...], expected: str | None) -> None:
    assert raised(lines) == expected


@pytest.mark.parametrize(
    "last",
    [
        "checkpoint not found, starting from scratch",
        "finished without error",
        "error rate: 0.3",
        "t.py:3: RuntimeWarning: invalid value encountered in divide",
        "WARNING: cuDNN not found",
    ],
)
def test_a_last_line_that_tells_of_no_error_is_not_named(last: str) -> None:
    assert raised([last], exit_code=3) is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # Standard output is buffered: what was printed before the error stands after it.
        (["Error: Failed to open file 'none.bin' at t.c:59", "| Parameter | Value |", "| lr | 0.1 |"], "Error: Failed to open file 'none.bin' at t.c:59"),
        (["[2026-11-26 18:00:00] Error: no data", "[CALL STACK]", "[0x55]"], "[2026-11-26 18:00:00] Error: no data"),
        (["Error: a", "Error: b", "the end"], None),  # which of them ended it is not known
        (["Error: 0.25", "the end"], None),
        (["Error: no wandb server", "step 1 loss 0.5", "the end"], None),  # it went on
        (["ERROR: pip's dependency resolver does not currently", "the end"], None),
        (["error: none, falling back to 0", "the end"], None),
        (
            ["[rank0]:/usr/bin/python: No module named tt.train", "Traceback (most recent call last):", '  File "torchrun", line 8', "    main()",
             "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "],
            "/usr/bin/python: No module named tt.train",
        ),
    ],
)  # fmt: skip
def test_the_only_line_that_begins_as_an_error_does(lines: list[str], expected: str | None) -> None:
    assert raised(lines) == expected


def test_a_panic_that_the_program_survived_is_not_named() -> None:
    panic = ["thread 'w' panicked at src/main.rs:2:5:", "boom"]
    assert raised([*panic, *["row"] * 40], exit_code=101) == "panicked at src/main.rs:2:5: boom"
    assert raised([*panic, *["row"] * 100], exit_code=3) is None


@pytest.mark.parametrize("line", [TRACEBACK * 30, "a." * 500, "| " * 500, " " * 999 + "x", "\x1b[" + "0;" * 499, "E" + "Error" * 199])
def test_hostile_lines_cost_linear_time(line: str) -> None:
    began_s = time.process_time()
    raised([line] * TAIL_LINES)
    assert time.process_time() - began_s < 0.2


def test_an_exit_code_of_the_programs_own_after_further_steps_is_not_of_the_exception() -> None:
    """Python exits with 1 after an exception. A program that went on and exits with 3 handled it."""
    handled = [TRACEBACK, "    push()", "ConnectionError: refused"]
    assert raised([*handled, "step 4 loss 0.3"], exit_code=3) is None
    assert raised([*handled, "step 4 loss 0.3"], exit_code=1) == "ConnectionError: refused"
    assert raised([*handled, "saved the model"], exit_code=3) == "ConnectionError: refused"
