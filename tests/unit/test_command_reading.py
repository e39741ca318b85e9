"""What a command names that nobody recorded: paths outside of the copy, and programs that install packages."""

from dataclasses import replace
from typing import Any

from trainmaster.model.job import Job
from trainmaster.model.spec import CheckpointSpec, CodeCopy, DataVersion, Environment, Role
from trainmaster.server.record.command_reading import installers, outside
from trainmaster.server.record.differences import Run, compare
from trainmaster.server.record.not_compared import not_compared
from trainmaster.server.record.reproduction import _unequal_job
from trainmaster.testing import builders


def made(command: str | tuple[str, ...], directory: str = "/home/me/work", in_place: bool = False, **spec: Any) -> Job:
    plain = builders.job(code=CodeCopy(in_place=True) if in_place else CodeCopy("d" * 64))
    origin = replace(plain.origin, directory=directory)
    return replace(plain, id="a-1", origin=origin, spec=replace(plain.spec, command=command, **spec))


def named(command: str | tuple[str, ...], **spec: Any) -> list[str]:
    return [path for path, _ in outside(made(command, **spec))]


def test_paths_that_a_command_names_are_found_in_lines_and_arguments() -> None:
    assert named(("python3", "/home/me/work/t.py")) == ["/home/me/work/t.py"]
    assert named("cd /home/me/work && python3 t.py") == ["/home/me/work"]
    assert named(("python3", "t.py", "--data-dir", "/srv/my data", "--out=/tmp/out", "-I/opt/inc")) == [
        "/srv/my data", "/tmp/out", "/opt/inc",
    ]  # fmt: skip
    assert named("PYTHONPATH=/lib/mine:/b python3 h.py > /dev/null 2>&1") == ["/lib/mine", "/b"]
    assert named(("bash", "-c", "python3 ~/t.py --d $HOME/d 'x=[/c,/e]'")) == ["~/t.py", "$HOME/d", "/c", "/e"]
    assert named("python t.py --from s3://bucket/x --url tcp://127.0.0.1:1 --model org/name --half 1/2 ./a/b") == ["s3://bucket/x"]
    assert named("python t.py '--quoted") == []


def test_paths_that_leave_the_directory_are_found_however_they_are_written() -> None:
    told = {
        "python ./../shared/x sub/../../y a/../b ./c $PWD/d": ["../shared/x", "../y"],
        "python t.py $PWD/../shared ${PWD}/.. ..": ["../shared", ".."],
        "python t.py /dev/shm/imagenet > /dev/null": ["/dev/shm/imagenet"],
        "python t.py @/shared/args.txt -d/shared/x --a=-1/2 1..8": ["/shared/args.txt", "/shared/x"],
        "cd ~ && python t.py ~ann/x $HOME ${HOME} --rank $RANK": ["~", "~ann/x", "$HOME", "${HOME}"],
        "python t.py http://localhost:9000/b/x http://localhost:5000 http://127.0.0.1:1/": ["http://localhost:9000/b/x"],
    }
    assert {line: named(line) for line in told} == told
    spec: dict[str, Any] = {
        "checkpoint": CheckpointSpec("out/*", resume_arguments="--load /srv/base.pt"),
        "environment": Environment(variables={"LD_LIBRARY_PATH": "/opt/x/lib:/opt/y"}),
    }
    assert named("python t.py", **spec) == ["/srv/base.pt", "/opt/x/lib", "/opt/y"]


def test_interpreters_system_programs_and_what_is_in_the_copy_are_no_such_paths() -> None:
    assert named("/usr/bin/env /venv/bin/python3.11 t.py $PWD/a.py && /bin/true") == []
    job = made(("/venv/bin/torchrun", "t.py"))
    assert [path for path, _ in outside(job, "/venv/bin/python")] == []
    assert [path for path, _ in outside(job)] == ["/venv/bin/torchrun"]


def test_recorded_data_and_the_directory_of_a_job_in_place_are_told_elsewhere() -> None:
    data = (DataVersion("train", "/srv/data", "a" * 64, True, 1, 1, listing=""), DataVersion("url", "s3://b/x"))
    job = replace(made("python t.py /srv/data /srv/data/train/ /srv/database s3://b/x s3://b/xy"), data=data)
    assert [path for path, _ in outside(job)] == ["s3://b/xy", "/srv/database"]
    inside = made("python /home/me/work/t.py ../other/u.py", in_place=True)
    assert [path for path, _ in outside(inside)] == ["../other/u.py"]


def test_parameters_variables_and_roles_name_paths_too() -> None:
    spec: dict[str, Any] = {
        "params": {"data": "/srv/p", "lr": 0.1, "same": "/srv/c"},
        "environment": Environment(variables={"DATA": "/srv/v", "PATH": "/x/bin", "PYTHONPATH": "/lib", "API_TOKEN": "/secret"}),
        "roles": {"board": Role("tensorboard --logdir /srv/r")},
    }
    assert outside(made("python t.py --d {same}", **spec)) == [
        ("/srv/c", "its command"), ("/srv/r", "its role board"), ("/srv/p", "its parameter data"), ("/srv/v", "its variable DATA"),
    ]  # fmt: skip


