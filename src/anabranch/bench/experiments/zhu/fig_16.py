"""Figure 16 of paper 3 (section 6.3): output where the machine is too slow for the old order.

In the paper moving state is silent for 10 of 50 seconds, and a parallel track answers meanwhile. The silence depends on
the work of computing states anew, by comparing all pairs, next to that of a batch. Here rows are looked up, and the
last join, which makes most of the work, is not computed anew at all: the silence is a small part of a batch. A parallel
track makes a machine that is too slow do more, so it falls behind further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.rig.experiment import Claim
from anabranch.bench.experiments.zhu.fig_14 import pauses
from anabranch.bench.experiments.zhu.parts.configurations import HIGH, cases, replay_share
from anabranch.bench.experiments.zhu.parts.experiment import MigrationExperiment
from anabranch.bench.experiments.zhu.parts.overloaded import clock, described
from anabranch.bench.experiments.zhu.parts.pictures import output_on
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace

MOST = 0.5


def check(traces: Sequence[MigrationTrace]) -> Iterator[Claim]:
    """Claim that moving state has a silence, but a short one."""
    yield from pauses(traces)
    old, _, moving, parallel, _ = traces
    last = moving.batches[-1].arrived or 0
    late = {trace.name: clock(traces).delays(trace)[last] for trace in traces}
    yield Claim(
        "on a machine that is too slow for the old order, moving state ends up closer to the input than it does",
        late[moving.name] < late[old.name],
        ", ".join(f"{name}: {milliseconds:.0f} ms behind" for name, milliseconds in late.items())
        + f"; {described(traces)}",
    )
    yield Claim(
        f"not reproduced: a long silence of moving state. It takes less than {MOST:.0%} of the work of a batch",
        replay_share(moving) < MOST,
        f"{replay_share(moving):.1%}; {clock(traces).milliseconds(moving.migration_work):.0f} ms of a batch of "
        f"{moving.setting.batch} ms",
    )
    ended = parallel.ended or 0
    then = {trace.name: clock(traces).delays(trace)[ended] for trace in (moving, old, parallel)}
    yield Claim(
        "not reproduced: more output by a parallel track at first. It works more, so it falls behind until it ends",
        then[moving.name] < then[old.name] < then[parallel.name],
        ", ".join(f"{name}: {milliseconds:.0f} ms behind" for name, milliseconds in then.items()) + f" at {ended:,} ms",
    )


ZHU_16 = MigrationExperiment(
    "zhu-16",
    "high configuration: a parallel track answers all the time, moving state pauses; the pause is short here",
    cases(HIGH),
    check,
    draws=output_on(clock),
)
