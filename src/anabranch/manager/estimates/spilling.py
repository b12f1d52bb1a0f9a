"""Spilling: a processor comes back under its budget, and somebody has to clean up what was pushed, once."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.manager.actions import SpillGroups
from anabranch.manager.arbitration.proposal import Estimate
from anabranch.manager.estimates.estimator import Circumstances
from anabranch.manager.estimates.pressure import relief


def estimate_spilling(actions: Sequence[SpillGroups], circumstances: Circumstances) -> Estimate:
    """Pushes on one processor."""
    processor, pushed = actions[0].processor, sum(action.bytes for action in actions)
    load = circumstances.workload.busiest([processor])
    relieved = relief({processor: -pushed}, circumstances)
    costs = pushed * circumstances.workload.clean_up_seconds
    return Estimate(load, load, circumstances.lasting, relieved.seconds, costs, relieved.pressing)
