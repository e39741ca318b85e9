"""Whatever stands in a cluster file: it is refused with its places, or the rules hold. Never a traceback, never slowly."""

import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster_files import broken_mapping, documented, file, mapping, tree
from effort import examples

from trainmaster.errors import SpecError, UsageError
from trainmaster.model.cluster import UNBOUNDED, Cluster, Project, Quota
from trainmaster.model.job import Job
from trainmaster.model.nodes import Device, Node
from trainmaster.model.spec import Resources
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.convert import snapshot
from trainmaster.scheduling.policies.known import chosen
from trainmaster.server.cluster.rule_warnings import over, unkept
from trainmaster.spec.cluster.cluster_mapping import differences, to_mapping, to_yaml
from trainmaster.spec.cluster.document import from_mapping, load_bytes
from trainmaster.spec.cluster.summary import explain
from trainmaster.store.codec import dump, load
from trainmaster.testing import builders

CORPUS = documented()
FILES, PARTS = examples(2_000, 10_000), 10
NOW_S = 1.8e9
GPUS = {"n0": "a100", "n1": "a100", "n2": "h100"}
NODES = tuple(
    Node(name, "local", name, "127.0.0.1", 8.0, 2**36, tuple(Device(at, GPUS[name], 2**36) for at in range(2)) if name in GPUS else ())
    for name in ("n0", "n1", "n2", "n3")
)


def refused(data: bytes, error: SpecError, file: str | None = "cluster.yaml") -> None:
    """It names the file, a line and a column in it (what comes over REST has none), and what to do."""
    json.dumps(error.as_dict(), allow_nan=False).encode()
    told, lines = str(error), data.count(b"\n") + data.count(b"\r") + data.count(b"\xc2\x85") + data.count(b"\xe2\x80") + 2
    assert error.details
    assert told.isprintable() or set(filter(lambda one: not one.isprintable(), told)) <= {"\n"}, repr(told)
    assert "tm schema cluster" in error.hint or "tm plan FILE" in error.hint
    for fault in error.details:
        assert fault["file"] == file
        assert fault["message"]
        if file is None:
            continue
        assert 1 <= fault["line"] <= lines
        assert fault["column"] >= 1


def well_said(rules: Cluster) -> None:
    """The rules are the same after every way that they go, and can be told."""
    assert from_mapping(to_mapping(rules)) == rules
    assert load_bytes(to_yaml(rules).encode(), "back.yaml") == rules
    assert load(Cluster, dump(rules)) == rules
    json.dumps(to_mapping(rules), allow_nan=False).encode()
    told = [line for paragraph in explain(rules, NOW_S) for line in (paragraph.about, *paragraph.sentences)]
    told += [*differences(Cluster(), rules), *differences(rules, Cluster())]
    for line in told:
        assert line.isprintable(), repr(line)
        line.encode()
        assert line.strip()
    assert bool(differences(Cluster(), rules)) is (rules != Cluster())
    with contextlib.suppress(UsageError):  # guarantees beyond these nodes
        assert all(line.isprintable() for line in (*unkept(rules, NODES), *over(rules, NOW_S)))


def quota(project: Project, resource: str) -> Quota:
    return dict(project.quotas).get(resource, Quota())


def consistent(rules: Cluster) -> None:
    """All guarantees can be held at once within all limits, and every project has a line of parents."""
    inside: dict[str | None, list[Project]] = {}
    for one in rules.projects:
        inside.setdefault(one.parent, []).append(one)
    kinds = {name for one in rules.projects for name, _ in one.quotas} - {"gpus", "cpus"}

    def needed(one: Project, resource: str) -> float:
        below = sum(needed(child, resource) for child in inside.get(one.name, ()))
        of_kinds = sum(needed(one, kind) for kind in kinds) if resource == "gpus" else 0.0
        need = max(quota(one, resource).guarantee, below, of_kinds)
        assert need <= quota(one, resource).limit, (one.name, resource)
        assert not (need and one.running_max == 0), one.name
        return need

    for top in inside.get(None, ()):
        for resource in ("gpus", "cpus", *kinds):
            needed(top, resource)
    for one in rules.projects:
        assert len({above.name for above in rules.line(one.name)}) == len(rules.line(one.name))
        for resource, given in one.quotas:
            assert given.guarantee <= given.nominal <= given.limit
            bounds = [quota(above, name).limit for above in rules.line(one.name) for name in (resource, resource if resource == "cpus" else "gpus")]
            assert given.nominal <= min(bounds) or given.nominal == UNBOUNDED, (one.name, resource)


