"""Contract suite for `trainmaster.ports.engine.Engine`: subclass `EngineContract` and give it a world.

A world is an engine, programs with known behavior for it, and the truth about what runs, read from the system and not from
the engine.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

import pytest

from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Outcome
from trainmaster.ports.engine import Engine, Observation, Phase, Submission


class Behaviour(StrEnum):
    """What a program does after it has reported its start (see `EngineWorld.starts`)."""

    SUCCEEDS = "exit 0"
    FAILS = "exit 3"
    CRASHES = "SEGV"
    RUNS = "runs until TERM"
    STUBBORN = "runs until KILL"
    DAEMON = "leaves a process in a session of its own and runs until TERM"


class EngineWorld(Protocol):
    """What the suite needs from an implementation's environment."""

    deadline_s: float  # for any wait, in real seconds

    def engine(self) -> Engine:
        """The engine."""
        ...

    def restart(self) -> Engine:
        """A new engine on the same state, as after `kill -9` of the control process. `engine` returns it from then on."""
        ...

    def rival(self) -> Engine:
        """Another engine on the same state, used at the same time."""
        ...

    def submission(self, behaviour: Behaviour, job: str = "train-1") -> Submission:
        """A submission of a program with this behavior."""
        ...

    def pause(self) -> None:
        """Let a little time pass: milliseconds of a real clock, more of a virtual one."""
        ...

    def kill_agent(self, key: AgentKey) -> None:
        """Kill the agent itself; its ranks are not touched."""
        ...

    def processes(self, key: AgentKey) -> int:
        """Number of running processes of the program."""
        ...

    def starts(self, key: AgentKey) -> int:
        """Number of starts of the program."""
        ...

    def close(self) -> None:
        """End everything that was started."""
        ...


def eventually(world: EngineWorld, check: Callable[[], bool], what: str) -> None:
    """Wait until `check` holds. Fails with `what` at the world's deadline."""
    deadline_s = time.monotonic() + world.deadline_s
    while not check():
        assert time.monotonic() < deadline_s, f"not within {world.deadline_s} s: {what}"
        world.pause()


def phase(world: EngineWorld, key: AgentKey) -> Phase:
    """The key's current phase according to the engine."""
    return world.engine().observe([key])[key].phase


def await_running(world: EngineWorld, key: AgentKey) -> None:
    """Wait until the engine reports it as running and the program has started."""
    eventually(world, lambda: phase(world, key) is Phase.RUNNING and world.starts(key) == 1, f"{key} runs")


def await_over(world: EngineWorld, key: AgentKey) -> Observation:
    """Wait for an exit record, or proof that it is gone."""
    last: list[Observation] = []

    def over() -> bool:
        last[:] = [world.engine().observe([key])[key]]
        return last[0].phase in (Phase.ENDED, Phase.GONE)

    eventually(world, over, f"{key} is over")
    return last[0]


def stop_until_over(world: EngineWorld, key: AgentKey, grace_s: float) -> Observation:
    """Stop as the control loop does: repeat at each beat until the engine reports that nothing runs."""
    last: list[Observation] = []

    def over() -> bool:
        world.engine().stop(key, grace_s)
        last[:] = [world.engine().observe([key])[key]]
        return last[0].phase in (Phase.ENDED, Phase.GONE)

    eventually(world, over, f"{key} is stopped")
    return last[0]


def ends(outcome: Outcome | None) -> list[tuple[int | None, int | None, bool]]:
    """(exit code, signal, stopped by us) of each rank."""
    assert outcome is not None
    return [(rank.exit_code, rank.signal, rank.stopped_by_us) for rank in outcome.ranks]


def _timeless(seen: Observation) -> Observation:
    """The observation without how long ago its end was."""
    outcome = seen.outcome
    return seen if outcome is None else replace(seen, outcome=replace(outcome, failed_ago_s=0.0, ended_ago_s=0.0))


