"""Holding rows back: the others need not wait for a processor that is late, for one batch.

What waits has to be worked on all the same. That is a gain if the processor is itself again by then, and the longer it
has been late the less likely that is: a processor that was late in `PASSING` batches on end is slow, and is not helped.
What one is relieved of beyond the next busiest processor helps nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.manager.actions import HoldGroups
from anabranch.manager.arbitration.proposal import Estimate
from anabranch.manager.estimates.estimator import Circumstances

PASSING = 4
# What it takes to write rows that wait and read them again, as a share of the work for them.
WAITING = 0.05


def estimate_holding(actions: Sequence[HoldGroups], circumstances: Circumstances) -> Estimate:
    """Rows of groups of one processor wait for a batch."""
    workload, plan = circumstances.workload, circumstances.snapshot.plan
    processor = actions[0].processor
    waiting = {view.operator: view.held for view in circumstances.view(processor).operators}

    def seconds(operator: int, work: float) -> float:
        return workload.seconds_for(processor, operator, work, processor)

    held = 0.0
    for action in actions:
        for operator in plan.members(action.family):
            rows = sum(waiting.get(operator, {}).get(group, 0) for group in action.groups)
            held += seconds(operator, workload.work_of(operator, action.groups) + rows)
    others = workload.busiest({*circumstances.snapshot.numbers} - {processor})
    before = float(workload.loads[processor]) + sum(seconds(n, sum(rows.values())) for n, rows in waiting.items())
    after = min(max(before - held, others), before)
    lasting = max(1 - float(workload.late[processor]) / PASSING, 0.0)
    return Estimate(before, after, lasting, costs=WAITING * held * lasting)
