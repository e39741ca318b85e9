"""MLflow, TensorBoard and W&B keep the laws that every tracker is held to; a mirror catches up with a real MLflow server
that was killed, stopped or wiped; and `tm up --mlflow` from end to end."""

import http.server
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("mlflow")
pytest.importorskip("tensorboard")
pytest.importorskip("wandb")

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from running import Tm, kill, ranks_of, server
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tracker_files import START_S, Mlflow, wandb_file, wandb_rows
from waiting import deadline

from trainmaster.model.checkpoints import Artifact
from trainmaster.model.job import Job, State
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.ports.tracker import RunRefusedError, RunTroubledError, Tracker, TrackerUnreachableError
from trainmaster.store.metrics.feed import SqlFeed
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.store.mirror_state import MirrorFile
from trainmaster.testing import builders
from trainmaster.testing.tracker_contract import Rows, TrackerContract, points, some_run
from trainmaster.tracking.follower import Follower
from trainmaster.tracking.sources import Sources
from trainmaster.tracking.to_mlflow import MlflowTracker
from trainmaster.tracking.to_tensorboard import TensorboardTracker
from trainmaster.tracking.to_wandb import WandbTracker

pytestmark = [pytest.mark.xdist_group("mlflow"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mlflow]:
    made = Mlflow(tmp_path_factory.mktemp("mlflow"))
    made.start()
    yield made
    if made.process is not None:
        made.kill()


class TestMlflow(TrackerContract):
    @pytest.fixture
    def tracker(self, mlflow: Mlflow) -> Tracker:
        client = MlflowClient(mlflow.url)
        for experiment in client.search_experiments():
            for run in client.search_runs([experiment.experiment_id]):
                client.set_tag(run.info.run_id, "trainmaster.run", "of an earlier test")
        return MlflowTracker(mlflow.url)

    @pytest.fixture
    def read(self, mlflow: Mlflow) -> Callable[[str], Rows]:
        return lambda ref: history(mlflow, ref)

    @pytest.fixture
    def described(self, mlflow: Mlflow) -> Callable[[str], tuple[dict[str, str], str]]:
        def described(ref: str) -> tuple[dict[str, str], str]:
            run = MlflowClient(mlflow.url).get_run(ref)
            return run.data.params, run.info.status

        return described

    @pytest.fixture
    def wipe(self, mlflow: Mlflow) -> Callable[[], None]:
        return mlflow.wipe_runs

    def test_names_that_mlflow_refuses_stay_apart(self, tracker: Tracker, mlflow: Mlflow) -> None:
        odd = some_run(params={"a@b": "1", "a_b": "2", "": "3", "../up": "4"}, tags={"trainmaster.run": some_run().id, "t@g": "x"})
        ref = tracker.begin(odd).ref
        tracker.tell(ref, odd, None)
        assert sorted(MlflowClient(mlflow.url).get_run(ref).data.params.values()) == ["1", "2", "3", "4"]

    def test_a_removed_tag_is_removed(self, tracker: Tracker, mlflow: Mlflow) -> None:
        own = {"trainmaster.run": some_run().id}
        before, now = some_run(tags={**own, "bad": "yes", "gone": "1", "stage": "prod"}), some_run(tags={**own, "stage": "prod"})
        ref = tracker.begin(before).ref
        tracker.tell(ref, before, None)
        client = MlflowClient(mlflow.url)
        client.delete_tag(ref, "gone")  # by a person
        tracker.tell(ref, now, before)
        assert {"bad", "gone", "stage"} & client.get_run(ref).data.tags.keys() == {"stage"}

    def test_an_odd_artifact_name_concerns_that_file_only(self, tracker: Tracker, mlflow: Mlflow, tmp_path: Path) -> None:
        source = tmp_path / "loss.png"
        source.write_bytes(b"picture")
        ref = tracker.begin(some_run()).ref
        tracker.keep(ref, "./plots//loss.png", source)
        assert [file.path for file in MlflowClient(mlflow.url).list_artifacts(ref, "plots")] == ["plots/loss.png"]
        for name in ("a\nb/loss.png", "../loss.png", "a#1/loss.png", "a?/loss.png", "%61/loss.png"):  # a, a and a in a URL
            with pytest.raises(RunRefusedError):
                tracker.keep(ref, name, source)

    def test_what_is_too_long_for_mlflow_is_cut_and_named(self, tracker: Tracker, mlflow: Mlflow) -> None:
        """T11: it was cut without a word."""
        long = some_run(params={"short": "1", "config": "x" * 7000}, tags={"trainmaster.run": some_run().id, "notes": "y" * 5001})
        ref = tracker.begin(long).ref
        tracker.tell(ref, long, None)
        kept = MlflowClient(mlflow.url).get_run(ref).data
        assert (len(kept.params["config"]), len(kept.tags["notes"])) == (6000, 5000)
        assert kept.tags["trainmaster.cut"] == "config (7,000 characters), notes (5,001 characters)"
        short = replace(long, params={}, tags={"trainmaster.run": some_run().id})
        tracker.tell(tracker.begin(short).ref, short, None)

    def test_a_server_that_is_not_there_is_unreachable_and_no_password_is_told(self) -> None:
        tracker = MlflowTracker("http://ann:secret@127.0.0.1:1")
        with pytest.raises(TrackerUnreachableError) as caught:
            tracker.begin(some_run())
        assert "secret" not in str(caught.value)


class Failing(http.server.BaseHTTPRequestHandler):
    """Answers every request with the status in its server's name, as MLflow does itself or as a proxy before it does."""

    status, body = 500, b""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (500, b'{"error_code": "INTERNAL_ERROR", "message": "fell over"}', RunTroubledError),
        (500, b"<html>", RunTroubledError),
        (503, b"", TrackerUnreachableError),
        (502, b"<html>", TrackerUnreachableError),
    ],
)
def test_a_server_that_falls_over_a_run_is_told_from_one_that_is_away(status: int, body: bytes, error: type[Exception]) -> None:
    handler = type("Fails", (Failing,), {"status": status, "body": body})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as answering:
        threading.Thread(target=answering.serve_forever, daemon=True).start()
        with pytest.raises(error) as caught:
            MlflowTracker(f"http://127.0.0.1:{answering.server_port}").log("ref", points("loss", 1), "")
        answering.shutdown()
    assert type(caught.value) is error


