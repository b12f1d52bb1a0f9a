"""Figure 12 of paper 3 (section 6.2): moving state is faster for small windows, parallel track for large ones.

The length of moving state is its work on a machine of a given speed (`work_clock`); that of a parallel track is event
time. The first grows with a polynomial in W, so they cross; the crossing depends on the machine. In work they are about
even: each makes the joined rows of a window once, one from stored rows, the other from later ones.

`strategy="auto"` goes by predictions: of the work of moving state, from samples of the state, and of the length of a
parallel track, from windows and lateness. The predicted lengths cross between the same windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from anabranch.bench.experiments.rig.draw import Curves
from anabranch.bench.experiments.rig.experiment import Claim
from anabranch.bench.experiments.zhu.parts.case import with_full_state
from anabranch.bench.experiments.zhu.parts.experiment import MigrationExperiment
from anabranch.bench.experiments.zhu.parts.setting import Setting
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace, with_strategy
from anabranch.bench.experiments.zhu.parts.work_clock import WorkClock
from anabranch.runtime.driver.changes.migration import MOVING_STATE, PARALLEL_TRACK

WINDOWS = (500, 1_000, 2_000)
CLOCK = WorkClock(40_000)
TOLERANCE = 0.25


def setting(window: int) -> Setting:
    """Set 3 of section 6.2, at the paper's own rates."""
    return Setting(window, (100, 12, 12, 12), (0.1, 0.1, 0.1), scale=1, batch=250, lateness=250)


def lengths(traces: Sequence[MigrationTrace]) -> dict[str, dict[int, float]]:
    """The length of both, by window."""
    return {
        f"moving state, at {CLOCK.rows_per_second:,.0f} rows of work per second": {
            trace.setting.window: CLOCK.milliseconds(trace.migration_work)
            for trace in with_strategy(traces, MOVING_STATE)
        },
        "parallel track": {trace.setting.window: trace.length for trace in with_strategy(traces, PARALLEL_TRACK)},
    }


def work(traces: Sequence[MigrationTrace]) -> dict[str, dict[int, float]]:
    """The work of both, by window."""
    return {
        name: {trace.setting.window: trace.migration_work for trace in with_strategy(traces, strategy)}
        for name, strategy in (("moving state", MOVING_STATE), ("parallel track", PARALLEL_TRACK))
    }


def predicted_lengths(traces: Sequence[MigrationTrace]) -> tuple[dict[int, float], dict[int, float]]:
    """The predicted length of both, by window."""
    moving = {
        trace.setting.window: CLOCK.milliseconds(trace.predicted_rows or 0.0)
        for trace in with_strategy(traces, MOVING_STATE)
    }
    return moving, {
        trace.setting.window: float(trace.setting.window + trace.setting.lateness)
        for trace in with_strategy(traces, PARALLEL_TRACK)
    }


def crossings(moving: dict[int, float], parallel: dict[int, float]) -> list[tuple[int, int]]:
    """The windows between which the faster one of two changes."""
    faster = {window: moving[window] < parallel[window] for window in sorted(moving)}
    return [(below, above) for below, above in pairwise(faster) if faster[below] != faster[above]]


def check(traces: Sequence[MigrationTrace]) -> Iterator[Claim]:
    """Claim that there is one crossing in time, at the predicted place, and none in work."""
    moving, parallel = lengths(traces).values()
    crossed = crossings(moving, parallel)
    smallest = min(moving)
    yield Claim(
        "on one machine moving state is faster for small windows, parallel track for large ones, with one crossing",
        len(crossed) == 1 and moving[smallest] < parallel[smallest],
        ", ".join(f"W={window}: {moving[window]:.0f} and {parallel[window]:.0f} ms" for window in moving),
    )
    expected, waited = predicted_lengths(traces)
    yield Claim(
        "what is predicted crosses between the same windows, so strategy='auto' takes the shorter one",
        crossings(expected, waited) == crossed and all(expected.values()),
        ", ".join(f"W={window}: {expected[window]:.0f} and {waited[window]:.0f} ms" for window in expected),
    )
    per_second = {window: 1_000 * work(traces)["moving state"][window] / parallel[window] for window in moving}
    yield Claim(
        "so it is on any machine, at another window: the speed at which both take as long grows with W",
        all(less < more for less, more in pairwise(per_second.values())),
        ", ".join(f"W={window}: {speed:,.0f} rows/s" for window, speed in per_second.items()),
    )
    both = work(traces)
    yield Claim(
        f"in work neither is better: both make the same joined rows once, within {TOLERANCE:.0%}",
        all(
            abs(both["parallel track"][window] / rows - 1) <= TOLERANCE for window, rows in both["moving state"].items()
        ),
        ", ".join(
            f"W={window}: {rows:,.0f} and {both['parallel track'][window]:,.0f}"
            for window, rows in both["moving state"].items()
        ),
    )


ZHU_12 = MigrationExperiment(
    "zhu-12",
    "moving state is faster for small windows, a parallel track for large ones",
    tuple(
        with_full_state(f"{strategy}, W={window}", setting(window), strategy)
        for strategy in (MOVING_STATE, PARALLEL_TRACK)
        for window in WINDOWS
    ),
    check,
    draws=(
        Curves("length of the migration, ms", "W, ms", lengths),
        Curves("work of the migration, rows", "W, ms", work),
    ),
)
