"""cluster.yaml: its meaning, the file written from it, and errors with position and suggestion."""

import random
from dataclasses import replace
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_spec_mutations import MUTATIONS, Mutation

from trainmaster.errors import SpecError
from trainmaster.model.cluster import CLASSES, UNBOUNDED, Access, Cluster, Pool, Project, Quota, Weights, Window, Work
from trainmaster.spec.cluster.cluster_mapping import differences, to_mapping, to_yaml
from trainmaster.spec.cluster.document import from_mapping, is_cluster, load_bytes
from trainmaster.spec.cluster.fields import ClusterFields
from trainmaster.spec.cluster.summary import explain
from trainmaster.spec.document import RULES
from trainmaster.spec.document import load_bytes as load_spec
from trainmaster.spec.fields.job_fields import JobFields
from trainmaster.store.codec import dump, load

RIGHT = """# a whole cluster
pools:
  a100:
    nodes: ["a-*"]
    labels: {zone: eu}
    node_labels: {"a-0[1-4]": {rack: r1}}
    price: 2.5
    policy: easy
    maintenance: [Sun 22:00/4h, {when: "2026-12-01T22:00+01:00/4h", nodes: a-01, reason: new switches}]
  cpu: {nodes: "c-*", policy: easy}
projects:
  research: {}
  vision:
    weight: 2
    parent: research
    members: {ann: 2, bob: 1}
    quota: {a100: {guarantee: 4, nominal: 8, limit: 16}, gpus: 16, cpus: {guarantee: 3}}
    running: 20
    running_per_member: 5
    urgent: [ann]
classes:
  production: {projects: [vision], members: []}
  interactive: {priority: 2500, preemptible: yes, express: {gpus: 2, limit: 20m}}
  nightly: {priority: -50}
fair_share: {half_life: 3d}
multifactor: {class: 2000, priority: 0, size: -0.5, age_max: 2d}
preemption: {min_run: 0}
currency: EUR
"""
WHOLE = Cluster(
    (
        Pool(
            "a100",
            ("a-*",),
            (("zone", "eu"),),
            (("a-0[1-4]", (("rack", "r1"),)),),
            2.5,
            "easy",
            (
                Window(338400.0, 352800.0, every_s=604800.0),  # the first Sunday of the epoch, 4 January 1970, 22:00
                Window(1796158800.0, 1796173200.0, ("a-01",), "new switches"),
            ),
        ),
        Pool("cpu", ("c-*",), policy="easy"),
    ),
    (
        Project("research"),
        Project(
            "vision",
            2.0,
            "research",
            (("ann", 2.0), ("bob", 1.0)),
            (("a100", Quota(4.0, 8.0, 16.0)), ("gpus", Quota(0.0, 16.0, 16.0)), ("cpus", Quota(3.0, 3.0, UNBOUNDED))),
            20,
            5,
            ("ann",),
        ),
    ),
    (
        replace(CLASSES[0], access=Access(("vision",), ())),
        Work("interactive", 2500, wait_target_s=60.0, slice_s=1800.0, express_gpus=2.0, express_limit_s=1200.0),
        *CLASSES[2:],
        Work("nightly", -50),
    ),
    259200.0,
    0.0,
    "EUR",
    Weights(2000.0, 0.0, 1000.0, 1000.0, -0.5, 172_800.0),
)


def test_a_whole_file_and_back() -> None:
    read = load_bytes(RIGHT.encode(), "cluster.yaml")
    assert read == WHOLE
    assert from_mapping(to_mapping(read)) == read
    assert load_bytes(to_yaml(read).encode(), "back.yaml") == read
    assert load(Cluster, dump(read)) == read


@pytest.mark.parametrize("text", ["", "{}", "# nothing\n"])
def test_an_empty_file_is_every_default(text: str) -> None:
    assert load_bytes(text.encode(), "cluster.yaml") == Cluster()
    assert load_bytes(to_yaml(Cluster()).encode(), "back.yaml") == Cluster()