def history(mlflow: Mlflow, ref: str) -> Rows:
    client = MlflowClient(mlflow.url)
    keys = client.get_run(ref).data.metrics
    return {key: [(metric.step, metric.value) for metric in client.get_metric_history(ref, key)] for key in keys}


class DirectoryContract(TrackerContract):
    """Fixture of each: `root`."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "tracking"

    @pytest.fixture
    def wipe(self, root: Path) -> Callable[[], None]:
        return lambda: shutil.rmtree(root)

    def test_two_servers_may_share_a_directory(self, tracker: Tracker) -> None:
        mine, others = some_run(), replace(some_run(), id="0" * 32)
        assert tracker.begin(mine).ref != tracker.begin(others).ref
        assert tracker.begin(others).ref == tracker.begin(others).ref


class TestTensorboard(DirectoryContract):
    @pytest.fixture
    def tracker(self, root: Path) -> Tracker:
        return TensorboardTracker(root)

    @pytest.fixture
    def read(self) -> Callable[[str], Rows]:
        def read(ref: str) -> Rows:
            found = EventAccumulator(ref, size_guidance={"scalars": 0}).Reload()
            return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}

        return read

    @pytest.fixture
    def described(self) -> Callable[[str], tuple[dict[str, str], str]]:
        def described(ref: str) -> tuple[dict[str, str], str]:
            found = EventAccumulator(ref, size_guidance={"tensors": 0}).Reload()
            texts = {tag: found.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in found.Tags()["tensors"]}
            rows = [line.strip("| ").split(" | ") for line in texts["params"].splitlines()[2:]]
            return {name: value for name, value in rows}, texts["status"]  # noqa: C416

        return described


class TestWandb(DirectoryContract):
    @pytest.fixture
    def tracker(self, root: Path) -> Tracker:
        return WandbTracker(root)

    @pytest.fixture
    def read(self, root: Path) -> Callable[[str], Rows]:
        return lambda ref: wandb_rows(root, ref)[0]

    @pytest.fixture
    def described(self, root: Path) -> Callable[[str], tuple[dict[str, str], str]]:
        def described(ref: str) -> tuple[dict[str, str], str]:
            return wandb_rows(root, ref)[1], json.loads((Path(ref) / "run.json").read_text())["status"]

        return described


class Worn:
    """One job's points in a real store, mirrored into a real MLflow server."""

    def __init__(self, directory: Path, mlflow: Mlflow, job: str) -> None:
        self.metrics, self.feed = SqlMetricStore(directory / "metrics.db"), SqlFeed(directory / "metrics.db")
        self.file, self.mlflow, self.directory = MirrorFile(directory / "mirror.db"), mlflow, directory
        self.value = builders.job(id=job, state=State.RUNNING)
        self.mirror = self.fresh()

    def fresh(self) -> Follower:
        sources = Sources(self, self.feed, lambda seq: str(self.directory), "all", lambda project: True)
        self.clock = 0.0
        return Follower(MlflowTracker(self.mlflow.url), self.file.of("mlflow"), sources, self.now)

    def now(self) -> float:
        self.clock += 1.0
        return self.clock

    def last_seq(self) -> int:
        return 1

    def changed(self, after_seq: int, limit: int) -> tuple[list[str], int]:
        return ([self.value.id] if after_seq < 1 else []), 1

    def job(self, job_id: str) -> Job:
        return self.value

    def artifacts(self, job_id: str, limit: int, after: str = "") -> list[Artifact]:
        return []

    def jobs(self, query: object) -> list[object]:
        return [self.value] if query.before_seq is None else []  # type: ignore[attr-defined]

    def report(self, steps: range, attempt: int = 1) -> None:
        points = [MetricPoint(self.value.id, attempt, 0, step, "loss", step + attempt / 10, 1_000.0 + step) for step in steps]
        self.metrics.write(points, [])

    def catch_up(self, timeout_s: float = 120.0) -> None:
        quiet: list[bool] = []

        def quiet_now() -> bool:
            try:
                quiet.append(not self.mirror.step())
            except TrackerUnreachableError:
                quiet.clear()
            return quiet[-40:] == [True] * 40  # some of them probe whether the server was wiped

        deadline(quiet_now, "the mirror to catch up", timeout_s, 0.01)

    def steps_until_trouble(self) -> None:
        for _ in range(100):
            self.mirror.step()

    def steps(self) -> list[int]:
        run = self.file.of("mlflow").run(self.value.id)
        assert run is not None
        return sorted(step for step, _ in history(self.mlflow, run.ref)["loss"])

    def close(self) -> None:
        for one in (self.metrics, self.feed, self.file):
            one.close()


