"""Values in a fast bar are of the step that made them, also where two steps made the same ones."""

from __future__ import annotations

from trainmaster.agent.metrics.bars import Bar, Positions


def given(states: list[tuple[int, float]], total: int = 600) -> dict[float, int | None]:
    """For each loss, the position that it was given last."""
    positions = Positions()
    found = {}
    for at, loss in states:
        found[loss] = positions.of(Bar("training", (at, total, False), f"loss={loss}", ""), {"loss": loss} if loss else {})
    return found


def drawn(losses: list[float], moves: list[int], again: frozenset[int] = frozenset()) -> list[tuple[int, float]]:
    """What `bar.set_postfix(loss=…)` at each step draws, if the bar itself moves on to `moves` only.

    `again`: steps after which a line is printed above the bar, which is then drawn again.
    """
    states, at = [(0, 0.0)], 0
    for step, loss in enumerate(losses, 1):
        states += [(at, loss)] * (2 if step in again else 1)
        if step in moves:
            at = step
            states.append((at, loss))
    return states


def test_two_steps_with_the_same_loss() -> None:
    """The step after them was told one too low, and those after the next move one too high."""
    losses = [9.0, 8.9, 8.8, 8.7, 8.7, 8.6, 8.5, 8.4, 8.3, 8.2, 8.1, 8.0, 7.9, 7.9, 7.8, 7.7]
    found = given(drawn(losses, [1, 2, 7, 12, 16]))
    assert {step: found[loss] for step, loss in enumerate(losses, 1) if step in (2, 8, 9, 10, 11, 12, 13, 15, 16)} == {
        2: 2, 8: 8, 9: 9, 10: 10, 11: 11, 12: 12, 13: 13, 15: 15, 16: 16,
    }  # fmt: skip


def test_what_it_is_is_not_known_until_the_bar_moves() -> None:
    losses = [9.0, 8.9, 8.8, 8.7, 8.6, 8.5, 8.4, 8.4, 8.3, 8.2, 8.1]
    states = drawn(losses, [1, 2, 6, 10])
    before = [(at, loss) for at, loss in states if at < 10 and loss != 8.2]
    assert {loss: at for loss, at in given(before).items() if loss in (8.5, 8.4, 8.3)} == {8.5: 6, 8.4: 7, 8.3: None}
    assert given(states)[8.1] == 11


def test_a_line_printed_above_the_bar_is_no_step() -> None:
    losses = [9.0, 8.9, 8.8, 8.7, 8.6, 8.5, 8.4, 8.3, 8.2, 8.1, 8.0, 7.9]
    found = given(drawn(losses, [1, 2, 6, 10, 12], frozenset({4, 8})))
    assert [found[loss] for loss in losses[6:]] == [7, 8, 9, 10, 11, 12]


def test_with_both_what_follows_is_left_out() -> None:
    losses = [9.0, 8.9, 8.8, 8.7, 8.6, 8.5, 8.4, 8.3, 8.3, 8.2, 8.1, 8.0, 7.9, 7.8, 7.7, 7.6]
    found = given(drawn(losses, [1, 2, 6, 11, 16], frozenset({4, 13})))
    assert [found[loss] for loss in losses[11:]] == [12, 13, None, None, 16]
