"""What a comparison says that it did not look at: never "equal" of what nobody digested."""

from dataclasses import replace
from typing import cast

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.model.job import Job
from trainmaster.model.spec import CodeCopy, DataVersion, Environment
from trainmaster.server.record.differences import Run, compare
from trainmaster.server.record.not_compared import not_compared
from trainmaster.testing import builders
from trainmaster.wire.environment import EnvironmentRecord, Machine


def made(id: str, **changes: object) -> Job:
    return replace(builders.job(), id=id, **changes)


def test_what_is_not_digested_is_said_with_its_reason() -> None:
    """T4: a linked file, a large data set, a package from elsewhere and a directory on PYTHONPATH were called equal."""
    plain = made("a-1")
    spec = replace(
        plain.spec, data={"train": "/d", "url": "s3://b/x", "whole": "/w"},
        environment=Environment(variables={"PYTHONPATH": "/lib"}),
    )  # fmt: skip
    data = (DataVersion("train", "/d", "a" * 64, False, 1, 1, listing=""), DataVersion("url", "s3://b/x", None, False, 0, 0),
            DataVersion("whole", "/w", "b" * 64, True, 1, 1, listing=""))  # fmt: skip
    origin = replace(plain.origin, editable={"mine": "/src/mine"})
    rich = made("b-1", spec=spec, data=data, origin=origin, code=replace(CodeCopy(), digest="c" * 64, linked=2))
    assert not_compared([plain, rich]) == [
        "files that were linked to the work directory, not copied (b-1)",
        "data train: only names, sizes and times are compared, because it is large or cannot be read whole (b-1)",
        "data url: only its address is recorded (b-1)",
        "permissions of the files in data train, whole (b-1)",
        "package mine, imported from /src/mine and not from the copy (b-1)",
        "what PYTHONPATH leads to: /lib (b-1)",
    ]
    assert not_compared([rich, rich])[0] == "files that were linked to the work directory, not copied"
    assert not_compared([plain, plain]) == []


def test_a_package_that_a_job_in_place_imports_from_elsewhere_is_not_compared() -> None:
    plain = made("a-1")
    job = replace(plain, origin=replace(plain.origin, editable={"mine": "/src/mine"}), code=CodeCopy(in_place=True))
    assert not_compared([job]) == ["package mine, imported from /src/mine: nothing of it is recorded"]


def test_credentials_other_nodes_and_earlier_attempts_are_not_compared() -> None:
    plain = made("a-1")
    spec = replace(plain.spec, environment=Environment(variables={"HF_TOKEN": "one", "LABEL_KEY": "target", "SEED": "1"}))
    gang = builders.placed(made("b-1", spec=spec), number=2, nodes=("node0", "node1"))
    assert not_compared([plain, gang]) == [
        "variable HF_TOKEN: its name may be that of a credential (b-1)",
        "variable LABEL_KEY: its name may be that of a credential (b-1)",
        "packages and machines of its other nodes: only those of the first are compared (b-1)",
        "what its earlier attempts ran with: packages and machine are those of the last (b-1)",
    ]


def test_files_may_change_between_attempts_and_a_cut_patch_is_no_whole_one() -> None:
    """Attempts share the work directory: what the first one, or a person, changed in it is what the second one runs."""
    plain = made("a-1", code=CodeCopy("d" * 64))
    again = builders.placed(plain, number=2)
    assert not_compared([plain]) == not_compared([builders.placed(plain)]) == []
    assert not_compared([again]) == [
        "files of its later attempts: they ran in the directory that the first one left, which may differ",
        "what its earlier attempts ran with: packages and machine are those of the last",
    ]
    place = replace(plain.origin, git_commit="c" * 40, git_diff="e" * 64, git_diff_cut=True)
    cut = made("b-1", origin=place, code=CodeCopy(in_place=True))
    assert not_compared([cut]) == ["the rest of its patch, which was too large to be stored whole"]
    assert not_compared([replace(cut, code=CodeCopy("d" * 64))]) == [], "the files themselves are compared"


NAMES = st.sampled_from(("SEED", "LR", "PATH", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "DEBUG", "X"))
VARIABLES = st.dictionaries(NAMES, st.sampled_from(("", "1", "2", "/lib", "a b")), max_size=5)
PACKAGES = st.dictionaries(st.sampled_from(("numpy", "torch", "mine", "scipy")), st.sampled_from(("1.0", "1.0.0", "2.0")), max_size=4)
MACHINE: Machine = {
    "host": "a", "system": "Debian", "kernel": "6", "architecture": "x86_64", "libc": None, "cpu": "c", "cpus": 1, "memory_bytes": 1,
    "driver": None, "driver_cuda": None, "devices": [],
}  # fmt: skip


def seen(run: Run) -> object:
    """What of its variables and packages a program can see."""
    environment = run.environment
    assert environment is not None
    variables = {**run.job.origin.variables, **run.job.spec.environment.variables}
    return variables, environment["packages"], sorted(environment["editable"]), environment["python"]


@st.composite
def runs(draw: st.DrawFn, id: str) -> Run:
    plain, packages = made(id), draw(PACKAGES)
    spec = replace(plain.spec, environment=Environment(variables=draw(VARIABLES)))
    editable = [name for name in sorted(packages) if draw(st.booleans())]
    origin = replace(plain.origin, variables=draw(VARIABLES), editable={name: f"/src/{name}" for name in editable})
    python = {"path": draw(st.sampled_from(("/usr/bin/python3", "/venv/bin/python"))), "version": draw(st.sampled_from(("3.11.2", "3.12.1")))}
    record = {"python": python, "packages": packages, "editable": editable, "torch": None, "machine": MACHINE}
    return Run(replace(plain, spec=spec, origin=origin), (cast("EnvironmentRecord", record),))


@settings(max_examples=examples(300, 5000))
@given(runs("a-1"), runs("b-1"))
def test_no_variable_and_no_package_differs_unsaid(one: Run, other: Run) -> None:
    """T8: what differs in what a program can see is a difference, or stands under *Not compared*."""
    fields = {(found.section, found.field) for found in compare([one, other]).fields}
    unsaid = " ".join(not_compared([one.job, other.job]))
    mine, theirs = seen(one), seen(other)
    if mine == theirs:
        assert not fields, fields
        return
    (variables, packages, editable, python), (others, their_packages, their_editable, their_python) = mine, theirs  # type: ignore[misc]
    for name in {*variables, *others}:
        if variables.get(name) != others.get(name):
            assert ("variables", name) in fields or f"variable {name}: " in unsaid
    for name in {*packages, *their_packages}:
        if (packages.get(name), name in editable) != (their_packages.get(name), name in their_editable):
            assert ("packages", name) in fields
    for name in python:
        if python[name] != their_python[name]:
            assert ("python", name) in fields
    for name in {*editable, *their_editable}:
        assert f"package {name}, " in unsaid
