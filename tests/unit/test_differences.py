"""Comparison of runs: only differences, unknown values are not equal, and the ranking by metrics."""

from dataclasses import replace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.cli.inspect.compare import differences, standing
from trainmaster.cli.inspect.comparison_page import html
from trainmaster.model.checkpoints import Checkpoint
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.nodes import Allocation
from trainmaster.model.spec import CodeCopy, MetricsSpec, Mode, Role
from trainmaster.ports.metric_store import MetricStore
from trainmaster.ports.store import EventStore
from trainmaster.server.record.curves import Curves
from trainmaster.server.record.differences import Difference, Run, compare, flattened
from trainmaster.server.record.ranking import MetricRanking, mode_of, primary_of, rank_metrics
from trainmaster.testing.builders import job, placed
from trainmaster.wire.code import Tree
from trainmaster.wire.environment import EnvironmentRecord

RECORD: EnvironmentRecord = {
    "python": {"path": "/env/bin/python", "version": "3.11.9"}, "packages": {"torch": "2.13.0", "numpy": "2.1.0"}, "editable": [],
    "torch": {"version": "2.13.0", "cuda": None, "hip": None},
    "machine": {
        "host": "lab", "system": "Debian", "kernel": "6.1", "architecture": "x86_64", "libc": "2.36", "cpu": "Xeon", "cpus": 2,
        "memory_bytes": 2**34, "driver": None, "driver_cuda": None, "devices": [],
    },
}  # fmt: skip
RECORDED = ("python", "packages", "hardware", "machine")


def tree(**files: str) -> Tree:
    return {"entries": [{"path": p, "type": "file", "sha256": s * 64, "mode": 0o644, "bytes": 1} for p, s in files.items()]}


def run(number: int = 1, record: Any = RECORD, code: Tree | None = None, **spec: Any) -> Run:
    value = placed(job(code=CodeCopy("d" * 64)))
    value = replace(value, id=f"train-{number}", spec=replace(value.spec, **spec))
    return Run(value, (record,), code if code is not None else tree(a="0"))


def told(runs: list[Run]) -> list[tuple[str, str, list[Any]]]:
    return [(one.section, one.field, one.values) for one in compare(runs).fields]


def test_equal_runs_differ_in_nothing() -> None:
    assert compare([run(1), run(2)]).fields == []
    assert compare([run(1), run(2)]).unknown == {}
    assert all(one.equal for one in compare([run(1), run(2)], everything=True).fields)


def test_only_what_differs_is_told() -> None:
    packages = {"torch": "2.13.0", "scikit-learn": "1.7"}
    other: Any = {**RECORD, "packages": packages, "editable": ["torch"], "machine": {**RECORD["machine"], "cpu": "EPYC"}}
    runs = [
        run(1, params={"lr": 0.1, "seed": 1}, tags={"owner": "ann"}),
        run(2, other, tree(a="1", b="0"), params={"lr": 0.2, "seed": 1}),
    ]
    assert told(runs) == [
        ("params", "lr", [0.1, 0.2]),
        ("tags", "owner", ["ann", None]),
        ("files", "a", ["0" * 12, "1" * 12]),
        ("files", "b", [None, "0" * 12]),
        ("packages", "numpy", ["2.1.0", None]),
        ("packages", "torch", ["2.13.0", "2.13.0 (editable)"]),
        ("packages", "scikit-learn", [None, "1.7"]),
        ("machine", "cpu", ["Xeon", "EPYC"]),
    ]


def test_a_value_of_another_type_is_another_value() -> None:
    assert told([run(1, params={"a": 1}), run(2, params={"a": True}), run(3, params={"a": 1.0})]) == [
        ("params", "a", [1, True, 1.0])
    ]
    assert told([run(1, params={"a": float("nan")}), run(2, params={"a": float("nan")})]) == []


def test_a_parameter_that_is_null_is_another_than_none() -> None:
    """`{x}` in a command becomes null, or stays as it is."""
    runs = [run(1, params={"x": None, "api_key": None}), run(2), run(3, params={"x": "null"})]
    assert told(runs) == [("params", "x", ["(null)", None, "null"]), ("params", "api_key", ["(null)", None, None])]
    assert told([runs[0], runs[0]]) == []