def jobs(rng: random.Random, rules: Cluster) -> Iterator[Job]:
    """A few jobs in the projects and classes that there are."""
    projects = [one.name for one in rules.projects] or ["any"]
    for seq in range(1, 7):
        asked = rng.choice([Resources(), Resources(gpus=1), Resources(gpus=2, gpu_kind="a100"), Resources(nodes=2, gpus=1), Resources(cpus=8)])
        limit_s = rng.choice([None, 60.0, 1e5])
        spec = builders.spec(project=rng.choice(projects), work=rng.choice(rules.classes).name, resources=asked, time_limit_s=limit_s)
        yield builders.job(id=f"j-{seq}", seq=seq, spec=spec, member=rng.choice("ab"), queued_s=NOW_S - 10 * seq)


def decided(rng: random.Random, rules: Cluster) -> None:
    """On a small cluster each job starts or has a reason, and what starts keeps to the quotas and limits."""
    waiting = list(jobs(rng, rules))
    seen = snapshot(NOW_S, NODES, waiting, [], rules)
    plan = cycle(seen, chosen(rules))
    starts = [placed.job for placed in plan.placements]
    held: Counter[tuple[str, str]] = Counter()
    for job in waiting:
        if job.id not in starts:
            assert plan.reason(seen.waiting[job.id], NOW_S).text.isprintable()
            continue
        asked = job.spec.resources
        for above in rules.line(job.spec.project):
            held[above.name, "gpus"] += asked.gpus * asked.nodes
            held[above.name, "jobs"] += 1
            held[above.name, "a100"] += asked.gpus * asked.nodes * (asked.gpu_kind == "a100")
    for one in rules.projects:
        assert held[one.name, "gpus"] <= quota(one, "gpus").limit
        assert held[one.name, "a100"] <= quota(one, "a100").limit
        assert one.running_max is None or held[one.name, "jobs"] <= one.running_max


def judged(seed: int) -> str:
    """What becomes of the file of this number. The assertion that fails names it."""
    rng = random.Random(seed)
    data = file(rng, CORPUS)
    began_s = time.process_time()
    try:
        rules = load_bytes(data, "cluster.yaml")
    except SpecError as error:
        refused(data, error)
        return "refused"
    finally:
        took_s = time.process_time() - began_s
        assert took_s < 1.0 + len(data) * 1e-4, f"{took_s:.1f} s for {len(data)} bytes"
    well_said(rules)
    consistent(rules)
    decided(rng, rules)
    return "holds" if rules != Cluster() else "says nothing"


def judged_mapping(seed: int) -> str:
    """The same of what REST is given in place of a file."""
    rng = random.Random(seed)
    value: object = mapping(rng)
    for _ in range(rng.randrange(4)):
        value = broken_mapping(rng, value)
    try:
        rules = from_mapping(value)
    except SpecError as error:
        refused(b"", error, None)
        return "refused"
    well_said(rules)
    consistent(rules)
    return "holds"


def test_the_files_of_the_documents_hold() -> None:
    assert len(CORPUS) >= 5
    for data in CORPUS:
        rules = load_bytes(data, "cluster.yaml")
        well_said(rules)
        consistent(rules)
        decided(random.Random(1), rules)


def made_of(projects: dict[str, Any]) -> Cluster:
    """The rules of a tree, without a check."""

    def quota_of(given: Any) -> Quota:
        given = given if isinstance(given, dict) else {"limit": given}
        limit = given.get("limit", UNBOUNDED)
        return Quota(given.get("guarantee", 0.0), given.get("nominal", given.get("guarantee", limit)), limit)

    return Cluster(projects=tuple(
        Project(name, parent=one.get("parent"), running_max=one.get("running"),
                quotas=tuple((kind, quota_of(given)) for kind, given in one["quota"].items()))
        for name, one in projects.items()
    ))  # fmt: skip


