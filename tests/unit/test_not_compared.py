"""What a comparison says that it did not look at: never "equal" of what nobody digested."""

from dataclasses import replace

from trainmaster.model.job import Job
from trainmaster.model.spec import CodeCopy, DataVersion, Environment
from trainmaster.server.record.not_compared import not_compared
from trainmaster.testing import builders


def made(id: str, **changes: object) -> Job:
    return replace(builders.job(), id=id, **changes)


def test_what_is_not_digested_is_said_with_its_reason() -> None:
    """T4: a linked file, a large data set, a package from elsewhere and a directory on PYTHONPATH were called equal."""
    plain = made("a-1")
    spec = replace(
        plain.spec, data={"train": "/d", "url": "s3://b/x", "whole": "/w"},
        environment=Environment(variables={"PYTHONPATH": "/lib"}),
    )  # fmt: skip
    data = (DataVersion("train", "/d", "a" * 64, False, 1, 1), DataVersion("url", "s3://b/x", None, False, 0, 0),
            DataVersion("whole", "/w", "b" * 64, True, 1, 1))  # fmt: skip
    origin = replace(plain.origin, editable={"mine": "/src/mine"})
    rich = made("b-1", spec=spec, data=data, origin=origin, code=replace(CodeCopy(), digest="c" * 64, linked=2))
    assert not_compared([plain, rich]) == [
        "files that were linked to the work directory, not copied (b-1)",
        "data train: only names, sizes and times are compared, because it is large or cannot be read whole (b-1)",
        "data url: only its address is recorded (b-1)",
        "package mine, imported from /src/mine and not from the copy (b-1)",
        "what PYTHONPATH leads to: /lib (b-1)",
    ]
    assert not_compared([rich, rich])[0] == "files that were linked to the work directory, not copied"
    assert not_compared([plain, plain]) == []
