"""Commands that run beside the ranks, inside the attempt: `tm exec`.

The main loop starts them as children of this agent, with the environment and work directory of a rank. They end with the
ranks: an interactive shell ignores SIGTERM, so each is killed soon after, whatever the grace period. Each command has a
thread that sends its output to the server (`exec_streams`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import time

from trainmaster.agent.processes import spawn
from trainmaster.agent.processes.process_tree import descendants, send
from trainmaster.agent.supervise.exec_streams import Channel, close, open_pipes, open_terminal, resize
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Callable, Optional

    from trainmaster.agent.launch.start import Startup
    from trainmaster.agent.processes.rank import Rank
    from trainmaster.wire.messages import Terminal
else:
    import _signal as signal  # `signal` itself is slow to import

_GRACE_S = 2.0  # from SIGTERM to SIGKILL
_LAST_OUTPUT_S = 3.0  # for the last output of all commands, when the attempt is over
_NO_PY_SPY = (
    "py-spy is neither on the job's PATH nor beside the server: install it in either, `pip install py-spy`, "
    "or look at the process yourself: tm exec JOB -- ..."
)


class Exec:
    """One command. `child` is set once it was started, and None if it never was."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.child: Optional[spawn.Child] = None
        self.kill_s: Optional[float] = None  # when SIGKILL is due
        self.stopping = False  # because its person asked for it, or is gone
        self.terminal: Optional[int] = None  # our end of its terminal, while it runs

    def resize(self, terminal: Terminal) -> None:
        """Its person's terminal has another size now, or the same."""
        if self.terminal is not None:
            resize(self.terminal, terminal)

    def close_terminal(self) -> None:
        """Idempotent."""
        close((self.terminal,))
        self.terminal = None