# (text of the file, [(field, line, column, nearest)])
TABLE = {
    "a list": ("- a\n", [("", 1, 1, None)]),
    "unknown at the top": ("polls: {}\n", [("polls", 1, 1, "pools")]),
    "by habit": ("queues: {}\n", [("queues", 1, 1, "projects")]),
    "unknown in a pool": ("pools:\n  a: {node: x}\n", [("pools.a.node", 2, 7, "nodes")]),
    "unknown in a quota": ("projects: {v: {quota: {gpus: {max: 2}}}}\n", [("projects.v.quota.gpus.max", 1, 31, "limit")]),
    "unknown in a window": ("pools: {a: {maintenance: [{wen: x}]}}\n", [("pools.a.maintenance[0].wen", 1, 28, "when")]),
    "no such policy": ("pools: {a: {policy: eazy}}\n", [("pools.a.policy", 1, 21, "easy")]),
    "a policy of simulations": ("pools: {a: {policy: srtf}}\n", [("pools.a.policy", 1, 21, None)]),
    "no such resource": ("projects: {v: {quota: {gpu: 2}}}\n", [("projects.v.quota.gpu", 1, 24, "gpus")]),
    "a kind in capitals": ("projects: {v: {quota: {A100: 2}}}\n", [("projects.v.quota.A100", 1, 24, "a100")]),
    "order of a quota": ("projects: {v: {quota: {gpus: {guarantee: 4, limit: 2}}}}\n", [("projects.v.quota.gpus.nominal", 1, 30, None)]),
    "more guaranteed than its own": ("projects: {v: {quota: {gpus: {guarantee: 4, nominal: 2}}}}\n",
                                     [("projects.v.quota.gpus.guarantee", 1, 42, None)]),
    "a negative amount": ("projects: {v: {quota: {gpus: -1}}}\n", [("projects.v.quota.gpus.limit", 1, 30, None)]),
    "a weight of nothing": ("projects: {v: {weight: 0}}\n", [("projects.v.weight", 1, 24, None)]),
    "a weight in quotes": ("projects: {v: {weight: '2'}}\n", [("projects.v.weight", 1, 24, "2")]),
    "no such parent": ("projects: {research: {}, v: {parent: reserch}}\n", [("projects.v.parent", 1, 38, "research")]),
    "its own parent": ("projects: {v: {parent: v}}\n", [("projects.v.parent", 1, 24, None)]),
    "a circle": ("projects:\n  a: {parent: b}\n  b: {parent: a}\n", [("projects.a.parent", 2, 15, None), ("projects.b.parent", 3, 15, None)]),
    "no window": ("pools: {a: {maintenance: soon}}\n", [("pools.a.maintenance[0].when", 1, 26, None)]),
    "a window without a length": ("pools: {a: {maintenance: 'Sun 22:00'}}\n", [("pools.a.maintenance[0].when", 1, 26, "Sun 22:00/4h")]),
    "no such day": ("pools: {a: {maintenance: 'Fun 22:00/4h'}}\n", [("pools.a.maintenance[0].when", 1, 26, None)]),
    "no such date": ("pools: {a: {maintenance: 2026-02-30T22:00/4h}}\n", [("pools.a.maintenance[0].when", 1, 26, None)]),
    "a window without an end": ("pools: {a: {maintenance: 'daily 22:00/24h'}}\n", [("pools.a.maintenance[0].when", 1, 26, None)]),
    "a window without a time": ("pools: {a: {maintenance: [{reason: x}]}}\n", [("pools.a.maintenance[0]", 1, 27, None)]),
    "a slice of what is never stopped": ("classes: {x: {preemptible: false, time_slice: 5m}}\n", [("classes.x.time_slice", 1, 47, None)]),
    "half an express lane": ("classes: {x: {express: {gpus: 2}}}\n", [("classes.x.express", 1, 24, None)]),
    "neither true nor false": ("classes: {x: {preemptible: maybe}}\n", [("classes.x.preemptible", 1, 28, None)]),
    "a priority beyond all": ("classes: {x: {priority: 1000000}}\n", [("classes.x.priority", 1, 25, "100000")]),
    "a currency in small letters": ("currency: eur\n", [("currency", 1, 11, "EUR")]),
    "no half-life": ("fair_share: {half_life: 0}\n", [("fair_share.half_life", 1, 25, None)]),
    "a factor by another name": ("multifactor: {clas: 1}\n", [("multifactor.clas", 1, 15, "class")]),
    "a weight that is no number": ("multifactor: {class: high}\n", [("multifactor.class", 1, 22, None)]),
    "a weight beyond all": ("multifactor: {age: 1e12}\n", [("multifactor.age", 1, 20, None)]),
    "a wait of nothing": ("multifactor: {age_max: 0}\n", [("multifactor.age_max", 1, 24, None)]),
    "a list of pools": ("pools: [a, b]\n", [("pools", 1, 8, None)]),
    "a class for no such project": ("projects: {v: {}}\nclasses: {x: {projects: [w]}}\n", [("classes.x.projects[0]", 2, 26, None)]),
    "a class for a misspelt project": ("projects: {vision: {}}\nclasses: {x: {projects: visoin}}\n", [("classes.x.projects[0]", 2, 25, "vision")]),
    "a class for nothing": ("classes: {x: {members: }}\n", [("classes.x.members", 1, 24, None)]),
    "a class for all": ("classes: {x: {projects: all}}\n", [("classes.x.projects", 1, 25, None)]),
    "a window of part of a second": ("pools: {a: {maintenance: Sun 22:00/0.5s}}\n", [("pools.a.maintenance[0].when", 1, 26, None)]),
    "an invisible name": ('"pools\\t": {}\n', [("pools\\t", 1, 1, "pools")]),
    "twice": ("currency: EUR\ncurrency: EUR\n", [("currency", 2, 1, None)]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TABLE.values(), ids=list(TABLE))
def test_every_fault_has_its_place_and_what_was_meant(text: str, expected: list[tuple[str, int, int, str | None]]) -> None:
    with pytest.raises(SpecError) as caught:
        load_bytes(text.encode(), "cluster.yaml")
    found = [(fault["field"], fault["line"], fault["column"], fault["nearest"]) for fault in caught.value.details]
    assert found == expected
    assert all(fault["file"] == "cluster.yaml" and fault["message"] for fault in caught.value.details)


def outcome(data: bytes) -> Cluster | list[dict[str, Any]]:
    """The cluster, or the faults; whatever else is raised is a defect."""
    try:
        return load_bytes(data, "cluster.yaml")
    except SpecError as error:
        return error.details


@settings(max_examples=examples(150, 1000), deadline=None)
@given(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_a_broken_file_is_answered_with_its_places(mutations: list[Mutation], rng: random.Random) -> None:
    lines = RIGHT.splitlines()
    for mutation in mutations:
        lines = mutation(rng, lines).split("\n")
    found = outcome("\n".join(lines).encode())
    if isinstance(found, Cluster):
        assert from_mapping(to_mapping(found)) == found
        assert load_bytes(to_yaml(found).encode(), "back.yaml") == found
    else:
        assert found
        assert [(fault["file"], fault["line"] >= 1, fault["column"] >= 1) for fault in found] == [
            ("cluster.yaml", True, True)
        ] * len(found)


def test_a_file_is_told_from_a_job_by_its_names() -> None:
    assert is_cluster(RIGHT.encode(), "cluster.yaml")
    assert is_cluster(b"{}\n", "cluster.yaml")
    assert not is_cluster(b"", "train.yaml")
    assert not is_cluster(b"command: x\nclasses: {}\n", "train.yaml")
    assert not is_cluster(b"nam: x\n", "train.yaml")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("pool: {a: {}}\n", "pools"), ("polls: {a: {}}\n", "pools"), ("project: {vision: {}}\n", "projects"),
        ("class: {x: {}}\n", "classes"), ("queues: {vision: {}}\n", "projects"), ("preemtion: {min_run: 5m}\n", "preemption"),
    ],
)  # fmt: skip
def test_a_misspelt_name_at_the_top_is_still_one_of_a_cluster(text: str, meant: str) -> None:
    assert is_cluster(text.encode(), "cluster.yaml")
    with pytest.raises(SpecError) as caught:
        load_bytes(text.encode(), "cluster.yaml")
    assert caught.value.message == f"cluster.yaml:1:1: {text.partition(':')[0]}: unknown field; did you mean {meant!r}?"


