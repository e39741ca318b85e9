"""Agents that have not been heard of for long: told beside the troubles of their job, for as long as it is so.

A silent agent is doubt, and ends nothing: its ranks may train. A cancel and the job's time limit end one that hangs.
"""

import time

from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job, NodePhase, State
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.views.resources import View

SILENT_S = 180.0  # an agent is heard of every few seconds, and asks for orders every half minute


def silent_agents(desk: Runtime, job: Job) -> list[View]:
    """One trouble for each agent of a running job that was heard of, and is not any more. A view of this moment."""
    if job.attempt is None or job.state not in (State.RUNNING, State.STOPPING):
        return []
    now_s, found = time.time(), list[View]()
    if time.monotonic() - desk.began_s < SILENT_S:
        return []  # the server was away, and agents have yet to find it again
    for beat in desk.services.metrics.heartbeats(job.id):
        key, silent_s = AgentKey.parse(beat.key), now_s - beat.time_s
        if key.attempt != job.attempt.number or key.node_index >= len(job.attempt.nodes) or silent_s < SILENT_S:
            continue
        node = job.attempt.nodes[key.node_index]
        if node.phase is not NodePhase.RUNNING or node.lost:
            continue
        text = (
            f"nothing was heard of its agent for {silent_s / 60:.0f} min: what it did since is not known, "
            f"and its ranks may go on; if it hangs, `tm cancel {job.id}` ends it"
        )
        found.append({"topic": "agent", "text": text, "attempt": key.attempt, "node": key.node_index, "since_s": beat.time_s})
    return found
