"""A process of the job: a rank of the training program, or a role beside the ranks."""

from __future__ import annotations

import os

from trainmaster.agent.processes.spawn import Child
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

ROLE_RANK = -1  # the number of a role


class Rank(Child):
    """One training process (`number` is its RANK), or a role: then `role` is its name and `number` is ROLE_RANK."""

    def __init__(self, number: int, directory: str, role: Optional[str] = None) -> None:
        super().__init__([], {})
        self.number = number
        self.role = role
        self.label = f"rank {number}" if role is None else f"role {role}"
        log = names.rank_log(number) if role is None else names.role_log(role)
        sdk = names.rank_sdk(number) if role is None else names.role_sdk(role)
        self.log_path = os.path.join(directory, log)
        self.sdk_path = os.path.join(directory, sdk)
        self.error_path = os.path.join(directory, names.torch_error(number)) if role is None else ""
