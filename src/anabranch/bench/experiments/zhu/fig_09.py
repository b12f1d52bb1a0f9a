"""Figure 9 of paper 3 (section 6.2): the length of a parallel track grows evenly with the window.

The paper has 2W, since its joined rows are purged level by level. Here a row is dead W after the newest row at the
start, in joined rows, too (docs/migration.md), and rows may be late. So a parallel track takes W plus lateness for any
number of levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from anabranch.bench.experiments.rig.draw import Curves
from anabranch.bench.experiments.rig.experiment import Claim
from anabranch.bench.experiments.zhu.parts.case import with_full_state
from anabranch.bench.experiments.zhu.parts.experiment import MigrationExperiment
from anabranch.bench.experiments.zhu.parts.setting import Setting
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace
from anabranch.plan.orders.migration_cost import parallel_track_seconds, parallel_track_seconds_of_paper
from anabranch.runtime.driver.changes.migration import PARALLEL_TRACK

WINDOWS = (500, 1_000, 2_000)
LEVELS = 3  # joins above each other in the old order


def setting(window: int) -> Setting:
    """Set 1 of section 6.2."""
    return Setting(window, (100, 100, 100, 100), (0.1, 0.05, 0.02), scale=10, batch=250, lateness=250)


def of_paper(setting: Setting) -> float:
    """The length by equation 4 of the paper, in milliseconds."""
    return 1_000 * parallel_track_seconds_of_paper(setting.window / 1_000, LEVELS)


def of_engine(setting: Setting) -> float:
    """The length in our engine, in milliseconds."""
    seconds = parallel_track_seconds([setting.window / 1_000] * 4, [setting.lateness / 1_000] * 4)
    assert seconds is not None, "all streams have windows and lateness"
    return 1_000 * seconds


def figure(traces: Sequence[MigrationTrace]) -> dict[str, dict[int, float]]:
    """The lengths by window."""
    return {
        "measured": {trace.setting.window: trace.length for trace in traces},
        "W plus lateness": {trace.setting.window: of_engine(trace.setting) for trace in traces},
        "2W (paper)": {trace.setting.window: of_paper(trace.setting) for trace in traces},
    }


def check(traces: Sequence[MigrationTrace]) -> Iterator[Claim]:
    """Claim that the length is the window plus lateness, and a batch."""
    lengths = ", ".join(f"W={trace.setting.window}: {trace.length} ms" for trace in traces)
    yield Claim(
        "parallel track ends within one batch of W plus lateness",
        all(0 <= trace.length - of_engine(trace.setting) <= trace.setting.batch for trace in traces),
        lengths,
    )
    steps = [(b.length - a.length) / (b.setting.window - a.setting.window) for a, b in pairwise(traces)]
    yield Claim(
        "its length grows evenly with W",
        max(steps) == min(steps),
        ", ".join(f"{step:.2f} ms per ms of W" for step in steps),
    )
    yield Claim(
        "the paper's 2W plus lateness is not needed: it never takes longer than that",
        all(trace.length <= of_paper(trace.setting) + trace.setting.lateness for trace in traces),
        ", ".join(f"{trace.length / of_paper(trace.setting):.2f} of 2W" for trace in traces),
    )


ZHU_09 = MigrationExperiment(
    "zhu-09",
    "the length of a parallel track grows evenly with W: W plus lateness here, 2W in the paper",
    tuple(with_full_state(f"parallel track, W={window}", setting(window), PARALLEL_TRACK) for window in WINDOWS),
    check,
    draws=(Curves("length of the migration, ms of event time", "W, ms", figure),),
)