@pytest.mark.parametrize("name", [field.alias or name for name, field in JobFields.model_fields.items()])
def test_a_job_s_fields_are_none_of_a_cluster(name: str) -> None:
    assert not is_cluster(f"{name}: x\n".encode(), "train.yaml")
    assert name in ("project", "class") or not is_cluster(f"{name}: {{}}\n".encode(), "train.yaml")
    with pytest.raises(SpecError, match=r"this is a cluster\.yaml, not a job"):
        load_spec(RIGHT.encode(), "cluster.yaml")


@pytest.mark.parametrize("text", ["classes: {x: {}}\n", "fair_share: {half_life: 3d}\ncurrency: EUR\n", "pools: {}\nnam: x\n"])
def test_rules_that_are_handed_in_as_a_job_are_told_apart(text: str) -> None:
    with pytest.raises(SpecError, match=r"this is a cluster\.yaml, not a job") as caught:
        load_spec(text.encode(), "cluster.yaml")
    assert "to apply it: tm apply FILE" in str(caught.value.hint)
    assert frozenset(ClusterFields.model_fields) == RULES


@pytest.mark.parametrize("text", ["command: x\n", "python: m:f\nplacement: {pool: a}\n", "command: x\nclasses: {}\n"])
def test_a_job_that_is_laid_down_as_rules_is_told_apart(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_bytes(text.encode(), "job.yaml")
    assert caught.value.message == "job.yaml:1:1: this is a job's spec, not a cluster.yaml: it has a command"
    assert caught.value.hint == "to see what it would do: tm plan FILE   to submit it: tm submit FILE"


@pytest.mark.parametrize("word", ["yes", "true", "no", "all", "On"])
def test_who_may_call_a_job_urgent_is_named(word: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_bytes(f"projects: {{v: {{urgent: {word}}}}}\n".encode(), "c.yaml")
    assert "expected users' names: ['*'] is every member" in caught.value.message
    assert load_bytes(f"projects: {{v: {{urgent: ['{word}']}}}}\n".encode(), "c.yaml").project("v").urgent == (word,)


def test_what_is_otherwise_is_a_line_for_each_field() -> None:
    before = from_mapping({"pools": {"a": {"price": 2}, "b": {}}, "projects": {"v": {"weight": 2}, "w": {}}})
    after = from_mapping({"pools": {"b": {}, "a": {"price": 3}}, "projects": {"v": {"weight": 2, "running": 4}}})
    assert differences(before, after) == [
        "pools.a.price: 3 (was 2)",
        "projects.w: removed (was as by default)",
        "projects.v.running: 4 (new)",
        "pools: matched in the order b, a (was a, b)",
    ]
    assert differences(before, before) == []


@settings(max_examples=examples(60, 500), deadline=None)
@given(st.integers(0, 3), st.integers(0, 4), st.booleans())
def test_rules_that_differ_are_told_apart(weight: int, limit: int, preemptible: bool) -> None:
    """The file, the differences and the plain words all see a change of the rules, or none of them does."""
    other = {
        "projects": {"v": {"weight": weight + 1, "quota": {"gpus": limit}}},
        "classes": {"x": {"preemptible": preemptible}},
    }
    one = from_mapping({"projects": {"v": {"weight": 1, "quota": {"gpus": 0}}}, "classes": {"x": {}}})
    two = from_mapping(other)
    assert (one == two) is (differences(one, two) == []) is (to_yaml(one) == to_yaml(two))


def test_the_rules_in_plain_language_are_those_of_the_file() -> None:
    said = {paragraph.about: paragraph.sentences for paragraph in explain(WHOLE, 1.79e9)}
    assert said["order"][0] == "easy: higher priority first, then earlier submission"
    assert said["pool a100"] == (
        "the nodes a-*",
        "2.5 EUR per GPU and hour (per CPU and hour if it has no GPUs)",
        "labels: zone eu, rack r1 on a-0[1-4]",
        "maintenance Sun 22:00 UTC for 4 h: only jobs that end before it, or have no time limit, start there",
        "maintenance 2026-12-01T21:00 UTC for 4 h on a-01 (new switches): only jobs that end before it, or have no time limit, start there",
    )
    later = {paragraph.about: paragraph.sentences for paragraph in explain(WHOLE, 1.80e9)}
    assert later["pool a100"][3:] == (
        "maintenance Sun 22:00 UTC for 4 h: only jobs that end before it, or have no time limit, start there",
        "maintenance 2026-12-01T21:00 UTC for 4 h on a-01 (new switches): it is past",
    )
    assert said["project vision"] == (
        "is part of research",
        "4 a100 are guaranteed: never lent",
        "8 a100 are its quota: lent while idle, taken back when it needs them",
        "may borrow a100 up to 16 in total",
        "16 gpus are its quota: lent while idle, taken back when it needs them",
        "borrows no gpus",
        "3 cpus are guaranteed: never lent",
        "may borrow unlimited cpus",
        "runs at most 20 jobs at a time",
        "runs at most 5 jobs per member at a time",
        "members: ann (weight 2), bob (weight 1)",
        "ann may call a job urgent",
    )


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("fifo", "jobs that fit start; nothing is reserved for jobs ahead that do not fit"),
        ("easy", "resources are reserved for the first that cannot start; other jobs start only if they delay none of these"),
        ("conservative", "resources are reserved for each that cannot start; other jobs start only if they delay none of these"),
    ],
)
def test_for_how_many_room_is_kept_is_told(policy: str, said: str) -> None:
    assert said in explain(from_mapping({"pools": {"a": {"policy": policy}}}), 0.0)[0].sentences


