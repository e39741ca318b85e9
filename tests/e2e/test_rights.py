"""Who may give a job a class, and the projects that are declared, on a real server with the tokens of two members."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from running import Tm, cleared, server

from trainmaster import live_processes

RULES = """
projects: {vision: {}, lab: {}, deep: {parent: lab}, default: {}}
classes:
  production: {projects: [vision], members: [ann]}
  evaluation: {projects: [lab]}
"""
REFUSED = (
    "error: bob may not use class production in project vision: only ann may use it, in project vision",
    "use --class interactive, training or trial",
    "an administrator changes who may: classes.production of cluster.yaml",
)


SUBMITTING = """
import trainmaster
print(trainmaster.submit(["true"], project="vision", work="production"))
"""
NEW = ("--project", "vision", "--class", "production", "--", "true")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    with server(tmp_path_factory.mktemp("rights"), "--nodes", "1") as tm:
        tm.file("rules.yaml", RULES)
        tm.file("open.yaml", "{}\n")
        tm.file("job.yaml", "command: 'true'\nname: own\nproject: vision\nclass: production\n")
        tm.file("job.sh", "#!/bin/bash\n#SBATCH --account=vision --qos=production\ntrue\n")
        tm.file("job.py", SUBMITTING)
        yield tm


@pytest.fixture(scope="module")
def tokens(shared: Tm) -> dict[str, str]:
    return {name: shared.ok("token", "create", name).strip() for name in ("ann", "bob")}


@pytest.fixture
def tm(shared: Tm) -> Iterator[Tm]:
    shared.ok("apply", "rules.yaml")
    yield shared
    cleared(shared)


class As(Tm):
    """The command line of a member."""

    def __init__(self, tm: Tm, token: str) -> None:
        info = live_processes.running(tm.home)
        assert info is not None
        self.home, self.work = tm.home, tm.work
        self.environment = {**tm.environment, "TRAINMASTER_SERVER": info.url, "TRAINMASTER_TOKEN": token}


@pytest.fixture
def bob(tm: Tm, tokens: dict[str, str]) -> As:
    return As(tm, tokens["bob"])


@pytest.mark.parametrize(
    "words",
    [
        ("submit", *NEW), ("run", *NEW), ("plan", *NEW), ("submit", "--array", "0-2", *NEW), ("submit", "--hold", *NEW),
        ("submit", "job.yaml"), ("submit", "job.sh"), ("plan", "job.yaml"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_who_may_not_use_a_class_is_told_who_may_and_what_to_use(bob: As, words: tuple[str, ...]) -> None:
    said = bob(*words)
    assert (said.code, said.out) == (4, ""), said
    for part in REFUSED:
        assert part in " ".join(said.err.replace("jobs[0]: ", "").split()), said.err


def test_nor_from_python(bob: As) -> None:
    done = subprocess.run([sys.executable, "job.py"], cwd=bob.work, env=bob.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "PermissionDeniedError: bob may not use class production in project vision: only ann may use it" in done.stderr


def test_nor_a_job_made_from_another(tm: Tm, bob: As) -> None:
    tm.ok("apply", "open.yaml")
    was, waits = bob.submit("--name", "was", *NEW), bob.submit("--hold", "--name", "waits", "--project", "vision", "--", "true")
    kept = bob.submit("--hold", "--name", "kept", *NEW)
    assert tm.ended(was)["state"] == "succeeded"
    applied = tm.json("apply", "rules.yaml")
    assert f"class production: {kept} keeps it, and new jobs like that are refused" in applied["words"]
    ways = (("requeue", was), ("rerun", was), ("reproduce", was), ("submit", "--from", was), ("update", waits, "--class", "production"))
    for words in ways:
        said = bob(*words)
        assert said.code == 4, (words, said)
        assert "bob may not use class production in project vision" in said.err, (words, said)
    assert tm.show(waits)["class"] == "training"
    bob.ok("release", kept)
    assert (tm.ended(kept)["state"], tm.show(kept)["class"]) == ("succeeded", "production")


def test_who_may_does_and_the_rules_say_so(tm: Tm, tokens: dict[str, str]) -> None:
    ann = As(tm, tokens["ann"])
    assert tm.show(ann.submit(*NEW))["class"] == "production"
    assert ann("submit", "--project", "deep", "--class", "evaluation", "--", "true").code == 0
    assert ann("submit", "--project", "lab", "--class", "production", "--", "true").code == 4
    told = ann.ok("policy")
    assert "class production\n  priority +3000\n  its jobs must not be preempted\n  only ann may use it, in project vision\n" in told
    assert "  only jobs of project lab and what is inside may use it\n" in told
    assert "other projects\n  are not declared, and their jobs are refused\n" in told


def test_a_project_that_is_not_declared_is_refused_with_its_line(tm: Tm, bob: As) -> None:
    said = bob("submit", "--project", "visoin", "--", "true")
    assert said.code == 2
    assert said.err.startswith(
        "error: there is no project 'visoin' here; did you mean 'vision'? declared: vision, lab, deep, default\n"
    )
    assert "`visoin: {}`" in said.err
    tm.file("more.yaml", RULES.replace("lab: {}", "lab: {}, visoin: {}"))
    tm.ok("apply", "more.yaml")
    assert bob("submit", "--project", "visoin", "--", "true").code == 0
    tm.file("named.yaml", "projects: {vision: {}}\n")
    tm.ok("apply", "named.yaml")
    said = bob("submit", "--", "true")
    assert (said.code, "there is no project 'default' here (the job names no other); declared: vision" in said.err) == (2, True)
    tm.ok("apply", "open.yaml")
    assert bob("submit", "--project", "anything", "--", "true").code == 0
