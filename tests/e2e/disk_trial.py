"""One job on a disk that fails at one place of the code for a moment, and the laws that must hold whatever the place is.

The program writes a checkpoint at each of its steps, kills itself once in its first attempt, and writes where it began.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from running import ENDED, Tm
from waiting import deadline

from trainmaster import live_processes
from trainmaster.client.api import Client
from trainmaster.errors import TrainmasterError
from trainmaster.testing.survival import RankRecord, overlaps

ERRORS = ("EIO", "ENOSPC", "EACCES", "EMFILE", "short")
SHIM = Path(__file__).parent / "disk_faults"
STEPS = 12
_PROGRAM = """
mkdir -p out; n=0
for f in out/ck-*; do [ -e "$f" ] && s=${f#out/ck-} && [ "$s" -gt $n ] && n=$s; done
w=WITNESS/$TRAINMASTER_JOB.$TRAINMASTER_ATTEMPT.$$
read up _ </proc/uptime; echo "$TRAINMASTER_JOB $TRAINMASTER_ATTEMPT $$ start $up $n" >"$w"
while [ $n -lt STEPS ]; do
  n=$((n+1)); echo "step $n"; echo "data $n" >out/part; mv out/part out/ck-$n
  [ $TRAINMASTER_ATTEMPT = 1 ] && [ $n = 8 ] && sleep 0.3 && rm -rf out && kill -9 $$
  sleep 0.2
done
echo "reached $n" >result.txt
read up _ </proc/uptime; echo "$TRAINMASTER_JOB $TRAINMASTER_ATTEMPT $$ end $up" >>"$w"
"""


@dataclass
class Trial:
    """A server of one node whose disk can be made to fail."""

    tm: Tm
    directory: Path
    seconds: float = 1.0
    known: set[str] = field(default_factory=set)

    def sites(self) -> list[str]:
        """Every place that has made a call so far, in order."""
        listed = self.directory / "sites"
        return sorted(set(listed.read_text().splitlines())) if listed.exists() else []

    def fail(self, site: str, error: str) -> None:
        """From its next call on this place fails for a moment."""
        (self.directory / "hit").unlink(missing_ok=True)
        part = self.directory / "part"
        part.write_text(json.dumps({"site": site, "error": error, "seconds": self.seconds}))
        part.replace(self.directory / "active")

    def heal(self) -> bool:
        """The disk is well again; whether the fault was met."""
        (self.directory / "active").unlink(missing_ok=True)
        return (self.directory / "hit").exists()

    def run(self) -> list[str]:
        """One job from its submission to its end; every law that it broke."""
        witness = self.directory / "witness"
        witness.mkdir(exist_ok=True)
        program = _PROGRAM.replace("WITNESS", str(witness)).replace("STEPS", str(STEPS))
        spec = {
            "command": program, "name": "w", "checkpoint": {"path": "out/ck-*", "keep": 3}, "artifacts": ["result.txt"],
            "restarts": {"infrastructure": 20},
        }  # fmt: skip
        body = {"spec": spec, "origin": {"variables": {"PATH": os.defpath}}, "code": {}}
        key = os.urandom(8).hex()
        job = str(deadline(lambda: self._ask(lambda client: client.submit(body, key)), "the submit", 30.0, 0.1))
        ended = deadline(lambda: self._ended(job), f"{job} to end", 60.0, 0.1)
        return list(self._problems(ended, self._testimonies(witness, job)))

    def _ask(self, question: Any) -> Any:
        """The answer, or None: an error with words is an answer too, and the same key may be used again."""
        try:
            info = live_processes.running(self.tm.home)
            if info is None:
                return None
            with Client(info.url, self.tm.home.token_file.read_text().strip()) as client:
                return question(client)
        except (TrainmasterError, OSError):
            return None

    def _ended(self, job: str) -> dict[str, Any] | None:
        shown = self._ask(lambda client: client.job(job))
        return shown if shown is not None and shown["state"] in ENDED else None

    def _testimonies(self, witness: Path, job: str) -> list[tuple[RankRecord, int]]:
        found = []
        for path in sorted(witness.glob(f"{job}.*")):
            lines = [line.split() for line in path.read_text().splitlines()]
            end_s = float(lines[1][4]) if len(lines) > 1 else None
            found.append((RankRecord(lines[0][0], int(lines[0][1]), int(lines[0][2]), float(lines[0][4]), end_s), int(lines[0][5])))
        return sorted(found, key=lambda one: one[0].attempt)

    def _problems(self, job: dict[str, Any], seen: list[tuple[RankRecord, int]]) -> Iterator[str]:
        if job["state"] != "succeeded":
            yield f"{job['id']} is {job['state']}: {job['reason']}"
        yield from overlaps([testimony for testimony, _ in seen])
        if sum(testimony.end_s is not None for testimony, _ in seen) != 1:
            yield f"{job['id']} ran to its end {sum(t.end_s is not None for t, _ in seen)} times"
        first = {attempt["number"]: attempt for attempt in job["attempts"]}
        for testimony, began in seen:
            before = first[testimony.attempt]["placed_s"]
            had = [c for c in job["checkpoints"] if c["committed_s"] < before and c["attempt"] < testimony.attempt]
            if had and began == 0:
                yield f"attempt {testimony.attempt} began from nothing, with {[c['step'] for c in had]} on record"
        bad = [checkpoint["id"] for checkpoint in job["checkpoints"] if not checkpoint["good"]]
        if bad:
            yield f"{bad} are called bad, and nothing is wrong with their bytes"
        kept = {artifact["path"] for artifact in job["artifacts"]}
        if "result.txt" not in kept and not job["notes"] and not job["troubles"]:
            yield "result.txt is not kept, and nothing says so"


@contextmanager
def trial(directory: Path) -> Iterator[Trial]:
    """A server with one node, started on a disk that is well."""
    faults = directory / "faults"
    faults.mkdir()
    tm = Tm(directory)
    paths = [str(SHIM), *filter(None, [tm.environment.get("PYTHONPATH")])]
    tm.environment |= {"DISK_FAULTS": str(faults), "PYTHONPATH": os.pathsep.join(paths)}
    tm.ok("up", "--nodes", "1")
    try:
        yield Trial(tm, faults)
    finally:
        tm("down", "--cancel")
