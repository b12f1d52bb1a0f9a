"""Reallocation: all that an operator does goes to one processor. If it ran fused, every batch takes a round more."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.manager.actions import ReallocateOperator
from anabranch.manager.arbitration.proposal import Estimate
from anabranch.manager.estimates.estimator import PLAN_SECONDS, READ_SECONDS_PER_BYTE, Circumstances, touched_by
from anabranch.manager.estimates.pressure import relief


def estimate_reallocation(actions: Sequence[ReallocateOperator], circumstances: Circumstances) -> Estimate:
    """Operators that go to processors; each of them may be on several now."""
    snapshot, workload = circumstances.snapshot, circumstances.workload
    touched = sorted({p for action in actions for p in touched_by(action, snapshot)})
    after = {p: float(workload.loads[p]) for p in touched}
    state, rounds, read = dict.fromkeys(touched, 0.0), 0, 0.0
    for action in actions:
        number = action.operator
        rounds += snapshot.plan.families.count(snapshot.plan.operators[number].family) > 1
        for p in touched:
            if p == action.processor:
                continue
            moved = float(workload.operators[p, number])
            work = moved / float(workload.paces[p, number]) if workload.paces[p, number] else 0.0
            size = sum(view.active_bytes for view in circumstances.view(p).operators if view.operator == number)
            after[p] -= moved
            after[action.processor] += workload.seconds_for(action.processor, number, work, p)
            state[p] -= size
            state[action.processor] += size
            read += size
    relieved = relief(state, circumstances)
    return Estimate(
        workload.busiest(touched),
        max(after.values()) + snapshot.round_seconds * rounds,
        circumstances.lasting,
        relieved.seconds,
        PLAN_SECONDS + READ_SECONDS_PER_BYTE * read,
        relieved.pressing,
    )
