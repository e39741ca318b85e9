"""Contract suite for the cluster rules in an event store, to subclass."""

from collections.abc import Callable

from trainmaster.model.cluster import Cluster, Pool, Project, Quota
from trainmaster.model.events import ClusterConfigured
from trainmaster.ports.store import EventStore, NewEvent

OpenEvents = Callable[..., EventStore]
SOME_RULES = (
    Cluster(currency="EUR", min_run_s=2.0),
    Cluster(
        (Pool("some", ("n*",), (("zone", "eu"),), price=2.5, speed=2.0),),
        (Project("vision", 2.0, quotas=(("gpus", Quota(0.0, 2.0)),), urgent=("ann",)),),
        half_life_s=600.0,
    ),
)


class ClusterRulesContract:
    """Fixture: `open_events(read_only=False)` -> EventStore."""

    def test_the_rules_are_those_that_were_laid_down_last(self, open_events: OpenEvents) -> None:
        store = open_events()
        assert store.rules() == Cluster()
        store.append(1.0, [NewEvent(None, None, ClusterConfigured(rules, "ada")) for rules in SOME_RULES], {}, [], 0)
        assert store.rules() == SOME_RULES[1]
        store.append(2.0, [NewEvent(None, None, ClusterConfigured(SOME_RULES[0], "bob"))], {}, [], 0)
        again = open_events(read_only=True)
        assert again.rules() == again.load_live().rules == SOME_RULES[0]
        said = [(recorded.event, recorded.job) for recorded in again.events(0, 10)]
        assert said == [
            (ClusterConfigured(SOME_RULES[0], "ada"), None),
            (ClusterConfigured(SOME_RULES[1], "ada"), None),
            (ClusterConfigured(SOME_RULES[0], "bob"), None),
        ]