def test_a_server_killed_stopped_and_wiped_has_every_step_once(tmp_path: Path, mlflow: Mlflow) -> None:
    with closing(Worn(tmp_path, mlflow, "worn-1")) as worn:
        worn.report(range(1, 2001))
        worn.catch_up()
        mlflow.kill()
        worn.report(range(1501, 4001), attempt=2)
        with pytest.raises(TrackerUnreachableError):
            worn.steps_until_trouble()
        worn.mirror = worn.fresh()  # and the mirror was killed too, with a parcel on its way
        mlflow.start()
        worn.catch_up()
        assert worn.steps() == list(range(1, 4001))
        mlflow.wipe_runs()
        worn.report(range(4001, 4101), attempt=2)
        worn.catch_up()
        assert worn.steps() == list(range(1, 4101))


PROGRAM = """
import json, os, time
begun = json.load(open("out/at.json"))["step"] if os.path.exists("out/at.json") else 0
os.makedirs("out", exist_ok=True)
for step in range(begun + 1, 121):
    print(f"step {step} loss {1 / step}", flush=True)
    with open("out/at.part", "w") as file:
        json.dump({"step": step}, file)
    os.replace("out/at.part", "out/at.json")
    time.sleep(0.1)
open("out/told.txt", "w").write("kept")
"""


