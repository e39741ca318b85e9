"""A world for EngineContract on the local engine: a home of its own, real agents, programs that bear a mark."""

import contextlib
import json
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

from waiting import deadline

from trainmaster.engines.local import starting
from trainmaster.engines.local.attempts import Attempts
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.local.settings import LocalSettings
from trainmaster.home import Home
from trainmaster.model.ids import AgentKey
from trainmaster.model.spec import CodeCopy
from trainmaster.ports.engine import Engine, Submission
from trainmaster.testing import builders
from trainmaster.testing.engine_contract import Behaviour, eventually
from trainmaster.wire import cgroups, names, processes

PROGRAMS = {
    Behaviour.SUCCEEDS: "exit 0",
    Behaviour.FAILS: "exit 3",
    Behaviour.CRASHES: "kill -SEGV $$",
    Behaviour.RUNS: "exec -a {mark} sleep 1000",
    Behaviour.STUBBORN: "trap '' TERM; exec -a {mark} sleep 1000",
    Behaviour.DAEMON: "( setsid bash -c 'exec -a {mark} sleep 1000' & ) ; exec -a {mark} sleep 1000",
}


class LocalWorld:
    """A home of its own; every process of its programs bears the world's mark as its name."""

    deadline_s = 30.0

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.mark = f"program-{uuid.uuid4().hex}"
        self.wakes = threading.Event()
        self._settings = LocalSettings(nodes=2, gpus_per_node=2)
        self._engines: list[LocalEngine] = []
        root.mkdir(exist_ok=True)
        self.restart()

    def engine(self) -> LocalEngine:
        return self._engines[-1]

    def restart(self) -> LocalEngine:
        self._engines.append(LocalEngine(self.home, self._settings, self.wakes.set))
        return self._engines[-1]

    def rival(self) -> Engine:
        self._engines.insert(0, LocalEngine(self.home, self._settings, self.wakes.set))
        return self._engines[0]

    def submission(self, behaviour: Behaviour, job: str = "train-1") -> Submission:
        return self.line(PROGRAMS[behaviour].format(mark=self.mark), job)

    def line(self, command: str, job: str = "train-1") -> Submission:
        """A program that says that it was started, then goes on so."""
        said = self.home.root / f"started.{job}"
        project = self.home.root / "project"
        project.mkdir(exist_ok=True)
        value = builders.job(
            f"echo started >> {said}; {command}", id=job, origin=builders.origin(str(project)), code=CodeCopy(in_place=True)
        )
        return builders.submission(value, credential="deadbeef")

    def pause(self) -> None:
        self.wakes.wait(0.02)
        self.wakes.clear()

    def agent(self, key: AgentKey) -> int:
        identity = Attempts(self.home).identity(key)
        assert identity is not None
        return identity.pid

    def kill_agent(self, key: AgentKey) -> None:
        os.kill(self.agent(key), signal.SIGKILL)

    @contextlib.contextmanager
    def stopped(self, key: AgentKey) -> Iterator[None]:
        """Its agent writes nothing meanwhile."""
        pid = self.agent(key)
        os.kill(pid, signal.SIGSTOP)
        stat = Path(f"/proc/{pid}/stat")
        try:
            deadline(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the agent to stand still")
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def processes(self, key: AgentKey) -> int:
        return len(self.marked())

    def marked(self) -> list[int]:
        """Every process named by the mark."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_marked(int(name))]

    def _is_marked(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            return command.startswith(self.mark.encode() + b"\0") and processes.start_ticks(pid) is not None
        return False

    def starts(self, key: AgentKey) -> int:
        with contextlib.suppress(FileNotFoundError):
            return (self.home.root / f"started.{key.job}").read_text().count("started")
        return 0

    def close(self) -> None:
        starting.stop_spawner(self.home)
        for record in filter(Path.is_file, self.home.root.glob(f"attempts/*/*/*/{names.AGENT}")):
            agent = json.loads(record.read_text())
            if processes.same_process(agent["pid"], agent["start_ticks"], agent["boot_id"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(agent["pid"], signal.SIGKILL)
        for pid in self.marked():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for orders in self.home.root.glob(f"attempts/*/*/*/{names.LAUNCH}"):
            for directory in json.loads(orders.read_text())["contained"]:
                cgroups.kill(directory)
                _remove(directory)
        for engine in self._engines:
            engine.close()


def _remove(directory: str) -> None:
    def removed() -> bool:
        with contextlib.suppress(OSError):
            os.rmdir(directory)
        return not os.path.exists(directory)

    deadline(removed, f"{directory} to be empty")


def with_spawner(root: Path) -> LocalWorld:
    world = LocalWorld(root)
    starting.start_spawner(world.home)
    eventually(world, lambda: starting.spawner_answers(world.home), "the spawner answers")
    return world
