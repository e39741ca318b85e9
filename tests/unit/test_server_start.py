"""What the two server processes import, and how they get the lock that makes each the only one."""

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import meanwhile

from trainmaster.compose import hold_alone
from trainmaster.errors import ConflictError
from trainmaster.home import Home

ONLY_THE_API = ("fastapi", "starlette", "uvicorn", "anyio", "h11", "yaml", "alembic", "rich")


def test_control_loads_nothing_of_the_api() -> None:
    program = f"import sys, json, trainmaster.server.process.processes\nprint(json.dumps([n for n in {ONLY_THE_API!r} if n in sys.modules]))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == [], "it starts twice as fast and takes 15 MB less without"


def test_a_lock_let_go_of_in_a_moment_is_waited_for(tmp_path: Path) -> None:
    home = Home(tmp_path)
    dying = home.lock("control").open("a")
    fcntl.flock(dying, fcntl.LOCK_EX)
    with meanwhile(0.05, dying.close), hold_alone(home, "control") as lock:
        assert not lock.closed


def test_a_lock_held_for_good_is_refused_in_words(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with hold_alone(home, "api"), pytest.raises(ConflictError, match=f"another api process runs on {tmp_path}"):
        hold_alone(home, "api")