def test_parameters_that_the_program_logged_are_compared() -> None:
    """Runs whose programs logged other seeds were told to have the same parameters."""

    def logged(number: int, **params: str) -> Run:
        one = run(number)
        return replace(one, job=replace(one.job, run_params=params))

    runs = [logged(1, seed="1", token="a"), logged(2, seed="2", token="b"), logged(3)]
    assert told(runs) == [("logged", "seed", ["1", "2", None]), ("logged", "token", ["(hidden) 1", "(hidden) 2", None])]
    assert told([runs[0], runs[0]]) == []
    answer = {"jobs": [{"id": "a"}, {"id": "b"}], "unknown": {}, "differences": [
        {"section": "logged", "field": "seed", "values": ["1", "2"], "equal": False},
    ]}  # fmt: skip
    assert differences(answer) == ["", "Parameters and tags that the program logged", "        a  b", "  seed  1  2"]


def test_logged_values_are_compared_as_they_are_and_shown_without_credentials() -> None:
    """Both were masked to one text by the value of a variable, and told to be equal; logged data sets were not compared at all."""

    def logged(number: int, key: str) -> Run:
        one = run(number, environment=replace(job().spec.environment, variables={"SORT_KEY": key}))
        tags = {"dataset.train": f"mnist {number}", "mlflow.user": f"ann{number}", "fold/mlflow.runName": str(number)}
        return replace(one, job=replace(one.job, run_params={"criterion": f"{key}_v1"}, run_tags=tags))

    found = told([logged(1, "loss"), logged(2, "accu")])
    masked = ["(hidden)_v1  # hidden: 1", "(hidden)_v1  # hidden: 2"]
    assert ("logged", "criterion", masked) in found
    assert ("logged", "tag dataset.train", ["mnist 1", "mnist 2"]) in found
    assert "mlflow" not in str(found)


def test_what_nobody_recorded_is_unknown_and_not_equal() -> None:
    found = compare([run(1), run(2, record="the record is lost")])
    assert found.unknown == {name: {"train-2": "the record is lost"} for name in RECORDED}
    assert "packages" not in {one.section for one in found.fields}


def on(number: int, *nodes: tuple[str, list[str]], devices: tuple[int, ...] = (0,)) -> Run:
    """A run with these devices of each node, whose host and devices its agents recorded."""
    value = placed(job(code=CodeCopy("d" * 64)), nodes=tuple(f"node{at}" for at in range(len(nodes))))
    assert value.attempt is not None
    shares = tuple(replace(share, devices=devices) for share in value.attempt.allocation.shares)
    value = replace(value, id=f"train-{number}", attempt=replace(value.attempt, allocation=Allocation(shares)))
    machines = [
        {**RECORD["machine"], "host": host, "devices": [{"index": n, "name": name, "uuid": ""} for n, name in enumerate(names)]}
        for host, names in nodes
    ]
    return Run(value, tuple({**RECORD, "machine": machine} for machine in machines), tree(a="0"))  # type: ignore[typeddict-item]


def test_hardware_is_what_the_attempts_recorded() -> None:
    """The inventory of a node is that of now: a card that was swapped between two runs was the same in both."""
    old, new = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
    assert told([on(1, ("lab", [old])), on(2, ("lab", [new]))]) == [("hardware", "devices", [[old], [new]])]
    mixed, gang = on(1, ("lab", [old, new]), devices=(1,)), on(2, ("lab", [new]), ("annex", [old]))
    assert told([mixed, on(2, ("lab", [new]))]) == [], "the device that it held counts"
    assert told([mixed, gang]) == [
        ("hardware", "nodes", [1, 2]), ("hardware", "devices", [[new], [new, old]]), ("hardware", "host", [["lab"], ["annex", "lab"]]),
    ]  # fmt: skip


