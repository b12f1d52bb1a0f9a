"""The runs behind figures 13 to 16 of paper 3 (section 6.3): both orders of joins by themselves, and three ways from
the old one to the new one, in the low and in the high configuration of table 2.

State is full when the migration begins, two batches after the first, which is as long as a window and is not drawn. The
paper has no migration in the background; ours has a pace at which it takes some batches.
"""

from __future__ import annotations

from anabranch.bench.experiments.zhu.parts.case import FULL_BATCHES, Case
from anabranch.bench.experiments.zhu.parts.setting import NEW, OLD, Setting
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace
from anabranch.runtime.driver.changes.migration import BACKGROUND, MOVING_STATE, PARALLEL_TRACK

LOW = Setting(1_000, (100, 100, 100, 100), (0.1, 0.02, 0.02), scale=10, batch=250, lateness=250)
HIGH = Setting(2_000, (50, 50, 50, 50), (0.2, 0.05, 0.05), scale=3, batch=500, lateness=500)
BATCHES = 10  # after the first, long one
STEADY = 2  # the last of them, when all migrations have ended
# The least number of pieces of a migration in the background; groups that wait get more rows meanwhile.
PIECES = 2


def cases(setting: Setting) -> tuple[Case, ...]:
    """The five cases of a configuration."""
    begins = setting.window + FULL_BATCHES * setting.batch
    until = setting.window + BATCHES * setting.batch
    pace = round(setting.rate("B") * setting.kept / PIECES)

    def case(name: str, strategy: str | None, joins: str = OLD, pace: int | None = None) -> Case:
        return Case(name, setting, strategy, begins, setting.window, until, joins, pace)

    return (
        case("old order", None),
        case("new order", None, NEW),
        case("moving state", MOVING_STATE),
        case("parallel track", PARALLEL_TRACK),
        case("background", BACKGROUND, pace=pace),
    )


def steady_work(trace: MigrationTrace) -> float:
    """The work of a run per second, in its last batches."""
    last = trace.batches[-STEADY:]
    return 1_000 * sum(step.work for step in last) / (STEADY * trace.setting.batch)


def replay_share(moving: MigrationTrace) -> float:
    """The work of moving state, as a share of that of a batch of the old order."""
    before = [step for step in moving.batches if step.arrived is not None and step.arrived <= (moving.began or 0)]
    return moving.migration_work / before[-1].work