class EngineContract:
    """Subclass it with a `make_world`; pytest runs every law against it."""

    def make_world(self, tmp_path_factory: pytest.TempPathFactory) -> EngineWorld:
        """The world of one test."""
        raise NotImplementedError

    @pytest.fixture
    def world(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineWorld]:
        """The world, cleaned up whatever the test did."""
        made = self.make_world(tmp_path_factory)
        try:
            yield made
        finally:
            made.close()

    def test_a_key_never_submitted_is_absent(self, world: EngineWorld) -> None:
        key = AgentKey("other-7", 3, 0)
        assert world.engine().observe([key]) == {key: Observation(Phase.ABSENT)}
        assert world.engine().observe(None) == {}

    @pytest.mark.parametrize(
        ("behaviour", "end"),
        [
            (Behaviour.SUCCEEDS, (0, None, False)),
            (Behaviour.FAILS, (3, None, False)),
            (Behaviour.CRASHES, (None, 11, False)),
        ],
    )
    def test_how_it_ended_is_told_whole(
        self, world: EngineWorld, behaviour: Behaviour, end: tuple[int | None, int | None, bool]
    ) -> None:
        submission = world.submission(behaviour)
        world.engine().submit(submission)
        seen = await_over(world, submission.key)
        assert (seen.phase, ends(seen.outcome)) == (Phase.ENDED, [end])
        assert [report["kind"] for report in seen.reports] == ["started"]
        assert world.processes(submission.key) == 0

    def test_the_same_key_starts_once(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.RUNS)
        for _ in range(3):
            world.engine().submit(submission)
        await_running(world, submission.key)
        world.engine().submit(submission)
        world.restart().submit(submission)  # a crash between the call and its record
        await_running(world, submission.key)
        stop_until_over(world, submission.key, 5.0)
        world.engine().submit(submission)
        assert phase(world, submission.key) in (Phase.ENDED, Phase.GONE)
        assert world.starts(submission.key) == 1

    def test_the_same_key_from_two_engines_at_once_starts_once(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.RUNS)
        both = threading.Barrier(2)

        def submit(engine: Engine) -> None:
            both.wait()
            engine.submit(submission)

        threads = [threading.Thread(target=submit, args=(engine,)) for engine in (world.engine(), world.rival())]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        await_running(world, submission.key)
        stop_until_over(world, submission.key, 5.0)
        assert world.starts(submission.key) == 1

    def test_an_ended_key_is_not_started_again(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.SUCCEEDS)
        world.engine().submit(submission)
        before = await_over(world, submission.key)
        world.restart().submit(submission)
        assert _timeless(world.engine().observe([submission.key])[submission.key]) == _timeless(before)
        assert world.starts(submission.key) == 1

    def test_stop_before_submit_starts_nothing(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.RUNS)
        world.engine().stop(submission.key, 1.0)
        world.restart().submit(submission)
        seen = await_over(world, submission.key)
        assert not seen.outcome or not seen.outcome.ranks
        assert (world.starts(submission.key), world.processes(submission.key)) == (0, 0)

    def test_stop_right_after_submit_leaves_nothing(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.RUNS)
        world.engine().submit(submission)
        stop_until_over(world, submission.key, 5.0)
        assert world.processes(submission.key) == 0

    def test_stop_terms_and_is_harmless_twice(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.RUNS)
        world.engine().submit(submission)
        await_running(world, submission.key)
        seen = stop_until_over(world, submission.key, 20.0)
        assert (seen.phase, ends(seen.outcome)) == (Phase.ENDED, [(None, 15, True)])
        world.engine().stop(submission.key, 20.0)
        world.engine().stop(submission.key, 0.0)
        assert _timeless(world.engine().observe([submission.key])[submission.key]) == _timeless(seen)
        assert world.processes(submission.key) == 0

    def test_after_the_grace_it_is_killed(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.STUBBORN)
        world.engine().submit(submission)
        await_running(world, submission.key)
        seen = stop_until_over(world, submission.key, 0.3)
        assert (seen.phase, ends(seen.outcome)) == (Phase.ENDED, [(None, 9, True)])
        assert world.processes(submission.key) == 0

    def test_a_shorter_grace_comes_into_force(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.STUBBORN)
        world.engine().submit(submission)
        await_running(world, submission.key)
        world.engine().stop(submission.key, 600.0)
        seen = stop_until_over(world, submission.key, 0.0)
        assert (seen.phase, ends(seen.outcome)) == (Phase.ENDED, [(None, 9, True)])

    def test_a_fresh_engine_finds_what_nobody_recorded(self, world: EngineWorld) -> None:
        submissions = [world.submission(Behaviour.RUNS, job) for job in ("train-1", "train-2")]
        for submission in submissions:
            world.engine().submit(submission)
        for submission in submissions:
            await_running(world, submission.key)
        found = world.restart().observe(None)
        assert found == {submission.key: Observation(Phase.RUNNING) for submission in submissions}
        for submission in submissions:
            stop_until_over(world, submission.key, 5.0)
        assert world.engine().observe(None) == {}

    def test_unknown_or_running_until_there_is_evidence(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.RUNS)
        world.engine().submit(submission)
        phases: list[Phase] = []

        def started() -> bool:
            phases.append(phase(world, submission.key))
            return world.starts(submission.key) == 1

        eventually(world, started, "it starts")
        assert set(phases) <= {Phase.UNKNOWN, Phase.RUNNING}

    def test_a_killed_agent_is_lost_and_then_proven_gone(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.DAEMON)
        world.engine().submit(submission)
        await_running(world, submission.key)
        world.kill_agent(submission.key)
        eventually(world, lambda: phase(world, submission.key) is not Phase.RUNNING, "the loss is seen")
        assert phase(world, submission.key) is Phase.LOST
        world.restart()
        assert phase(world, submission.key) is Phase.LOST
        seen = stop_until_over(world, submission.key, 0.0)
        assert (seen.phase, seen.outcome) == (Phase.GONE, None)
        assert world.processes(submission.key) == 0
        world.engine().submit(submission)
        assert phase(world, submission.key) is Phase.GONE
        assert world.starts(submission.key) == 1

    def test_daemonised_children_die_too(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.DAEMON)
        world.engine().submit(submission)
        await_running(world, submission.key)
        stop_until_over(world, submission.key, 5.0)
        assert world.processes(submission.key) == 0

    def test_daemonised_children_of_a_killed_agent_die_too(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.DAEMON)
        world.engine().submit(submission)
        await_running(world, submission.key)
        world.kill_agent(submission.key)
        stop_until_over(world, submission.key, 0.5)
        assert world.processes(submission.key) == 0

    def test_one_call_answers_for_many(self, world: EngineWorld) -> None:
        ended, running = world.submission(Behaviour.SUCCEEDS, "train-1"), world.submission(Behaviour.RUNS, "train-2")
        for submission in (ended, running):
            world.engine().submit(submission)
        await_running(world, running.key)
        await_over(world, ended.key)
        absent = AgentKey("other-7", 3, 0)
        seen = world.engine().observe([ended.key, running.key, absent])
        assert {key: what.phase for key, what in seen.items()} == {
            ended.key: Phase.ENDED, running.key: Phase.RUNNING, absent: Phase.ABSENT,
        }  # fmt: skip
        stop_until_over(world, running.key, 5.0)

    def test_the_credential_is_not_rendered(self, world: EngineWorld) -> None:
        submission = world.submission(Behaviour.SUCCEEDS)
        rendered = world.engine().render(submission)
        assert rendered == world.engine().render(submission)
        assert submission.credential not in rendered

    def test_the_inventory_is_stable(self, world: EngineWorld) -> None:
        first = world.engine().inventory()
        assert first == world.restart().inventory()
        assert len({node.name for node in first}) == len(first) > 0
