"""Every invalid spec: the reported fields, with line and column, and the suggestions."""

import pytest

from trainmaster.errors import SpecError
from trainmaster.spec.document import from_mapping, load_bytes, load_file
from trainmaster.spec.schema import schema

C = "command: python train.py\n"  # line 1 of most

# (text of the file, [(field, line, column, nearest)])
TABLE = {
    # the file itself
    "empty": ("", [("command", 1, 1, None)]),
    "only a comment": ("# nothing\n", [("command", 1, 1, None)]),
    "only a document marker": ("---\n", [("command", 1, 1, None)]),
    "a list": ("\n- a\n", [("", 2, 1, None)]),
    "a text": ("train.py\n", [("", 1, 1, None)]),
    "two documents": (C + "---\n" + C, [("", 2, 1, None)]),
    "tab": (C + "resources:\n\tgpus: 2\n", [("", 3, 1, None)]),
    "unclosed list": (C + "artifacts: [a, b\n", [("", 2, 12, None)]),
    "unclosed quote": (C + "name: 'x\n", [("", 2, 7, None)]),
    "colon in a plain text": ("command: a: b\n", [("", 1, 11, None)]),
    "control character": ("command: a\x07b\n", [("", 1, 11, None)]),
    "twice the same name": (C + "name: a\nname: b\n", [("name", 3, 1, None)]),
    "twice in a section": (C + "resources: {gpus: 1, gpus: 2}\n", [("resources.gpus", 2, 22, None)]),
    "a number as a name": (C + "1: x\n", [("", 2, 1, None)]),
    "a list as a name": (C + "? [a]\n: x\n", [("", 2, 3, None)]),
    "a tag": (C + "name: !python/name x\n", [("", 2, 7, None)]),
    "an alias without an anchor": (C + "name: *who\n", [("", 2, 7, None)]),
    "an alias inside itself": (C + "params: &p {a: *p}\n", [("", 2, 16, None)]),
    "a number of 70 digits": (C + f"priority: {'9' * 70}\n", [("", 2, 11, None)]),
    "merge key": (C + "resources: {<<: {gpus: 2}}\n", [("resources.<<", 2, 13, None)]),
    # names
    "no command": ("name: a\n", [("command", 1, 1, None)]),
    "no command, below a comment": ("# c\nname: a\n", [("command", 2, 1, None)]),
    "command misspelt": ("comand: x\n", [("command", 1, 1, None), ("comand", 1, 1, "command")]),
    "command by habit": ("cmd: x\n", [("command", 1, 1, None), ("cmd", 1, 1, "command")]),
    "gpu": (C + "resources:\n  gpu: 2\n", [("resources.gpu", 3, 3, "gpus")]),
    "gpus at the top": (C + "gpus: 2\n", [("gpus", 2, 1, "resources.gpus")]),
    "memory at the top": (C + "memory: 2GiB\n", [("memory", 2, 1, "resources.memory")]),
    "capital": (C + "Resources: {}\n", [("Resources", 2, 1, "resources")]),
    "dash": (C + "time-limit: 1h\n", [("time-limit", 2, 1, "time_limit")]),
    "env": (C + "env: {A: b}\n", [("env", 2, 1, "environment.variables")]),
    "timeout": (C + "timeout: 1h\n", [("timeout", 2, 1, "time_limit")]),
    "checkpoints": (C + "checkpoints: {}\n", [("checkpoints", 2, 1, "checkpoint")]),
    "kep": (C + "checkpoint: {kep: 3}\n", [("checkpoint.kep", 2, 14, "keep")]),
    "programm": (C + "restarts: {programm: 3}\n", [("restarts.programm", 2, 12, "program")]),
    "variable": (C + "environment: {variable: {}}\n", [("environment.variable", 2, 15, "variables")]),
    "patern": (C + "metrics: {patern: x}\n", [("metrics.patern", 2, 11, "pattern")]),
    "nothing like it": (C + "zzz: 1\n", [("zzz", 2, 1, None)]),
    # known, not supported
    "class": (C + "class: 7\n", [("class", 2, 8, None)]),
    "elastic misspelt": (C + "elastc: {}\n", [("elastc", 2, 1, "elastic")]),
    "elastic by habit": (C + "elastic: {min: 2, max: 8}\n", [("elastic", 2, 10, None)]),
    "elastic by half a habit": (C + "elastic: {min: 2, nodes_max: 8}\n", [("elastic.min", 2, 11, "nodes_min")]),
    "strategy": (C + "placement: {strategy: spred}\n", [("placement.strategy", 2, 23, "spread")]),
    "how long for nothing": (C + "placement: {prefer_for: 30m}\n", [("placement.prefer_for", 2, 25, None)]),
    "wider than it must be": (C + "placement: {prefer: zone, within: rack}\n", [("placement.prefer", 2, 21, None)]),
    "the same level": (C + "placement: {prefer: rack, within: rack}\n", [("placement.prefer", 2, 21, None)]),
    "withn": (C + "placement: {withn: rack}\n", [("placement.withn", 2, 13, "within")]),
    "budget": (C + "budget: 200 USD\n", [("budget", 2, 1, None)]),
    "stages": (C + "stages: {smoke: {steps: 20}}\n", [("stages", 2, 1, None)]),
    "notify": (C + "notify: [failed]\n", [("notify.to[0]", 2, 9, None)]),
    "nobody is told": (C + "notify: {on: failure}\n", [("notify.on", 2, 14, None)]),
    "secrets": (C + "environment:\n  secrets: [HF_TOKEN]\n", [("environment.secrets", 3, 3, None)]),
    "image": (C + "environment: {image: a}\n", [("environment.image", 2, 15, None)]),
    "interval": (C + "checkpoint: {interval: auto}\n", [("checkpoint.interval", 2, 24, None)]),
    "more than a part of a gpu": (C + "resources: {gpus: 1.5}\n", [("resources.gpus", 2, 19, None)]),
    "less than a part of a gpu": (C + "resources: {gpus: 0.0001}\n", [("resources.gpus", 2, 19, None)]),
    "more than a part of a kind": (C + "resources: {gpus: h100:1.5}\n", [("resources.gpus", 2, 19, None)]),
    "choice of gpus": (C + "resources: {gpus: [h100:8, 8]}\n", [("resources.gpus[1]", 2, 28, None)]),
    # values
    "empty command": ("command: ''\n", [("command", 1, 10, None)]),
    "command left empty": ("command:\nname: a\n", [("command", 1, 9, None)]),
    "command a number": ("command: 5\n", [("command", 1, 10, None)]),
    "command an empty list": ("command: []\n", [("command", 1, 10, None)]),
    "true as an argument": ("command: [train, true]\n", [("command", 1, 10, None)]),
    "name with a blank": (C + "name: my job\n", [("name", 2, 7, "my-job")]),
    "name a number": (C + "name: 7\n", [("name", 2, 7, None)]),
    "experiment": (C + "experiment: a/b\n", [("experiment", 2, 13, "a-b")]),
    "priority": (C + "priority: 101\n", [("priority", 2, 11, "100")]),
    "priority a text": (C + "priority: high\n", [("priority", 2, 11, None)]),
    "nodes zero": (C + "resources: {nodes: 0}\n", [("resources.nodes", 2, 20, "1")]),
    "nodes quoted": (C + "resources: {nodes: '2'}\n", [("resources.nodes", 2, 20, "2")]),
    "ranks true": (C + "resources: {ranks: true}\n", [("resources.ranks", 2, 20, None)]),
    "cpus": (C + "resources: {cpus: -1}\n", [("resources.cpus", 2, 19, None)]),
    "cpus not a number": (C + "resources: {cpus: .nan}\n", [("resources.cpus", 2, 19, None)]),
    "gpu kind alone": (C + "resources: {gpus: h100}\n", [("resources.gpus", 2, 19, "h100:1")]),
    "gpus turned": (C + "resources: {gpus: '8:h100'}\n", [("resources.gpus", 2, 19, "h100:8")]),
    "gpus negative": (C + "resources: {gpus: -1}\n", [("resources.gpus", 2, 19, None)]),
    "memory of another system": (C + "resources: {memory: 64Gi}\n", [("resources.memory", 2, 21, "64GiB")]),
    "memory without a unit": (C + "resources: {memory: 64}\n", [("resources.memory", 2, 21, "64GiB")]),
    "memory left empty": (C + "resources:\n  memory:\n", [("resources.memory", 3, 10, None)]),
    "resources a number": (C + "resources: 2\n", [("resources", 2, 12, None)]),
    "resources left empty": (C + "resources:\n", [("resources", 2, 11, None)]),
    "time_limit as a clock": (C + "time_limit: 12:30\n", [("time_limit", 2, 13, "12h30m")]),
    "time_limit in words": (C + "time_limit: 3 hours\n", [("time_limit", 2, 13, "3h")]),
    "time_limit zero": (C + "time_limit: 0\n", [("time_limit", 2, 13, None)]),
    "checkpoint absolute": (C + "checkpoint: /tmp/a.pt\n", [("checkpoint.path", 2, 13, None)]),
    "checkpoint outside": (C + "checkpoint: {path: ../a.pt}\n", [("checkpoint.path", 2, 20, None)]),
    "checkpoint everything": (C + "checkpoint: {path: '**'}\n", [("checkpoint.path", 2, 20, None)]),
    "checkpoint two steps": (C + "checkpoint: 'a{step}/b{step}'\n", [("checkpoint.path", 2, 13, None)]),
    "checkpoint placeholder": (C + "checkpoint: 'a-{epoch}.pt'\n", [("checkpoint.path", 2, 13, "a-{step}.pt")]),
    "keep zero": (C + "checkpoint: {keep: 0}\n", [("checkpoint.keep", 2, 20, "1")]),
    "resume placeholder": (
        C + "checkpoint: {resume_arguments: '--resume {ckpt}'}\n",
        [("checkpoint.resume_arguments", 2, 32, "--resume {path}")],
    ),
    "resume placeholder with a format": (
        C + "checkpoint: {resume_arguments: '--resume {step:>5}', path: 'out/{step}.pt'}\n",
        [("checkpoint.resume_arguments", 2, 32, "--resume {step}")],
    ),
    "resume directory": (
        C + "checkpoint: {resume_arguments: '--continue {dir}'}\n",
        [("checkpoint.resume_arguments", 2, 32, "--continue {directory}")],
    ),
    "what only a shell would run": (
        "command: [python, t.py]\ncheckpoint: {path: out/*.pt, resume_arguments: '--continue $(dirname {path})'}\n",
        [("checkpoint.resume_arguments", 2, 48, None)],
    ),
    "a step that the path does not say": (
        C + "checkpoint: {path: out/*.pt, resume_arguments: '--load {step}'}\n",
        [("checkpoint.resume_arguments", 2, 48, None)],
    ),
    "neither true nor false": (C + "metrics: {automatic: off}\n", [("metrics.automatic", 2, 22, None)]),
    "restarts negative": (C + "restarts: -1\n", [("restarts.program", 2, 11, "0")]),
    "a variable of ours": (C + "environment: {variables: {TRAINMASTER_JOB: 1}}\n", [("environment.variables.TRAINMASTER_JOB", 2, 27, None)]),
    "a variable of a gang's ranks": (
        C + "resources: {ranks: 1}\nenvironment: {variables: {RANK: 1}}\n", [("environment.variables.RANK", 3, 33, None)],
    ),
    "a variable's name": (C + "environment: {variables: {a-b: 1}}\n", [("environment.variables.a-b", 2, 27, "a_b")]),
    "a variable that is true": (
        C + "environment: {variables: {A: yes, B: true}}\n",
        [("environment.variables.B", 2, 38, None)],
    ),
    "a list among the params": (C + "params: {lr: [1]}\n", [("params.lr", 2, 14, None)]),
    "infinity among the params": (C + "params: {lr: .inf}\n", [("params.lr", 2, 14, None)]),
    "a tag that is a number": (C + "tags: {v: 3}\n", [("tags.v", 2, 11, None)]),
    "tags a list": (C + "tags: [a]\n", [("tags", 2, 7, None)]),
    "artifacts a text": (C + "artifacts: out/*.png\n", [("artifacts", 2, 12, "[out/*.png]")]),
    "artifact absolute": (C + "artifacts:\n  - a\n  - /b\n", [("artifacts[1]", 4, 5, None)]),
    "pattern broken": (C + "metrics: {pattern: '(?P<loss>'}\n", [("metrics.pattern", 2, 20, None)]),
    "pattern that looks ahead": (C + "metrics: {pattern: '(?P<loss>.)(?=x)'}\n", [("metrics.pattern", 2, 20, None)]),
    "pattern with a back-reference": (C + "metrics: {pattern: '(?P<loss>.)(?P=loss)'}\n", [("metrics.pattern", 2, 20, None)]),
    "pattern that is too long": (C + "metrics: {pattern: '(?P<loss>" + "." * 1000 + ")'}\n", [("metrics.pattern", 2, 20, None)]),
    "pattern without a name": (C + "metrics: {pattern: '(.)'}\n", [("metrics.pattern", 2, 20, None)]),
    "mode": (C + "metrics: {mode: minimum}\n", [("metrics.mode", 2, 17, "min")]),
    # all at once, in the order of the file
    "many": (
        "name: a b\nresources: {gpu: 2, cpus: x}\nstages: {}\nname: c\n",
        [
            ("name", 1, 7, "a-b"),
            ("command", 1, 1, None),
            ("resources.gpu", 2, 13, "gpus"),
            ("resources.cpus", 2, 27, None),
            ("stages", 3, 1, None),
            ("name", 4, 1, None),
        ],
    ),
}