class ExecCommands:
    """All commands of this attempt on this node, by id. An order that arrives again starts nothing again."""

    def __init__(self, start: Startup, note: Callable[[list[int]], None]) -> None:
        self._start = start
        self._launch = start.launch
        self._note = note  # called with processes that are about to be killed because the ranks have ended
        self._known: dict[str, Exec] = {}

    @property
    def children(self) -> list[spawn.Child]:
        """The running commands, for the thread that waits for child processes."""
        return [one.child for one in self._known.values() if one.child is not None and one.child.running]

    def take(self, order: dict[str, Any]) -> None:
        """Start the command if it is new; end it if the order says stop."""
        id = str(order["id"])
        if id not in self._known:
            self._known[id] = Exec(Channel(self._launch, id, self._start.wake))
            if not order.get("stop"):
                self._begin(self._known[id], order)
        elif order.get("terminal"):
            self._known[id].resize(order["terminal"])
        if order.get("stop"):
            self._end(self._known[id])

    def step(self, now_s: float) -> None:
        """Report commands that have ended, end those whose client is gone, and kill those that do not end."""
        for one in self._known.values():
            child = one.child
            if child is None:
                continue
            if not child.running:
                one.close_terminal()
                one.channel.over(child.exit_code, child.signal, child.stopped_by_us and not one.stopping)
            elif one.channel.abandoned and not one.stopping:
                self._end(one)
            elif one.kill_s is not None and now_s >= one.kill_s:
                one.kill_s = now_s + _GRACE_S
                if not any(rank.running for rank in self._start.ranks):
                    self._note(self._tree(child.pid))
                self._signal(child.pid, signal.SIGKILL)

    @property
    def due_s(self) -> Optional[float]:
        """When `step` has something to do next."""
        due = [one.kill_s for one in self._known.values() if one.kill_s is not None and one.child and one.child.running]
        return min(due) if due else None

    def processes(self) -> set[int]:
        """All processes of the running commands."""
        return {pid for child in self.children for pid in self._tree(child.pid)}

    def hang_up(self, now_s: float) -> None:
        """Every rank has ended, and the commands have got SIGTERM: a terminal gets SIGHUP too, and SIGKILL follows."""
        for one in self._known.values():
            if one.child is not None and one.child.running and one.kill_s is None:
                one.kill_s = now_s + _GRACE_S
                if one.terminal is not None:
                    self._signal(one.child.pid, signal.SIGHUP)

    def finish(self) -> None:
        """All commands have ended: wait for their last output to be sent."""
        self.step(time.monotonic())
        until_s = time.monotonic() + _LAST_OUTPUT_S
        for one in self._known.values():
            one.channel.join(until_s - time.monotonic())

    def _begin(self, one: Exec, order: dict[str, Any]) -> None:
        rank = self._meant(order)
        if rank is None:
            one.channel.failed("no such rank or role runs on this node")
            return
        if not any(one.running for one in self._start.ranks):
            one.channel.failed("every rank of this node has ended")
            return
        environment = {**rank.environment, names.ENV_SDK: self._start.directory.file("exec.sdk")}
        environment.pop("TORCHELASTIC_ERROR_FILE", None)  # an error of the command is not an error of the rank
        if order.get("terminal"):
            environment["TERM"] = str(order["terminal"]["term"])
            environment.pop("COLUMNS", None)  # of the rank, which has no terminal; this one says its own size
        try:
            argv = self._stacks(order, environment) if order.get("stacks") else [str(word) for word in order["command"]]
        except LookupError as error:
            one.channel.failed(str(error.args[0]))
            return
        child = spawn.Child(argv, environment)
        try:
            told = self._spawn(one, child, order)
        except OSError as error:
            told = f"start {error.errno or 0} {error.strerror}"
        if told:
            child.running = False
            one.channel.failed(spawn.explain(told, child, self._launch))
            return
        one.child = child
        one.channel.start()

    def _spawn(self, one: Exec, child: spawn.Child, order: dict[str, Any]) -> str:
        """Start the child with pipes, or with a terminal. Returns the error, empty if it runs. Raises: OSError."""
        terminal = order.get("terminal")
        theirs, ours = open_terminal(terminal) if terminal else open_pipes(bool(order.get("stdin")))
        child.terminal = bool(terminal)
        try:
            told = spawn.answer(spawn.start(child, self._launch, theirs, spawn.highest_descriptor()))
            one.terminal = os.dup(ours[1]) if terminal and not told else None
        except OSError:
            close(ours)
            raise
        finally:
            close(theirs)
        if told:
            os.waitpid(child.pid, 0)
            close(ours)
            return told
        one.channel.attach(ours)
        return ""

    def _meant(self, order: dict[str, Any]) -> Optional[Rank]:
        """The rank or role whose environment the command gets; the first rank unless the order names one."""
        role, number = order.get("role"), order.get("rank")
        processes = [*self._start.ranks, *self._start.roles]
        if role is not None:
            return next((one for one in processes if one.role == role), None)
        if number is not None:
            return next((one for one in processes if one.role is None and one.number == number), None)
        return processes[0] if processes else None

    def _end(self, one: Exec) -> None:
        """Send SIGTERM to the command and its descendants; SIGKILL follows."""
        if one.child is None or not one.child.running or one.stopping:
            return
        one.stopping = True
        one.child.stopped_by_us = True
        one.kill_s = time.monotonic() + _GRACE_S
        self._signal(one.child.pid, signal.SIGTERM)

    def _signal(self, head: int, number: int) -> None:
        for pid in self._tree(head):
            send(pid, number)

    def _tree(self, head: int) -> list[int]:
        """The processes of a command: its descendants, and what else is in its session."""
        below = {head, *descendants(head)}
        return [pid for pid in descendants(os.getpid()) if pid in below or _session(pid) == head]

    def _stacks(self, order: dict[str, Any], environment: dict[str, str]) -> list[str]:
        """A shell command that dumps the Python stacks of the ranks. Raises: LookupError, whose text is shown."""
        own, servers = shutil.which("py-spy", path=environment.get("PATH", "")), order.get("py_spy")
        program = own or (servers if servers and os.access(str(servers), os.X_OK) else None)
        if program is None:
            raise LookupError(_NO_PY_SPY)
        wanted = (order.get("rank"), order.get("role"))
        lines = ["code=0"]
        for one in [*self._start.ranks, *self._start.roles]:
            if one.running and (wanted == (None, None) or wanted == (one.number if one.role is None else None, one.role)):
                for pid in [one.pid, *descendants(one.pid)]:
                    if _is_python(pid):
                        lines.append(f"echo {shlex.quote(f'== {one.label}, process {pid} ==')}")
                        lines.append(f"{shlex.quote(str(program))} dump --pid {pid} || code=1")
        if len(lines) == 1:
            raise LookupError("no Python process runs here: there are no stacks to show")
        return ["sh", "-c", "\n".join([*lines, "exit $code"])]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _is_python(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(("python", "pypy"))
    except OSError:
        return False
