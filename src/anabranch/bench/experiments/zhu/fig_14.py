"""Figure 14 of paper 3 (section 6.3): output where the machine keeps up.

Each batch is answered completely when it comes, for any order of joins, so answers per batch are the same. They differ
in their times: on a machine that is half again as fast as the old order needs (`work_clock`) answers come the later,
the more work there was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.rig.experiment import Claim
from anabranch.bench.experiments.zhu.parts.configurations import LOW, cases, replay_share, steady_work
from anabranch.bench.experiments.zhu.parts.experiment import MigrationExperiment
from anabranch.bench.experiments.zhu.parts.pictures import output_on
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace
from anabranch.bench.experiments.zhu.parts.work_clock import WorkClock

SPEED = 1.5  # of what the old order needs
SHORT = 1.0  # of the work of a batch


def clock(traces: Sequence[MigrationTrace]) -> WorkClock:
    """A machine that keeps up with the old order."""
    return WorkClock(SPEED * steady_work(traces[0]))


def pauses(traces: Sequence[MigrationTrace]) -> Iterator[Claim]:
    """Claim which strategies have a step without answers between two batches, in both configurations alike."""
    moving, parallel, background = traces[2:]
    yield Claim(
        "moving state has a silence, a step between two batches in which nothing is answered",
        [step.answers for step in moving.silent_steps] == [0],
        f"{len(moving.silent_steps)} step of {moving.migration_work:,} rows of work, {replay_share(moving):.0%} of a "
        "batch's",
    )
    yield Claim(
        "a parallel track and the background have none: every batch is answered while they go on",
        not parallel.silent_steps
        and not background.silent_steps
        and all(step.answers > 0 for run in (parallel, background) for step in run.meanwhile),
        ", ".join(
            f"{run.name}: {len(run.meanwhile)} batches, {min(step.answers for step in run.meanwhile):,} answers or more"
            for run in (parallel, background)
        ),
    )
    each = [[step.answers for step in run.batches] for run in traces]
    yield Claim(
        "each batch has the same number of answers, whatever the order and the migration",
        all(one == each[0] for one in each),
        f"{sum(each[0]):,} in {len(each[0])} batches",
    )


def check(traces: Sequence[MigrationTrace]) -> Iterator[Claim]:
    """Claim that no strategy is much better."""
    yield from pauses(traces)
    _, _, moving, parallel, _ = traces
    speed = clock(traces)
    silence = speed.milliseconds(moving.migration_work)
    yield Claim(
        "no strategy has a strong advantage: the silence is shorter than a batch",
        silence < SHORT * moving.setting.batch,
        f"{silence:.0f} ms of {moving.setting.batch} ms on a machine with {speed.rows_per_second:,.0f} rows of work "
        f"per second; a parallel track does {parallel.migration_work:,} rows more, spread over {parallel.length:,} ms",
    )


ZHU_14 = MigrationExperiment(
    "zhu-14",
    "low configuration: no strategy has a strong advantage in output, the silence of moving state is short",
    cases(LOW),
    check,
    draws=output_on(clock),
)
