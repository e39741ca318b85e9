"""A checkpoint's step that the program did not name is marked wherever a person or a script reads it."""

import pytest

from trainmaster.agent.checkpoints.restore_files import Unreadable
from trainmaster.agent.checkpoints.unstored import at_step
from trainmaster.agent.transport.upload import _Waiting
from trainmaster.model import events as ev
from trainmaster.model.checkpoints import Checkpoint, Part, likeliest
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.server.views.event_text import sentence
from trainmaster.server.views.resources import checkpoint_view, lineage_view


def said(step: int | None, approximate: bool) -> dict[str, object]:
    """What each place says of a checkpoint of this step."""
    checkpoint = Checkpoint("0001-00002", step, 1, (), 1, approximate)
    point = {"id": "0001-00002", "step": step, "approximate": approximate, "root": "", "digests": {}}
    lineage = lineage_view(Lineage(Relation.FORK, "a-1", checkpoint, "a-1"))
    assert lineage is not None
    return {
        "messages of the server": checkpoint.label,
        "events": sentence(ev.CheckpointStaged(1, "0001-00002", step, Part(0, "", 1, 1), 1, approximate, 0)),
        "where a restart begins": at_step(step, approximate, "ckpt.pt"),
        "a checkpoint that cannot be read": str(Unreadable(point, OSError(5, "I/O"))),  # type: ignore[arg-type]
        "a checkpoint that waits for its upload": _Waiting("staged", {"id": "x", "step": step, "approximate": approximate, "parts_expected": 1}).name,
        "JSON of a checkpoint": checkpoint_view(checkpoint)["approximate"],
        "JSON of a fork": lineage["approximate"],
    }


@pytest.mark.parametrize(("approximate", "place"), [(True, "about step 12"), (False, "step 12")])
def test_every_place_tells_an_approximate_step_from_a_named_one(approximate: bool, place: str) -> None:
    assert said(12, approximate) == {
        "messages of the server": f"checkpoint 0001-00002 of {place}",
        "events": f"checkpoint 0001-00002 at {place}",
        "where a restart begins": f"at {place}",
        "a checkpoint that cannot be read": f"checkpoint 0001-00002 of {place} could not be read: [Errno 5] I/O",
        "a checkpoint that waits for its upload": f"of {place}",
        "JSON of a checkpoint": approximate,
        "JSON of a fork": approximate,
    }


def test_an_unknown_step_is_never_shown_as_one() -> None:
    assert not [place for place, text in said(None, True).items() if isinstance(text, str) and "step " in text]


@pytest.mark.parametrize(
    ("saved", "meant"),
    [
        ("ckpt_4 best_x_epoch_4", "ckpt_4"),
        ("best_x_epoch_4 ckpt_4", "ckpt_4"),
        ("ckpt_4 last", "last"),
        ("ckpt_4 ~last", "ckpt_4"),
        ("best_x_epoch_4 !ckpt_4", "best_x_epoch_4"),
        ("best.pt", "best.pt"),
    ],
)
def test_of_several_checkpoints_of_one_step_the_likeliest_is_meant(saved: str, meant: str) -> None:
    """`~` before a name: its step is approximate; `!`: it is corrupt."""
    found = [Checkpoint(one, 4, 1, (), approximate="~" in one, good="!" not in one, name=one.strip("~!")) for one in saved.split()]
    assert likeliest(found).name == meant