def test_credentials_in_a_command_are_not_told_as_paths() -> None:
    assert named("python t.py --api-key /abc/def --url s3://me:pass@b/x") == ["s3://me:(hidden)@b/x"]


def test_programs_that_install_are_found() -> None:
    lines = {
        "pip install x && python t.py": ["pip install"],
        "python -m pip -q install -r r.txt; python t.py": ["pip install"],
        "uv pip install x\nuv sync": ["uv pip install", "uv sync"],
        "conda env update -f e.yml && mamba install -y x": ["conda env update", "mamba install"],
        "/opt/bin/pip3.11 install x": ["pip3.11 install"],
        "python setup.py develop": ["setup.py develop"],
        "python -mpip install x": ["pip install"],
        "python t.py --note 'how to install' && pip list; echo install": [],
    }
    assert {line: installers(made(line)) for line in lines} == lines
    assert installers(made(("bash", "-c", "pip install x && python t.py"))) == ["pip install"]


def test_a_comparison_and_a_reproduction_list_them() -> None:
    job = made("pip install x && python3 /home/me/work/t.py --data-dir /srv/data")
    installs = "packages: its command installs some (pip install), and the record is of those before"
    assert not_compared([job, job]) == [
        "/home/me/work/t.py, named by its command: it is read where it is, not from the copy",
        "/srv/data, named by its command: it is used where it is, and nothing of it is recorded",
        installs,
    ]
    assert list(_unequal_job(job, None)) == [
        "/home/me/work/t.py, named by its command: it is read where it is, not from the copy",
        "/srv/data, named by its command: it is used where it is, and nothing of it is recorded",
        installs,
    ]


def test_a_reproduction_says_how_often_it_was_interrupted() -> None:
    attempt = builders.attempt(3)
    told = "course: a-1 was interrupted 2 times; this job is only if something breaks, or if it has to make room"
    assert told in list(_unequal_job(replace(made("python t.py"), attempt=attempt, evictions=2), None))


def test_many_paths_are_bounded() -> None:
    told = not_compared([made(" ".join(["python t.py", *(f"/d/{number}" for number in range(30))]))])
    assert len(told) == 11
    assert told[-1] == "20 more paths that its command or its parameters name: nothing of them is recorded"


def test_a_record_of_another_python_is_said_to_be_one() -> None:
    record: Any = {"python": {"path": "/a/bin/python", "version": "3.11"}, "packages": {}, "editable": [], "torch": None, "machine": {}}
    job = made("bash train.sh")
    record["built_from"] = {}
    doubt = "Python and packages: those of /a/bin/python are recorded, and its command may start another Python"
    assert not_compared([job, job], {"a-1": record}) == [doubt]
    assert list(_unequal_job(job, record)) == [doubt]
    certain = {**record, "python": {**record["python"], "certain": True}}
    assert not_compared([job], {"a-1": certain}) == []  # type: ignore[dict-item]
    assert not_compared([job], {"a-1": {**record, "python": None}}) == ["Python and packages: no Python was found for its command"]


def test_packages_whose_code_nothing_identifies_are_not_compared() -> None:
    python = {"path": "/p", "version": "3.11", "certain": True}
    record: Any = {"python": python, "packages": {"a": "1"}, "editable": [], "torch": None, "machine": {}}
    job = made("python t.py")
    assert not_compared([job], {"a-1": record}) == [
        "packages from a directory or a repository: an older version recorded nothing but their version"
    ]
    told: Any = {**record, "built_from": {"a": "", "b": "commit c"}}
    assert not_compared([job], {"a-1": told}) == ["package a: it is not from an index, and nothing but its version is recorded"]
    found: Any = {**record, "built_from": {}, "unnamed": ["/home/me/loose"]}
    assert not_compared([job], {"a-1": found}) == [
        "/home/me/loose, to which a .pth file of its Python leads: nothing of it is recorded"
    ]
    unread: Any = {**record, "built_from": {}, "unread": ["/venv/lib (Input/output error)"]}
    assert not_compared([job], {"a-1": unread}) == [
        "packages: /venv/lib (Input/output error) could not be read, so some may be missing in the record"
    ]
    pair: list[Any] = [{**unread, "machine": {"devices": []}, "unread": told} for told in ([], unread["unread"])]
    compared = compare([Run(replace(job, id=id), (one,)) for id, one in zip(("a-1", "b-1"), pair, strict=True)])
    assert [one.section for one in compared.fields] == []
    assert compared.unknown["packages"] == {"b-1": "some could not be read"}
