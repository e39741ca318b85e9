"""Reports agents that have sent nothing for a long time, as troubles of their job, while the silence lasts.

Silence is doubt, not proof, so it ends nothing: the ranks may still train. A cancel or the time limit ends a hung job.
"""

import time

from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job, NodePhase, State
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.views.resources import View

SILENT_S = 180.0  # agents send something every few seconds and ask for orders at least every half minute


def silent_agents(api: Runtime, job: Job) -> list[View]:
    """One trouble for each agent of a running job that has fallen silent. Computed for this moment, not recorded."""
    if job.attempt is None or job.state not in (State.RUNNING, State.STOPPING):
        return []
    now_s, found = time.time(), list[View]()
    if time.monotonic() - api.activity.started_s < SILENT_S:
        return []  # the api was down: give agents time to reconnect
    for beat in api.services.metrics.heartbeats(job.id):
        key, silent_s = AgentKey.parse(beat.key), now_s - beat.time_s
        if key.attempt != job.attempt.number or key.node_index >= len(job.attempt.nodes) or silent_s < SILENT_S:
            continue
        node = job.attempt.nodes[key.node_index]
        if node.phase is not NodePhase.RUNNING or node.lost:
            continue
        text = (
            f"its agent has sent nothing for {silent_s / 60:.0f} min, so its present state is unknown; "
            f"its ranks may still run; if it hangs, `tm cancel {job.id}` ends it"
        )
        found.append({"topic": "agent", "text": text, "attempt": key.attempt, "node": key.node_index, "since_s": beat.time_s})
    return found
