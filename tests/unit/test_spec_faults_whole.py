"""Malformed specs, the second half: functions, roles, data, environments, counted resources, and what is not supported yet.

Each case: the file, and of every fault the field, the place and what was probably meant.
"""

import pytest

from trainmaster.errors import SpecError
from trainmaster.spec.document import load_bytes
from trainmaster.spec.fields.job_fields import RESERVED

C = "command: python train.py\n"  # line 1 of most
P = "python: pkg.train:main\n"
R = C + "roles:\n  evaluator:\n    command: python eval.py\n"  # four lines

TABLE: dict[str, tuple[str, list[tuple[str, int, int, str | None]]]] = {
    # a function in place of a command
    "both": (C + P, [("python", 2, 1, None)]),
    "neither": ("name: a\n", [("command", 1, 1, None)]),
    "python by habit": ("function: pkg.train:main\n", [("command", 1, 1, None), ("function", 1, 1, "python")]),
    "python misspelt": ("pyhton: pkg.train:main\n", [("command", 1, 1, None), ("pyhton", 1, 1, "python")]),
    "an interpreter": ("python: .venv/bin/python\n", [("python", 1, 9, "environment.python")]),
    "python3": ("python: python3\n", [("python", 1, 9, "environment.python")]),
    "a script": ("python: train.py\n", [("python", 1, 9, "command")]),
    "a line": ("python: train.py --epochs 2\n", [("python", 1, 9, "command")]),
    "a dot in place of the colon": ("python: pkg.train.main\n", [("python", 1, 9, "pkg.train:main")]),
    "a path in place of a module": ("python: src/pkg/train.py:main\n", [("python", 1, 9, "src.pkg.train:main")]),
    "a function without a module": ("python: :main\n", [("python", 1, 9, None)]),
    "a function with brackets": ("python: 'pkg:main()'\n", [("python", 1, 9, None)]),
    "a function that is a number": ("python: 3\n", [("python", 1, 9, None)]),
    "a function left empty": ("python:\n", [("python", 1, 8, None)]),
    "a function that is to resume by arguments": (
        P + "checkpoint:\n  path: a/*.pt\n  resume_arguments: --resume {path}\n", [("checkpoint.resume_arguments", 4, 21, None)],
    ),
    # roles
    "roles a list": (C + "roles: [a]\n", [("roles", 2, 8, None)]),
    "roles misspelt": (C + "role: {a: x}\n", [("role", 2, 1, "roles")]),
    "a role without a command": (C + "roles: {a: {resources: {cpus: 1}}}\n", [("roles.a.command", 2, 12, None)]),
    "a role that is a number": (C + "roles: {a: 3}\n", [("roles.a", 2, 12, None)]),
    "a role's command misspelt": (
        C + "roles: {a: {comand: x}}\n", [("roles.a.command", 2, 12, None), ("roles.a.comand", 2, 13, "command")],
    ),
    "a role's resources at its top": (R + "    cpus: 4\n", [("roles.evaluator.cpus", 5, 5, "resources.cpus")]),
    "a role's cpu": (R + "    resources: {cpu: 4}\n", [("roles.evaluator.resources.cpu", 5, 17, "cpus")]),
    "a role on nodes": (R + "    resources: {nodes: 4}\n", [("roles.evaluator.resources.nodes", 5, 17, None)]),
    "a role of ranks": (R + "    resources:\n      ranks: 2\n", [("roles.evaluator.resources.ranks", 6, 7, None)]),
    "a role's memory": (R + "    resources: {memory: 4Gi}\n", [("roles.evaluator.resources.memory", 5, 25, "4GiB")]),
    "a role's name": (C + "roles: {my role: x}\n", [("roles.my role", 2, 9, "my-role")]),
    "a role of other GPUs": (
        C + "resources: {gpus: h100:2}\nroles: {a: {command: x, resources: {gpus: a100:1}}}\n",
        [("roles.a.resources.gpus", 3, 43, "h100:1")],
    ),
    "two parts of GPUs": (
        C + "resources: {gpus: 0.5}\nroles: {a: {command: x, resources: {gpus: 0.25}}}\n",
        [("roles.a.resources.gpus", 3, 43, "1")],
    ),
    "twice the same role": (C + "roles:\n  a: x\n  a: y\n", [("roles.a", 4, 3, None)]),
    # data
    "data by version": (C + "data: {train: imagenet@v3}\n", [("data.train", 2, 15, None)]),
    "data a path": (C + "data: /imagenet\n", [("data", 2, 7, None)]),
    "data by habit": (C + "dataset: {train: /x}\n", [("dataset", 2, 1, "data")]),
    "data's name": (C + "data: {my data: /x}\n", [("data.my data", 2, 8, "my_data")]),
    "data's name a digit": (C + "data: {9x: /x}\n", [("data.9x", 2, 8, "x")]),
    "data of one variable": (C + "data:\n  train: /x\n  Train: /y\n", [("data.Train", 4, 10, None)]),
    "data left empty": (C + "data: {train: }\n", [("data.train", 2, 15, None)]),
    "data with a password": (C + "data: {train: 's3://ann:secret@host/x'}\n", [("data.train", 2, 15, None)]),
    "data of a scheme alone": (C + "data: {train: 's3://'}\n", [("data.train", 2, 15, None)]),
    # resources that are counted
    "disk without a unit": (C + "resources: {disk: 10}\n", [("resources.disk", 2, 19, "10GiB")]),
    "disk at the top": (C + "disk: 10GiB\n", [("disk", 2, 1, "resources.disk")]),
    "network without a unit": (C + "resources: {network: 100}\n", [("resources.network", 2, 22, "100Gbps")]),
    "network in bytes": (C + "resources: {network: 10GB/s}\n", [("resources.network", 2, 22, "80Gbps")]),
    "network in other letters": (C + "resources: {network: 10gbps}\n", [("resources.network", 2, 22, "10Gbps")]),
    "network of nothing": (C + "resources: {network: 0Gbps}\n", [("resources.network", 2, 22, None)]),
    "network beyond measure": (C + f"resources: {{network: 1{'0' * 30}Tbps}}\n", [("resources.network", 2, 22, None)]),
    "accelerators a text": (C + "resources: {accelerators: tpu:4}\n", [("resources.accelerators", 2, 27, None)]),
    "an accelerator in capitals": (C + "resources: {accelerators: {TPU: 4}}\n", [("resources.accelerators.TPU", 2, 28, "tpu")]),
    "an accelerator in quotes": (C + "resources: {accelerators: {tpu: '4'}}\n", [("resources.accelerators.tpu", 2, 33, "4")]),
    "half an accelerator": (C + "resources: {accelerators: {tpu: 0.5}}\n", [("resources.accelerators.tpu", 2, 33, None)]),
    "no accelerator": (C + "resources: {accelerators: {tpu: 0}}\n", [("resources.accelerators.tpu", 2, 33, None)]),
    "custom a list": (C + "resources: {custom: [license]}\n", [("resources.custom", 2, 21, None)]),
    "custom in quotes": (C + "resources: {custom: {license: '1'}}\n", [("resources.custom.license", 2, 31, "1")]),
    "custom less than nothing": (C + "resources: {custom: {license: -1}}\n", [("resources.custom.license", 2, 31, None)]),
    "custom that is true": (C + "resources: {custom: {license: true}}\n", [("resources.custom.license", 2, 31, None)]),
    "custom without end": (C + "resources: {custom: {license: .inf}}\n", [("resources.custom.license", 2, 31, None)]),
    "custom that is no number": (C + "resources: {custom: {license: .nan}}\n", [("resources.custom.license", 2, 31, None)]),
    "custom's name": (C + "resources: {custom: {my license: 1}}\n", [("resources.custom.my license", 2, 22, "my-license")]),
    "by habit": (C + "resources: {bandwidth: 1Gbps}\n", [("resources.bandwidth", 2, 13, "network")]),
    # the environment
    "requirements a list": (C + "environment: {requirements: [numpy]}\n", [("environment.requirements", 2, 29, "requirements.txt")]),
    "requirements elsewhere": (C + "environment: {requirements: /a/r.txt}\n", [("environment.requirements", 2, 29, "r.txt")]),
    "requirements above": (C + "environment: {requirements: ../r.txt}\n", [("environment.requirements", 2, 29, None)]),
    "requirements at the top": (C + "requirements: r.txt\n", [("requirements", 2, 1, "environment.requirements")]),
    # checkpoints
    "interval zero": (C + "checkpoint: {interval: 0}\n", [("checkpoint.interval", 2, 24, None)]),
    "interval in words": (C + "checkpoint: {interval: 10 minutes}\n", [("checkpoint.interval", 2, 24, "10m")]),
    # the file
    "a NaN among the params": (C + "params: {a: .nan}\n", [("params.a", 2, 13, None)]),
    "a number of 400 digits": (C + f"params: {{a: 1{'0' * 400}}}\n", [("", 2, 13, None)]),
    "a float beyond all": (C + "params: {a: 1e400}\n", [("params.a", 2, 13, None)]),
    "deep": (C + "params: {a: " + "[" * 40 + "]" * 40 + "}\n", [("", 2, 42, None)]),
    "indentation": ("command: x\nresources:\n  cpus: 1\n gpus: 2\n", [("", 4, 2, None)]),
    "a list under a name": ("command: x\n- y\n", [("", 2, 1, None)]),
}  # fmt: skip