def test_hardware_that_some_node_did_not_record_is_unknown() -> None:
    known, gang = on(1, ("lab", ["NVIDIA L4"])), on(2, ("lab", ["NVIDIA L4"]), ("annex", ["NVIDIA L4"]))
    half, unnamed = replace(gang, environments=(gang.environments[0], "lost")), "the record does not name its devices"
    for other, why in ((half, "lost"), (on(2, ("lab", [])), unnamed), (on(2, ("lab", ["unknown"])), unnamed)):
        found = compare([known, other])
        assert (found.fields, found.unknown) == ([], {"hardware": {"train-2": why}})
    others = compare([known, replace(gang, environments=("lost", gang.environments[1]))]).unknown
    assert others == {name: {"train-2": "lost"} for name in RECORDED}, "no other node stands in for the first"


def test_the_same_program_written_otherwise_does_not_differ() -> None:
    """A command as a line or as argv, and `python` or `python3` of one environment, are the same program."""
    other: Any = {**RECORD, "python": {"path": "/env/bin/python3.11", "version": "3.11.9"}}
    roles = [{"watch": Role(command)} for command in ("tail -f x", ("tail", "-f", "x"))]
    assert (
        told([run(1, command="python 'a b.py'", roles=roles[0]), run(2, other, command=("python", "a b.py"), roles=roles[1])])
        == []
    )
    assert told([run(1, command="python a b"), run(2, command=("python", "a b"))]) == [
        ("spec", "command", ["python a b", "python 'a b'"])
    ]  # fmt: skip
    elsewhere: Any = {**RECORD, "python": {"path": "/other/bin/python3", "version": "3.11.9"}}
    assert told([run(1), run(2, elsewhere)]) == [("python", "path", ["/env/bin/python", "/other/bin/python3"])]


def test_what_torch_was_built_for_is_named() -> None:
    built: list[Any] = [{"cuda": "13.0", "hip": None}, {"cuda": None, "hip": "6.4"}, {"cuda": None, "hip": None}]
    runs = [run(n, {**RECORD, "torch": {"version": "2.13.0", **one}}) for n, one in enumerate(built)]
    assert told(runs) == [("python", "torch built for", ["CUDA 13.0", "ROCm 6.4", "CPU"])]


def test_another_start_is_a_difference() -> None:
    """A run that continues from a checkpoint is not the same as one from the beginning, nor as one from another checkpoint."""

    def fork(number: int, step: int) -> Run:
        one = run(number)
        lineage = Lineage(Relation.FORK, "p-1", Checkpoint(f"1-{step}", step, 1, ()), "p-1")
        return replace(one, job=replace(one.job, lineage=lineage))

    assert told([run(1), fork(2, 2), fork(3, 5)]) == [("start", "checkpoint", [None, "1-2 of p-1, step 2", "1-5 of p-1, step 5"])]
    assert told([fork(1, 2), fork(2, 2)]) == []


def test_other_patches_of_one_commit_differ_in_place() -> None:
    def changed(number: int, **origin: Any) -> Run:
        one = run(number)
        place = replace(one.job.origin, git_commit="c" * 40, git_dirty=True, **origin)
        return replace(one, tree="no copy", job=replace(one.job, code=CodeCopy(in_place=True), origin=place))

    one, other = changed(1, git_diff="a" * 64), changed(2, git_diff="b" * 64)
    assert told([one, other]) == [("code", "git patch", ["a" * 12, "b" * 12])]
    assert compare([one, other]).unknown == {"files": {"train-1": "no copy", "train-2": "no copy"}}
    assert told([one, changed(2)]) == [("code", "git patch", ["a" * 12, None])]


def test_another_umask_is_a_difference() -> None:
    def masked(number: int, umask: int | None) -> Run:
        one = run(number)
        return replace(one, job=replace(one.job, origin=replace(one.job.origin, umask=umask)))

    assert told([masked(1, 0o022), masked(2, 0o077), masked(3, None)]) == [("submitted", "umask", ["022", "077", None])]


