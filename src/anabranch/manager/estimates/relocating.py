"""Relocation: the work for the groups goes along with them, at the receiver's pace, and so does their state."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.manager.actions import RelocateGroups
from anabranch.manager.arbitration.proposal import Estimate
from anabranch.manager.estimates.estimator import READ_SECONDS_PER_BYTE, Circumstances
from anabranch.manager.estimates.pressure import relief


def estimate_relocation(actions: Sequence[RelocateGroups], circumstances: Circumstances) -> Estimate:
    """Moves between the same two processors."""
    workload, plan = circumstances.workload, circumstances.snapshot.plan
    loads = {p: float(workload.loads[p]) for action in actions for p in (action.sender, action.receiver)}
    after, state = dict(loads), dict.fromkeys(loads, 0.0)
    for action in actions:
        sender, receiver = action.sender, action.receiver
        for operator in plan.members(action.family):
            work = workload.work_of(operator, action.groups)
            after[sender] -= workload.seconds_for(sender, operator, work, receiver)
            after[receiver] += workload.seconds_for(receiver, operator, work, sender)
        grown = action.bytes / max(circumstances.view(sender).active_bytes, 1) * float(workload.growth[sender])
        state[sender] -= action.bytes + grown
        state[receiver] += action.bytes + grown
    relieved = relief(state, circumstances)
    costs = READ_SECONDS_PER_BYTE * sum(action.bytes for action in actions)
    return Estimate(
        max(loads.values()), max(after.values()), circumstances.lasting, relieved.seconds, costs, relieved.pressing
    )
