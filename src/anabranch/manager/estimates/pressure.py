"""Bytes over a budget, in seconds: what it would take to clean up what has to be pushed to disk for them.

What a processor will be over its budget in `AHEAD` batches, if its state goes on growing, counts as it is. What it is
over it now counts `PROMISE` times: the budget is a promise to the user, which is kept in any case; the factor says how
much rather it is kept at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.manager.arbitration.workload import bytes_over
from anabranch.manager.estimates.estimator import Circumstances

AHEAD = 10
PROMISE = 3.0


class Relief(NamedTuple):
    """The seconds that a change of state is worth, and whether it is of use to a processor that is over its budget."""

    seconds: float
    pressing: bool


def relief(change: Mapping[int, float], circumstances: Circumstances) -> Relief:
    """What it is worth if these processors have so many bytes more in memory."""
    workload = circumstances.workload
    now = later = 0.0
    for processor, more in change.items():
        view = circumstances.view(processor)
        now += bytes_over(view) - bytes_over(view, more)
        growth = AHEAD * float(workload.growth[processor])
        later += bytes_over(view, growth) - bytes_over(view, growth + more)
    return Relief((PROMISE * now + later) * workload.clean_up_seconds, now > 0)
