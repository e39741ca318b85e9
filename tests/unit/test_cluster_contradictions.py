"""cluster.yaml: what contradicts each other in it, and that it is the same after it was sent or written."""

import pytest

from trainmaster.errors import SpecError
from trainmaster.spec.cluster.cluster_mapping import to_mapping, to_yaml
from trainmaster.spec.cluster.contradictions import guaranteed
from trainmaster.spec.cluster.document import from_mapping, load_bytes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p: {quota: {gpus: 2}}\n  c: {parent: p, quota: {gpus: {guarantee: 4}}}",
         ["projects.c.quota.gpus.guarantee: 4 is more than the limit of projects.p.quota.gpus (line 2)"]),
        ("p: {}\n  c: {parent: p, quota: {gpus: 2}}\n  d: {parent: c, quota: {gpus: {nominal: 8, limit: 8}}}",
         ["projects.d.quota.gpus.nominal: 8 is more than the limit of projects.c.quota.gpus (line 3)"]),
        ("p: {quota: {gpus: 2}}\n  c: {parent: p, quota: {gpus: {guarantee: 2}}}\n  d: {parent: p, quota: {gpus: {guarantee: 1}}}",
         ["projects.p.quota.gpus.limit: 2 is less than the 3 that are guaranteed to projects.c (line 3) and projects.d (line 4) "
          "together"]),
        ("p: {running: 0}\n  c: {parent: p, quota: {gpus: {guarantee: 2}}}",
         ["projects.c.quota.gpus.guarantee: 2 are guaranteed, but projects.p.running (line 2) lets no job run"]),
        ("p: {quota: {gpus: 3, a100: {guarantee: 2}, h100: {guarantee: 2}}}",
         ["projects.p.quota.gpus.limit: 3 is less than the 4 that are guaranteed to projects.p.quota.a100 (line 2) and "
          "projects.p.quota.h100 (line 2) together"]),
        ("p: {quota: {gpus: 3, a100: {guarantee: 2}}}\n  c: {parent: p, quota: {h100: {guarantee: 2}}}",
         ["projects.p.quota.gpus.limit: 3 is less than the 4 that are guaranteed to projects.p.quota.a100 (line 2) and "
          "projects.c.quota.h100 (line 3) together"]),
        ("p: {quota: {gpus: 2, a100: {nominal: 8}}}",
         ["projects.p.quota.a100.nominal: 8 is more than the limit of projects.p.quota.gpus (line 2)"]),
    ],
)  # fmt: skip
def test_what_one_rule_promises_and_another_forbids_is_refused_with_both_lines(text: str, said: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        load_bytes(f"projects:\n  {text}\n".encode(), "c.yaml")
    assert [line.partition(": ")[2] for line in str(caught.value).splitlines()] == said


def test_guarantees_that_fit_inside_each_other_are_accepted() -> None:
    inside = "c: {parent: p, quota: {gpus: {guarantee: 4}}}\n  d: {parent: c, quota: {gpus: {guarantee: 3}}}"
    load_bytes(f"projects:\n  p: {{quota: {{gpus: 4}}}}\n  {inside}\n".encode(), "c.yaml")


def test_projects_are_inside_each_other_to_a_depth() -> None:
    text = "\n".join(["projects:", "  p0: {}", *(f"  p{n}: {{parent: p{n - 1}}}" for n in range(1, 23))])
    with pytest.raises(SpecError) as caught:
        load_bytes(text.encode(), "c.yaml")
    deep = "projects.p{}.parent: is inside of more than 20 others, the maximum"
    assert caught.value.message == f"c.yaml:23:17: {deep.format(21)}\nc.yaml:24:17: {deep.format(22)}"
    load_bytes(text.rpartition("\n")[0].rpartition("\n")[0].encode(), "c.yaml")


def test_what_is_no_yaml_is_answered_with_the_schema_of_a_cluster() -> None:
    """It named the fields of a job."""
    with pytest.raises(SpecError) as caught:
        load_bytes(b"pools: {a: [}\n", "c.yaml")
    assert caught.value.hint == "`tm schema cluster` lists every field."


@pytest.mark.parametrize("when", ["daily 03:00/30m", "0031-12-01T22:00/4h", "9999-12-31T23:59:58/1s"])
def test_a_window_is_the_same_after_it_was_sent(when: str) -> None:
    """Of one on no node, `tm apply` made one on all; one of the year 31 could not be read again."""
    for nodes in ([], ["*"], ["a"]):
        rules = from_mapping({"pools": {"a": {"maintenance": [{"when": when, "nodes": nodes}]}}})
        assert from_mapping(to_mapping(rules)) == load_bytes(to_yaml(rules).encode(), "back.yaml") == rules
        assert rules.pools[0].windows[0].nodes == tuple(nodes)


@pytest.mark.parametrize("seconds", [1e-300, 0.00001, 1.0000001, 90.123456789])
def test_a_span_that_no_text_says_exactly_is_the_same_after_it_was_sent(seconds: float) -> None:
    rules = from_mapping({"preemption": {"min_run": seconds}})
    assert (rules.min_run_s, from_mapping(to_mapping(rules))) == (seconds, rules)


def test_what_is_guaranteed_in_all_counts_what_is_inside_and_each_kind() -> None:
    """A parent with 1 and children with 3 each counted as 1, and the GPUs of one kind not at all."""
    inside = {"parent": "p", "quota": {"gpus": {"guarantee": 3}}}
    projects = {"p": {"quota": {"gpus": {"guarantee": 1}}}, "c": inside, "d": inside, "e": {"quota": {"a100": {"guarantee": 2}}}}
    assert guaranteed(from_mapping({"projects": projects})) == {"gpus": 8.0, "a100": 2.0}
