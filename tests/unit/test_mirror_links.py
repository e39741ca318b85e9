"""Where a job's runs in trackers can be viewed."""

from contextlib import closing
from pathlib import Path

from trainmaster.ports.tracker import Mirrored
from trainmaster.store.mirror_state import MirrorFile
from trainmaster.testing.tracker_contract import some_run


def test_links_follow_a_tracker_of_this_machine_to_another_port(tmp_path: Path) -> None:
    """`tm show` gave the link of the former port, where nothing answers."""
    urls = {
        "old-1": "http://127.0.0.1:44269/#/experiments/3/runs/67", "new-1": "http://127.0.0.1:45123/#/experiments/3/runs/68",
        "far-1": "https://mlflow.example.org/#/experiments/3/runs/69", "bare-1": "",
    }  # fmt: skip
    with closing(MirrorFile(tmp_path / "mirror.db")) as file:
        file.of("mlflow").save(None, [Mirrored(job, "ref", url, some_run(job)) for job, url in urls.items()])
        file.of("wandb").save(None, [Mirrored("old-1", "ref", urls["old-1"], some_run("old-1"))])
        file.moved("mlflow", "http://127.0.0.1:45123")
        found = {job: file.urls(job)["mlflow"] for job in urls}
        assert found == {**urls, "old-1": "http://127.0.0.1:45123/#/experiments/3/runs/67"}
        assert file.urls("old-1")["wandb"] == urls["old-1"]
