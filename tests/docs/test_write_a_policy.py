"""The policy of the page `write-a-policy` is one: it replays, and orders jobs as the page says."""

from snippets import ROOT, snippets

from trainmaster.scheduling.explanation.standing import ordered
from trainmaster.scheduling.model.jobs import Task, kind_of
from trainmaster.scheduling.model.request import Shape, ask_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.simulator.replay import Replay, Settings
from trainmaster.simulator.trace import Arrival, Trace, gpu_nodes

PAGE = ROOT / "docs" / "howto" / "write-a-policy.md"


def written() -> Policy:
    names: dict[str, object] = {}
    exec(next(one.text for one in snippets(PAGE) if one.language == "python"), names)
    policy = names["WIDEST"]
    assert isinstance(policy, Policy)
    return policy


def test_it_orders_and_replays() -> None:
    policy = written()
    small, wide = (kind_of(ask_of(nodes, Shape(8))) for nodes in (1, 3))
    tasks = {task.id: task for task in (Task(0, "small", small, 0.0), Task(1, "wide", wide, 0.0), Task(2, "old", small, -3 * 86_400.0))}
    assert [task.id for task in ordered(Snapshot(10.0, gpu_nodes(4, 8), tasks, {}), policy)] == ["old", "wide", "small"]
    arrivals = tuple(Arrival(f"j{at}", float(at), 600.0, ask_of(1 + at % 3, Shape(8)), limit_s=900.0) for at in range(12))
    histories = Replay(Trace("page", arrivals, gpu_nodes(4, 8)), policy, Settings()).run()
    assert all(one.ended_s > one.started_s >= 0 for one in histories.values())


def test_every_file_that_it_names_is_there() -> None:
    words = {word.strip("`,.():;") for word in PAGE.read_text().split()}
    paths = [word for word in words if word.endswith(".py") and "/" in word]
    scheduling = ROOT / "src" / "trainmaster" / "scheduling"
    assert paths
    assert [path for path in paths if not ((ROOT / path).exists() or (scheduling / path).exists())] == []