def faults(text: str) -> list[tuple[str, int, int, str | None]]:
    with pytest.raises(SpecError) as caught:
        load_bytes(text.encode(), "train.yaml")
    assert {d["file"] for d in caught.value.details} == {"train.yaml"}
    return [(d["field"], d["line"], d["column"], d["nearest"]) for d in caught.value.details]


@pytest.mark.parametrize("name", TABLE)
def test_each_fault_has_its_place(name: str) -> None:
    text, expected = TABLE[name]
    assert sorted(faults(text), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("field", RESERVED)
def test_what_is_not_supported_yet_is_refused_by_name_with_what_to_do_instead(field: str) -> None:
    section, _, name = field.rpartition(".")
    text = f"command: x\n{section}:\n  {name}: 1\n" if section else f"command: x\n{name}: 1\n"
    with pytest.raises(SpecError) as caught:
        load_bytes(text.encode(), "train.yaml")
    place = "3:3" if section else "2:1"
    assert caught.value.message == f"train.yaml:{place}: {field}: {name!r} is not supported yet; {RESERVED[field][1]}"


def test_a_contradiction_is_said_in_words() -> None:
    with pytest.raises(SpecError) as caught:
        load_bytes(b"command: x\npython: a:b\n", "train.yaml")
    assert caught.value.message == (
        "train.yaml:2:1: python: is given besides 'command'; give one of them (an interpreter goes into environment.python)"
    )
