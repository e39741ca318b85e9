"""A file that could not be stored is reported by an event and shown with the job."""

from pathlib import Path
from typing import Any

import pytest
from launches import launch, write
from waiting import deadline

from trainmaster.agent.artifacts import keep
from trainmaster.agent.launch.start import Startup
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.wakeup import Wake
from trainmaster.agent.supervise import storing as storing_module
from trainmaster.agent.supervise.storing import StoreWorker
from trainmaster.agent.transport import remote_store
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.control.reports import event_of
from trainmaster.engines.local import exits
from trainmaster.lifecycle.machine import apply
from trainmaster.model.events import NotKept
from trainmaster.model.ids import AgentKey
from trainmaster.server.views.event_text import sentence
from trainmaster.server.views.resources import job_detail
from trainmaster.store.codec import dump, load_event
from trainmaster.testing import builders

KEY = AgentKey("digits-1", 1, 0)
REPORT = {"kind": "not_kept", "n": 4, "what": "artifact", "name": "a.png", "why": "the store refused"}


def test_a_report_is_an_event_that_can_be_read_again() -> None:
    event = event_of(KEY, REPORT)
    assert event == NotKept(1, 0, "artifact", "a.png", "the store refused", 4)
    assert load_event("NotKept", dump(event)) == event
    assert sentence(event) == "artifact a.png was not kept: the store refused"
    assert event_of(KEY, {**REPORT, "why": "x" * 9000}) == NotKept(1, 0, "artifact", "a.png", "x" * 500, 4)


def test_the_newest_few_are_notes_of_the_job_each_name_once() -> None:
    job = builders.placed(builders.job())
    for number, name in enumerate("abcdefa"):
        job, effects = apply(job, job.id, NotKept(1, 0, "artifact", name, f"reason {number}", number + 1), 1.0)
        assert effects == ()
    assert job.attempt is not None
    assert job.attempt.nodes[0].reports == 7
    notes = job_detail(job, [], {}, "", [])["notes"]
    wanted = [("c", 2), ("d", 3), ("e", 4), ("f", 5), ("a", 6)]
    assert notes == [f"artifact {name} was not kept: reason {number}" for name, number in wanted]


def test_an_exit_record_repeats_it() -> None:
    record = {"ranks": [], "launch_error": None, "staged": [], "kept": [{"kind": "kept", "n": 5}], "not_kept": [REPORT]}
    assert exits.reports(record) == (REPORT, {"kind": "kept", "n": 5})


def worker(root: Path, **changes: Any) -> StoreWorker:
    outbox = Outbox(str(root / "spool.jsonl"), str(root / "points.jsonl"))
    return StoreWorker(Startup(str(root), launch(root, **changes), Wake()), Progress(outbox))


def test_how_far_it_is_with_many_artifacts_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing_module, "_TELL_EVERY_S", 0.0)
    monkeypatch.setattr(keep, "_BATCH", 2)
    for number in range(5):
        write(tmp_path / "work" / f"{number}.txt", str(number))
    it = worker(tmp_path, artifacts=["*.txt"])
    it.finish()
    deadline(lambda: it.idle, "the artifacts")
    told = [fields.get("text", kind) for kind, fields in it.results]
    far = [f"keeps its artifacts: {done} of 5" for done in (2, 4)]
    assert told == ["kept", "kept", far[0], "kept", "kept", far[1], "kept", ""]


def test_an_artifact_that_cannot_be_kept_is_a_result(tmp_path: Path) -> None:
    write(tmp_path / "work" / "plot.png", "picture")
    blocked = write(tmp_path / "blocked", "a file where the store should be")
    it = worker(tmp_path, artifact_store=str(blocked / "store"), artifacts=["*.png"])
    it.message(0, {"t": "a", "path": str(tmp_path / "work" / "plot.png"), "name": "by-name.png"})
    it.finish()
    deadline(lambda: it.idle, "its end")
    told = [(kind, fields["what"], fields["name"], "Not a directory" in fields["why"]) for kind, fields in it.results]
    assert told == [("not_kept", "artifact", "by-name.png", True), ("not_kept", "artifact", "plot.png", True)]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (remote_store.Denied("the store refused it"), "the store refused it"),
        (remote_store.Away("nobody answered"), "nobody answered"),
        (remote_store.Stale("late"), ""),
    ],
)
def test_what_the_server_refuses_is_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, told: str
) -> None:
    def ask(self: object, what: str, **fields: object) -> None:
        raise error

    monkeypatch.setattr(remote_store.Remote, "ask", ask)
    write(tmp_path / "work" / "plot.png", "picture")
    it = worker(tmp_path, artifacts=["*.png"], remote=True)
    it.finish()
    deadline(lambda: it.idle, "its end")
    wanted = [("not_kept", {"what": "artifact", "name": "plot.png", "why": told})]
    assert list(it.results) == (wanted if told else [])


def test_a_store_that_is_away_for_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R6: an upload is tried for an hour; a person should know before, and when it has succeeded."""
    monkeypatch.setattr(remote_store, "TELL_AFTER_S", 0.0)
    monkeypatch.setattr(remote_store, "_BACKOFF_S", 0.001)
    away, told = remote_store.Remote(launch(tmp_path)), list[str]()
    away.waiting = told.append
    answers: list[Any] = [ConnectionRefusedError(111, "refused"), TimeoutError("late"), "ok"]

    def once() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert away._trying("commit it", once) == "ok"
    assert told == ["the store or the server does not answer (ConnectionRefusedError); it is tried again", ""]