@given(st.floats(0, 3e9), st.integers(0, 2))
def test_a_window_comes_again_and_is_never_over_before_its_end(now_s: float, kind: int) -> None:
    window = (Window(338400.0, 352800.0, every_s=604800.0), Window(10800.0, 12600.0, every_s=86400.0), Window(1e9, 1e9 + 5))[
        kind
    ]
    turn = window.turn(now_s)
    if turn is None:
        assert not window.every_s
        assert now_s >= window.until_s
        return
    from_s, until_s = turn
    assert until_s > now_s
    assert until_s - from_s == window.until_s - window.from_s
    if window.every_s:
        assert (from_s - window.from_s) % window.every_s == 0
        assert until_s - window.every_s <= now_s or from_s == window.from_s


def test_a_node_is_in_the_first_pool_that_matches_and_closes_when_its_window_begins() -> None:
    rules = from_mapping({"pools": {"a": {"nodes": "n-1*", "maintenance": "daily 03:00/1h"}, "b": {"nodes": ["n-*"]}}})
    assert [rules.pool_of(name, "own").name for name in ("n-1", "n-12", "n-2", "x")] == ["a", "a", "b", "own"]
    pool = rules.pool_of("n-1", "own")
    at = [pool.closes_s("n-1", now_s) for now_s in (0.0, 10_800.0, 14_399.0, 14_400.0)]
    assert at == [10_800.0, 10_800.0, 10_800.0, 97_200.0]
    assert [pool.holds_s(now_s) for now_s in (0.0, 14_400.0)] == [14_400.0, 100_800.0]
    assert rules.pool("b").closes_s("n-2", 0.0) == UNBOUNDED