def test_the_words_say_what_was_compared() -> None:
    """Equal last and best values are no equal curves; a job in place has no copy of its files, but perhaps a patch."""
    found = {
        "jobs": [{"id": id, "state": "succeeded", "restarts": 0, "started_s": None, "attempts": 0, "experiment": "x"} for id in "ab"],
        "differences": [], "unknown": {"files": ["a", "b"], "packages": ["a", "b"], "machine": ["a"]},
        "unknown_because": {"files": dict.fromkeys("ab", "there is no copy of them"), "packages": {"a": "lost", "b": "damaged"}}, "not_compared": [], "metrics": [],
        "metrics_equal": ["loss"], "metrics_last_equal": ["lr"], "series": {},
    }  # fmt: skip
    said = "Last and best values are equal in all (values between are not compared): loss"
    last = "Last values are equal in all (others are not compared): lr"
    assert standing(found) == ["", said, "", last], "a metric without a direction has no best value"
    older = {name: value for name, value in found.items() if name != "metrics_last_equal"}
    assert standing(older) == ["", last.replace("lr", "loss")], "it does not tell them apart"
    lacking = [
        "files: there is no copy of them for any of them", "packages: lost for a", "packages: damaged for b",
        "machine: not known for a",
    ]  # fmt: skip
    assert differences(found)[2:] == [f"Not compared: {one}" for one in lacking]
    page = html(found)
    assert f"<p>{said}.</p><p>{last}.</p>" in page
    assert all(f"<p>Not compared: {one}.</p>" in page for one in lacking)


def test_the_same_version_of_other_code_differs() -> None:
    def built(number: int, told: str | None) -> Run:
        record: Any = {**RECORD, "built_from": {"torch": told}} if told is not None else RECORD
        return run(number, record)

    assert told([built(1, "commit a"), built(2, "commit b")]) == [("packages", "torch", ["2.13.0 (commit a)", "2.13.0 (commit b)"])]
    assert told([built(1, "commit a"), built(2, None)]) == [], "an older record does not know: not_compared says so"
    assert told([built(1, ""), built(2, "")]) == []


def test_nested_fields_are_dotted() -> None:
    assert flattened({"a": {"b": {"c": 1}}, "d": (1, 2)}) == {"a.b.c": 1, "d": [1, 2]}


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), SCALARS), min_size=2, max_size=4))
def test_exactly_the_differing_parameters_are_told(params: list[dict[str, Any]]) -> None:
    """Law: a parameter is told if and only if two runs have it otherwise."""
    found = compare([run(n, params=one) for n, one in enumerate(params)]).fields
    names = {name for one in params for name in one}
    differing = {name for name in names if len({repr(one.get(name, ...)) for one in params}) > 1}
    assert {one.field for one in found if one.section == "params"} == differing
    assert all(isinstance(one, Difference) and len(one.values) == len(params) for one in found)


def test_the_primary_metric_and_its_direction() -> None:
    jobs = [job(), replace(job(), spec=replace(job().spec, metrics=MetricsSpec(primary="score", mode=Mode.MAX)))]
    assert primary_of(jobs, ["loss", "score"]) == "score"
    assert primary_of(jobs[:1], ["accuracy", "train_loss"]) == "train_loss"
    assert primary_of(jobs[:1], ["accuracy"]) is None
    assert mode_of(jobs, "score") is Mode.MAX


def test_the_winner_is_one_alone() -> None:
    one = MetricRanking("loss", Mode.MIN, True, [(9, 0.5, 1.0), (9, 0.4, 1.0), None], [(8, 0.3, 1.0), (7, 0.2, 1.0), None])
    assert (one.winner, one.equal) == (1, False)
    tie = replace(one, best=[(8, 0.3, 1.0), (8, 0.3, 2.0), None])
    assert (tie.winner, replace(tie, last=[(9, 0.5, 1.0), (9, 0.5, 2.0)], best=tie.best[:2]).equal) == (None, True)


def test_what_one_run_calls_the_best_and_another_the_worst_has_no_best() -> None:
    """The mode of the first was that of all: `equal` was said of a best of 1 and one of 3."""
    specs = [replace(job().spec, metrics=MetricsSpec(primary="score", mode=mode)) for mode in (Mode.MIN, Mode.MAX)]
    jobs = [replace(job(), id=f"train-{at}", spec=spec) for at, spec in enumerate(specs)]
    last = {one.id: {"score": (3, 3.0, 1.0)} for one in jobs}
    (one,) = rank_metrics(Curves(cast(EventStore, None), cast(MetricStore, None)), jobs, ["score"], last)
    assert (one.mode, one.best, one.winner) == (None, [None, None], None)
