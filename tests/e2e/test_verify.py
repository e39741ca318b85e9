"""`tm storage verify`: one byte is changed in each kind of stored file, and each is named."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Tm, server
from waiting import deadline

SAVES = """
import json, os
for step in (1, 2):
    print(f"step {step}: loss {1 / step}", flush=True)
    open("part", "w").write(json.dumps({"step": step}))
    os.rename("part", f"ck-{step}.json")
open("plot.txt", "w").write("a plot")
"""


@pytest.fixture
def tm(tmp_path: Path) -> Iterator[Tm]:
    with server(tmp_path) as tm:
        yield tm


def test_every_kind_of_stored_file_is_read_and_what_is_damaged_is_named(tm: Tm) -> None:
    git = ["git", "-C", str(tm.work), "-c", "user.email=a@b", "-c", "user.name=a"]
    tm.file("saves.py", SAVES)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    tm.file("saves.py", f"{SAVES}\n# changed\n")
    submit = ("--name", "saves", "--checkpoint", "ck-{step}.json", "--artifact", "plot.txt", "--", "python3", "saves.py")
    job = tm.ended(tm.submit(*submit))["id"]
    stored = sorted(path for path in tm.home.blobs.rglob("*") if path.is_file() and ".part" not in path.name)
    whole = tm.json("storage", "verify")
    assert (whole["blobs"], whole["bytes"], whole["damaged"]) == (len(stored), sum(path.stat().st_size for path in stored), [])
    expected = {
        "code/objects": ("code saves.py", [job]), "code/trees": ("list of the files of a code copy", [job]), "provenance/diffs": ("patch", [job]),
        "artifacts": ("artifact plot.txt", [job]), "checkpoints": ("checkpoint 0001-", [job]),
    }  # fmt: skip
    for path in stored:
        name = str(path.relative_to(tm.home.blobs))
        data = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        found = tm("storage", "verify", "--json", "--repair")
        (damaged,) = json.loads(found.out)["damaged"]
        if name.startswith("provenance/environments"):  # the home has another copy
            assert (damaged["what"], damaged["repaired"], path.read_bytes(), found.code) == ("environment record", True, data, 0)
            continue
        what, jobs = next(value for begin, value in expected.items() if name.startswith(begin))
        assert (damaged["name"], damaged["repaired"], damaged["jobs"], found.code) == (name, False, jobs, 1), name
        assert damaged["what"].startswith(what), name
        path.write_bytes(data)
    assert "all are as their digests say" in tm("storage", "verify").err
    (lost,) = [path for path in stored if path.read_text(errors="replace").endswith("# changed\n") and "objects" in path.parts]
    for path in (lost, *(path for path in stored if path.parent.name in ("diffs", "environments") or "artifacts" in path.parts)):
        path.unlink()
    missing = {one["what"]: one["jobs"] for one in json.loads(tm("storage", "verify", "--json").out)["damaged"]}
    whats = ("code saves.py", "artifact plot.txt", "patch", "environment record")
    assert missing == {f"{what}: missing": [job] for what in whats}
    assert [one["what"] for one in json.loads(tm("storage", "verify", "--json", "--repair").out)["damaged"] if one["repaired"]] == [
        "environment record: missing"
    ]


def test_a_damaged_checkpoint_is_on_record_and_never_used_again(tm: Tm) -> None:
    tm.file("saves.py", SAVES)
    job = tm.ended(tm.submit("--name", "saves", "--checkpoint", "ck-{step}.json", "--", "python3", "saves.py"))["id"]
    first, newest = tm.json("show", job)["checkpoints"]
    (stored,) = (tm.home.blobs / "checkpoints" / job / newest["id"]).rglob("ck-2.json")
    stored.chmod(0o600)
    stored.write_bytes(b"{}")
    assert tm("storage", "verify").code == 1
    shown = deadline(lambda: found if not (found := tm.json("show", job))["checkpoints"][1]["good"] else None, "the record")
    assert [one["good"] for one in shown["checkpoints"]] == [True, False]
    assert any("damaged" in one["text"] and "step 2" in one["text"] for one in shown["troubles"])
    assert "removed 1 older checkpoint" in tm("storage", "gc", "--older-checkpoints", "--yes", "--grace", "0s").err
    left = deadline(lambda: found if len(found := tm.json("show", job)["checkpoints"]) == 1 else None, "the removal")
    assert [one["id"] for one in left] == [first["id"]]


def test_older_checkpoints_stay_while_the_last_good_one_is_not_whole_in_the_store(tm: Tm) -> None:
    """The older ones were removed, and nothing was left of the training."""
    tm.file("saves.py", SAVES)
    job = tm.ended(tm.submit("--name", "saves", "--checkpoint", "ck-{step}.json", "--", "python3", "saves.py"))["id"]
    first, newest = tm.json("show", job)["checkpoints"]
    (stored,) = (tm.home.blobs / "checkpoints" / job / newest["id"]).rglob("ck-2.json")
    data = stored.read_bytes()
    stored.unlink()
    collected = tm("storage", "gc", "--older-checkpoints", "--yes", "--grace", "0s")
    assert "removed 0 older checkpoints" in collected.err
    assert "all checkpoints of 1 job stay: the last good one is not whole in the store" in collected.err
    assert [one["id"] for one in tm.json("show", job)["checkpoints"]] == [first["id"], newest["id"]]
    assert tm("storage", "verify").code == 1
    told = "checkpoints that the last tm storage verify found damaged or missing in the store, if not stored again since: step 2"
    assert told in tm.json("show", job)["notes"], "it was listed as kept"
    stored.write_bytes(data)
    assert "removed 1 older checkpoint" in tm("storage", "gc", "--older-checkpoints", "--yes", "--grace", "0s").err