def test_quotas_are_refused_if_and_only_if_they_cannot_all_be_kept() -> None:
    found: Counter[str] = Counter()
    for seed in range(examples(2_000, 20_000)):
        rng = random.Random(seed)
        value, told = tree(rng), ""
        try:
            from_mapping(value)
        except SpecError as error:
            told = str(error)
        try:
            consistent(made_of(value["projects"]))
        except AssertionError:
            assert told, (seed, value)
            found["together" if "together" in told else "refused"] += 1
        else:
            assert not told, (seed, value, told)
            found["holds"] += 1
    assert min(found.values()) > 40, found


@pytest.mark.parametrize("part", range(PARTS))
def test_a_file_is_refused_with_its_places_or_its_rules_hold(part: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(part, FILES, PARTS):
        try:
            found[judged(seed)] += 1
            judged_mapping(seed)
        except BaseException as error:
            error.add_note(f"file {seed}: {file(random.Random(seed), CORPUS)[:3000]!r}")
            raise
    assert found["holds"] > FILES / PARTS * 0.15, found  # else the law is about nothing
    assert found["refused"] > FILES / PARTS * 0.15, found


def lines(head: str, line: Callable[[int], str], count: int) -> str:
    return "\n".join([head, *map(line, range(count))])


LARGE: dict[str, Callable[[int], str]] = {
    "projects inside one": lambda n: lines(
        "projects:\n  r: {quota: {gpus: 999999}}", lambda i: f"  p{i}: {{parent: r, quota: {{gpus: {{guarantee: 1}}}}}}", n
    ),
    "a chain of projects": lambda n: lines("projects:\n  p: {}", lambda i: f"  p{i}: {{parent: p{i - 1 if i else ''}}}", n),
    "a circle of projects": lambda n: lines("projects:", lambda i: f"  p{i}: {{parent: p{(i + 1) % n}}}", n),
    "no such parents": lambda n: lines("projects:", lambda i: f"  p{i}: {{parent: nobody-{i}}}", n),
    "kinds of GPU": lambda n: lines("projects:\n  p:\n    quota:\n      gpus: 999999", lambda i: f"      k{i}: {{guarantee: 1}}", n),
    "pools": lambda n: lines("pools:", lambda i: f"  p{i}: {{nodes: n{i}, policy: {['easy', 'fifo'][i % 2]}}}", n),
    "classes": lambda n: lines("projects: {p: {}}\nclasses:", lambda i: f"  c{i}: {{priority: {i}, projects: [p], members: [m]}}", n),
    "classes for no such projects": lambda n: lines("projects: {p: {}}\nclasses:", lambda i: f"  c{i}: {{projects: [q{i}]}}", n),
    "members": lambda n: f"projects: {{p: {{members: [{', '.join(f'm{i}' for i in range(n))}]}}}}",
    "unknown fields": lambda n: lines("pools:", lambda i: f"  p{i}: {{node: x}}", n),
    "duplicate keys": lambda n: "currency: EUR\n" * n,
    "aliases": lambda n: f"pools: {{a: &a {{price: 2}}, {', '.join(f'b{i}: *a' for i in range(n))}}}",
    "a long name": lambda n: f"pools: {{{'x ' * 50 * n}: {{}}}}",
    "a long pattern": lambda n: f"pools: {{p: {{nodes: '{'*a' * 50 * n}'}}}}",
    "brackets": lambda n: "[" * 50 * n,
}


@pytest.mark.parametrize("name", LARGE)
def test_a_file_four_times_as_large_takes_no_more_than_a_few_times_as_long(name: str) -> None:
    def seconds(count: int) -> float:
        data, began_s = LARGE[name](count).encode(), time.process_time()
        try:
            rules = load_bytes(data, "cluster.yaml")
        except SpecError as error:
            refused(data, error)
        else:
            well_said(rules)
        return time.process_time() - began_s

    small = examples(250, 1_000)  # more pools, written out in full, are more than the 50,000 values that a file may have
    assert min(seconds(4 * small) for _ in range(2)) < 9 * min(seconds(small) for _ in range(2)) + 0.1  # squared: 16 times
