"""The record of one decision: what its steps share, and the plan that they draft."""

from collections.abc import Mapping

from trainmaster.scheduling.model.jobs import Kind
from trainmaster.scheduling.model.reasons import Refusal
from trainmaster.scheduling.model.snapshot import Handover, Placement, Plan, Snapshot
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.prediction.predictor import Foresight
from trainmaster.scheduling.preemption.handover import Promises
from trainmaster.scheduling.preemption.victims import Stage
from trainmaster.scheduling.reservation.reserved import Reserved
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.scheduling.steps.fit import Fitting, Reasons
from trainmaster.scheduling.steps.outlook import Outlook


class Draft:
    """The decisions so far."""

    def __init__(self) -> None:
        self.placements: list[Placement] = []
        self.handovers: list[Handover] = []
        self.refused: dict[Kind, Refusal] = {}
        self.patient: dict[str, Refusal] = {}  # jobs that wait for a reason of their own: a better place, a window
        self.terms: dict[str, Mapping[str, float]] = {}  # of jobs that start, if the order is a sum


class Decision:
    """One decision over a state. Nodes that one step takes are taken for the next."""

    def __init__(self, snapshot: Snapshot, policy: Policy, state: ClusterState) -> None:
        self.snapshot, self.policy, self.state = snapshot, policy, state
        self.view = policy.study(snapshot, state.learned)
        self.draft = Draft()
        self.reserved = Reserved(state.space, policy.depth(snapshot))
        self.promises = Promises(snapshot, state)
        foresight = self.view if isinstance(self.view, Foresight) else None
        self.outlook = Outlook(snapshot, state, self.promises, policy, foresight)
        self.stage = Stage(snapshot, state, self.view)
        self.fitting = Fitting(snapshot, state, self.reserved)
        state.space.cells.prefer(policy.taste(snapshot, state.learned))

    def plan(self) -> Plan:
        """The plan. Handovers are undone in the space: their victims still run."""
        rest, state = self.fitting.reasons(), self.state
        for handover in self.draft.handovers:
            state.space.give(handover.grant)
            state.tally.enter(self.snapshot.waiting[handover.job].kind, handover.grant, -1)
        self.promises.end()
        return self.plan_of(rest)

    def plan_of(self, rest: Reasons) -> Plan:
        """The draft as a plan. `rest` gives the reasons of all jobs that have no other."""
        draft, reserved, promises = self.draft, self.reserved, self.promises
        return Plan(
            tuple(draft.placements), tuple(draft.handovers), tuple(reserved.made), draft.refused, reserved.depth,
            self.policy.name, promises.told, tuple(promises.broken), rest, draft.patient, draft.terms,
        )  # fmt: skip
