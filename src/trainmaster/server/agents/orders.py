"""Derives an agent's orders from the state of its job. Pure: the orders are recomputed on every call, so none can get lost."""

import hashlib
import json

from trainmaster.lifecycle.effects import grace_s
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job, State
from trainmaster.wire.messages import Order


def superseded(job: Job, key: AgentKey) -> bool:
    """The fence: whether an attempt newer than this agent's exists."""
    return job.attempt is not None and key.attempt < job.attempt.number


def over(job: Job, key: AgentKey) -> bool:
    """Whether control considers this agent's attempt ended, even if some of its processes still run."""
    if job.state.ended or superseded(job, key):
        return True
    current = job.attempt
    return current is not None and key.attempt == current.number and current.ended_s is not None


def orders(job: Job, key: AgentKey) -> list[Order]:
    """The orders for the agent, which describe the state that it should reach."""
    current = job.attempt
    if over(job, key):
        return [Order(order="stop", grace_s=0.0, reason="this attempt is over")]
    if current is None or key.attempt != current.number:
        return []
    wanted = []
    if current.master_address is not None and current.master_port is not None:
        wanted.append(Order(order="rendezvous", address=current.master_address, port=current.master_port))
    if job.state is State.STOPPING:
        why = job.stopping_for.value if job.stopping_for is not None else "stop"
        wanted.append(Order(order="stop", grace_s=grace_s(job), reason=why))
    return wanted


def version(wanted: list[Order]) -> int:
    """A hash of a list of orders: equal lists have equal versions; version 0 means no orders."""
    if not wanted:
        return 0
    text = json.dumps(wanted, sort_keys=True).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:6], "big") or 1
