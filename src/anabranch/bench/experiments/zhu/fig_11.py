"""Figure 11 of paper 3 (section 6.2): a higher rate of B makes moving state longer, and parallel track not.

Moving state computes rows that B is part of, so its work goes with the rate of B; a parallel track waits for event time
to pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.rig.draw import Curves
from anabranch.bench.experiments.rig.experiment import Claim
from anabranch.bench.experiments.zhu.parts.case import with_full_state
from anabranch.bench.experiments.zhu.parts.experiment import MigrationExperiment
from anabranch.bench.experiments.zhu.parts.model import apart, predicted_work
from anabranch.bench.experiments.zhu.parts.setting import Setting
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace, with_strategy
from anabranch.runtime.driver.changes.migration import MOVING_STATE, PARALLEL_TRACK

INTERVALS = (100, 50, 25)  # of B
TOLERANCE = 0.25


def setting(interval: int) -> Setting:
    """Set 2 of section 6.2."""
    return Setting(1_000, (50, interval, 50, 50), (0.1, 0.05, 0.02), scale=5, batch=250, lateness=250)


def _rate(trace: MigrationTrace) -> int:
    return round(trace.setting.rate("B"))


def work(traces: Sequence[MigrationTrace]) -> dict[str, dict[int, float]]:
    """Work by rate."""
    moving = with_strategy(traces, MOVING_STATE)
    return {
        "moving state, measured": {_rate(trace): trace.migration_work for trace in moving},
        "moving state, predicted": {_rate(trace): predicted_work(trace.setting) for trace in moving},
        "parallel track, measured": {
            _rate(trace): trace.migration_work for trace in with_strategy(traces, PARALLEL_TRACK)
        },
    }


def lengths(traces: Sequence[MigrationTrace]) -> dict[str, dict[int, float]]:
    """Lengths by rate."""
    return {
        "parallel track": {_rate(trace): trace.length for trace in with_strategy(traces, PARALLEL_TRACK)},
        "moving state (between two batches)": {
            _rate(trace): trace.length for trace in with_strategy(traces, MOVING_STATE)
        },
    }


def check(traces: Sequence[MigrationTrace]) -> Iterator[Claim]:
    """Claim that the work of moving state grows with the rate, and that the length of a parallel track does not."""
    moving, parallel = with_strategy(traces, MOVING_STATE), with_strategy(traces, PARALLEL_TRACK)
    first = moving[0]
    grown = [
        apart(trace.migration_work / first.migration_work, trace.setting.rate("B") / first.setting.rate("B"))
        for trace in moving
    ]
    yield Claim(
        f"the work of moving state grows with the rate of B, within {TOLERANCE:.0%}",
        all(abs(one) <= TOLERANCE for one in grown),
        ", ".join(
            f"{_rate(t)} rows/s: {t.migration_work:,} ({one:+.0%})" for t, one in zip(moving, grown, strict=True)
        ),
    )
    yield Claim(
        "a parallel track takes as long at any rate of B",
        len({trace.length for trace in parallel}) == 1,
        ", ".join(f"{_rate(trace)} rows/s: {trace.length} ms" for trace in parallel),
    )


ZHU_11 = MigrationExperiment(
    "zhu-11",
    "the higher the rate of B, the more work is moving state; a parallel track takes as long as before",
    tuple(
        with_full_state(f"{strategy}, {interval} ms", setting(interval), strategy)
        for strategy in (MOVING_STATE, PARALLEL_TRACK)
        for interval in INTERVALS
    ),
    check,
    draws=(
        Curves("work of the migration, rows", "rate of B, rows/s", work),
        Curves("length of the migration, ms of event time", "rate of B, rows/s", lengths),
    ),
)