def test_a_job_killed_twice_is_one_finished_run_everywhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "server.toml").write_text('[tracking]\nsinks = ["tensorboard", "wandb"]\n')
    with server(tmp_path, "--mlflow", home=home) as tm:
        url = json.loads((home / "server.json").read_text())["mlflow_url"]
        tm.file("train.py", PROGRAM)
        job = tm.submit("--checkpoint", "out/at.json", "--artifact", "out/*.txt", "--add-param", "lr=0.1", "--", "python", "train.py")
        for attempt, least in ((1, 5), (2, 30)):

            def far_enough(attempt: int = attempt, least: int = least) -> bool:
                shown = tm.show(job)
                return shown["attempt"] == attempt and (shown["step"] or 0) > least and 0 in ranks_of(tm, job)

            deadline(far_enough, f"attempt {attempt} to be beyond step {least}", 120.0, 0.2)
            kill(ranks_of(tm, job)[0])
        shown = tm.ended(job, 120.0)
        assert (shown["state"], len(shown["attempts"])) == ("succeeded", 3)
        pids = json.loads((home / "server.json").read_text())["pids"]
        kill(pids["mirror"])
        client = MlflowClient(url)
        deadline(lambda: finished(client, job), "the run to be finished in MLflow", START_S, 1.0)
        deadline(lambda: len(steps_of(client, job)) >= 120, "its points", START_S, 1.0)
        assert steps_of(client, job) == list(range(1, 121))
        run = found(client, job)
        assert (run.data.params, run.data.tags["trainmaster.attempts"]) == ({"lr": "0.1"}, "3")
        assert any(name.startswith("system/") for name in run.data.metrics)
        assert [one.path for one in client.list_artifacts(run.info.run_id, "out")] == ["out/told.txt"]
        directory = home / "tracking"
        events = str(directory / "tensorboard" / job)
        deadline(lambda: len(scalars(events)) >= 120, "the event files", START_S, 1.0)
        assert scalars(events) == list(range(1, 121))
        staged = directory / "wandb" / "staged" / job
        deadline(lambda: wandb_file(directory / "wandb", staged), "W&B to write the run", START_S, 1.0)
        rows, _ = wandb_rows(directory / "wandb", str(directory / "wandb" / "staged" / job))
        assert sorted(step for step, _ in rows["loss"]) == list(range(1, 121))
        assert sorted(tm.show(job)["runs"]) == ["mlflow", "tensorboard", "wandb"]
        deadline(lambda: tm("doctor").out.count("up to date") == 3, "the mirror to be up to date", START_S, 1.0)


def test_a_killed_jobs_run_is_not_left_running(tmp_path: Path, mlflow: Mlflow) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "server.toml").write_text(f'[tracking]\nsinks = ["mlflow"]\nmlflow = "{mlflow.url}"\n')
    with server(tmp_path, home=home) as tm:
        tm.file("train.py", PROGRAM)
        job = tm.submit("--name", "ended-early", "--", "python", "train.py")
        client = MlflowClient(mlflow.url)
        deadline(lambda: step_of(tm, job) > 1, "the job to run", 120.0, 0.2)
        deadline(lambda: status(client, job) == "RUNNING", "the run to be running", START_S, 0.5)
        tm.ok("cancel", job)
        deadline(lambda: status(client, job) == "KILLED", "the run to be killed", 60.0, 0.2)


def step_of(tm: Tm, job: str) -> int:
    return tm.show(job)["step"] or 0


def found(client: MlflowClient, job: str):  # type: ignore[no-untyped-def]
    experiments = [one.experiment_id for one in client.search_experiments()]
    return next(iter(client.search_runs(experiments, f"tags.`trainmaster.job` = '{job}'")), None)


def steps_of(client: MlflowClient, job: str) -> list[int]:
    run = found(client, job)
    return sorted(metric.step for metric in client.get_metric_history(run.info.run_id, "loss"))


def scalars(directory: str) -> list[int]:
    found = EventAccumulator(directory, size_guidance={"scalars": 0}).Reload()
    return sorted(one.step for one in found.Scalars("loss")) if "loss" in found.Tags()["scalars"] else []


def status(client: MlflowClient, job: str) -> str:
    run = found(client, job)
    return "" if run is None else run.info.status


def finished(client: MlflowClient, job: str) -> bool:
    try:
        run = found(client, job)
    except MlflowException:  # it is only starting
        return False
    return run is not None and run.info.status == "FINISHED" and "out" in [one.path for one in client.list_artifacts(run.info.run_id)]