def faults(text: str) -> list[tuple[str, int, int, str | None]]:
    with pytest.raises(SpecError) as caught:
        load_bytes(text.encode(), "train.yaml")
    details = caught.value.details
    assert {d["file"] for d in details} == {"train.yaml"}
    assert caught.value.message.count("\n") == len(details) - 1
    return [(d["field"], d["line"], d["column"], d["nearest"]) for d in details]


@pytest.mark.parametrize("name", TABLE)
def test_each_fault_has_its_place(name: str) -> None:
    text, expected = TABLE[name]
    assert sorted(faults(text), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("elastic: {min: 2, max: 8}", "elastic"), ("elastic: 2-8", "elastic"), ("elastic: [2, 8]", "elastic"),
        ("resources: {nodes: 2..8}", "resources.nodes"), ("resources: {nodes: '2-8'}", "resources.nodes"),
        ("resources: {nodes: [2, 8]}", "resources.nodes"), ("resources: {nodes: {min: 2, max: 8}}", "resources.nodes"),
    ],
)  # fmt: skip
def test_a_range_of_nodes_is_told_where_it_goes(text: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_bytes((C + text + "\n").encode(), "job.yaml")
    column = 10 if place == "elastic" else 20
    form = "from 2 to 8 nodes is written 'elastic: {nodes_min: 2, nodes_max: 8}'"
    assert caught.value.message == f"job.yaml:2:{column}: {place}: {form}"


def test_a_second_part_of_a_gpu_is_told_that_the_ranks_share_one() -> None:
    text = C + "resources: {gpus: 0.5, ranks: 2}\nroles: {a: {command: x, resources: {gpus: 0.25}}}\n"
    with pytest.raises(SpecError) as caught:
        load_bytes(text.encode(), "job.yaml")
    told = "a job may have part of one GPU only: all its ranks share it, or one role has it; ask for whole GPUs instead"
    assert caught.value.message == f"job.yaml:3:43: roles.a.resources.gpus: {told}"
    asked = schema()["$defs"]["ResourcesFields"]["properties"]["gpus"]["description"]
    assert "below 1 a fraction of one GPU, which all ranks share." in asked


def test_faults_come_in_the_order_of_the_file() -> None:
    places = [(line, column) for _, line, column, _ in faults(TABLE["many"][0])]
    assert places == sorted(places)


def test_the_listing_reads_like_a_compiler() -> None:
    with pytest.raises(SpecError) as caught:
        load_bytes(b"command: x\nresources:\n    gpu: 2\nstages: {}\n", "train.yaml")
    assert str(caught.value) == (
        "train.yaml:3:5: resources.gpu: unknown field; did you mean 'gpus'?\n"
        "train.yaml:4:1: stages: 'stages' is not supported yet; submit a short job first, with fewer steps and its own 'time_limit'"
    )
    assert caught.value.exit_code == 2
    assert caught.value.details[1] == {
        "field": "stages", "expected": "",
        "message": "'stages' is not supported yet; submit a short job first, with fewer steps and its own 'time_limit'", "got": "a mapping",
        "nearest": None, "file": "train.yaml", "line": 4, "column": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"name: \xff\n", "f:1:7: not UTF-8 text; save the file as UTF-8"),
        (
            b"command: true",
            "f:1:10: command: expected a command such as 'python train.py', or a list of its arguments, got true; write it in quotes",
        ),
        (b"#" * (1024 * 1024 + 1), "f:1:1: the file has more than 1,048,576 bytes, the maximum"),
        (b"a: " + b"[" * 100_000, "f:1:34: nested more than 30 deep"),
        (b"- " * 100_000, "f:1:63: nested more than 30 deep"),
        (b"a: {b: &x [1]}\nc:\n\t- 1", "f:3:1: a tab in the indentation; YAML is indented with spaces"),
    ],
)
def test_what_is_no_yaml(data: bytes, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_bytes(data, "f")
    assert caught.value.message == message


def test_aliases_cannot_explode() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(SpecError, match="too large after its aliases are expanded"):
        load_bytes("\n".join(lines).encode(), "f")


@pytest.mark.parametrize("mark", ["command: !", "command: *", "a: &"])
def test_a_tag_or_an_anchor_without_end_is_told_shortly(mark: str) -> None:
    name = "t" * 500_000
    with pytest.raises(SpecError) as caught:
        load_bytes(f"{mark}{name} {'[*' + name + ' ]' if '&' in mark else ''}\n".encode(), "f")
    assert len(caught.value.message) < 500


def test_thousands_of_faults_are_told_shortly() -> None:
    text = "command: x\n" + "".join(f"resurces{n}: 1\n" for n in range(20_000))
    with pytest.raises(SpecError) as caught:
        load_bytes(text.encode(), "f")
    assert len(caught.value.details) == 100


def test_a_missing_file_names_its_neighbour(tmp_path) -> None:
    (tmp_path / "train.yaml").write_text("command: x\n")
    with pytest.raises(SpecError, match=r"No such file or directory; did you mean 'train\.yaml'"):
        load_file(tmp_path / "train.yml")


@pytest.mark.parametrize("value", [None, [], "x", {"command": "a\0b"}, {"command": "a", "tags": {"\ud800": "x"}}, {1: 2}])
def test_a_mapping_from_elsewhere_has_no_place(value: object) -> None:
    with pytest.raises(SpecError) as caught:
        from_mapping(value)
    assert [(d["file"], d["line"], d["column"]) for d in caught.value.details] == [(None, None, None)]
    caught.value.message.encode()


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (
            r'metrics: {pattern: "loss (?P<loss>[\d.]+)"}',
            "in double quotes a backslash escapes: put the text in 'single quotes'",
        ),
        ("checkpoint: {path: out/ckpt-{step}.pt}", "close the {; a text with { or } in it needs quotes inside of it"),
        ("artifacts: [*.pt]", "a text that begins with * or & needs quotes"),
        ("name: @a", "a text that begins with @, % or ` needs quotes"),
        ("  name: a", "check the indentation; a text with a colon and a space in it needs quotes"),
        ("tags: {note: 'a}", "close the quotes"),
        ("artifacts: - a", "begin the list on a line of its own, or write [a, b]"),
        ("artifacts: [a", "close the [; a text with [ or ] in it needs quotes inside of it"),
    ],
)
def test_what_is_mostly_behind_a_line_that_is_not_yaml(line: str, meant: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_bytes(f"{C}{line}\n".encode(), "train.yaml")
    assert caught.value.message.startswith("train.yaml:2:")
    assert caught.value.message.endswith(f"; {meant}")
