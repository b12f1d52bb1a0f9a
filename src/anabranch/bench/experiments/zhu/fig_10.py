"""Figure 10 of paper 3 (section 6.2): the work of moving state is a polynomial in the window.

The states of B C and of B C D are computed anew; their rows go with W^2 and W^3 (`model`). Measured are the work of the
step that does so, in rows, and the rows of both states. Batches and lateness are short, so that rows that are kept
besides a window (`model.kept_besides`) change the growth by little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.bench.experiments.rig.draw import Curves
from anabranch.bench.experiments.rig.experiment import Claim
from anabranch.bench.experiments.zhu.parts.case import with_full_state
from anabranch.bench.experiments.zhu.parts.experiment import MigrationExperiment
from anabranch.bench.experiments.zhu.parts.model import (
    apart,
    of_equation_1,
    of_equation_8,
    predicted_rows,
    predicted_work,
)
from anabranch.bench.experiments.zhu.parts.setting import Setting
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace
from anabranch.runtime.driver.changes.migration import MOVING_STATE

WINDOWS = (1_000, 1_500, 2_000, 3_000)
TOLERANCE = 0.25


def setting(window: int) -> Setting:
    """Set 1 of section 6.2."""
    return Setting(window, (100, 100, 100, 100), (0.1, 0.05, 0.02), scale=10, batch=50, lateness=50)


def work(traces: Sequence[MigrationTrace]) -> dict[str, dict[int, float]]:
    """Work by window."""
    return {
        "measured": {trace.setting.window: trace.migration_work for trace in traces},
        "predicted": {trace.setting.window: predicted_work(trace.setting) for trace in traces},
    }


def rows(traces: Sequence[MigrationTrace]) -> dict[str, dict[int, float]]:
    """Rows of the computed states by window."""
    return {
        "B C and B C D, measured": {t.setting.window: t.made("B", "C") + t.made("B", "C", "D") for t in traces},
        "equation 1, with what is kept besides": {t.setting.window: sum(predicted_rows(t.setting)) for t in traces},
        "equation 1": {t.setting.window: sum(of_equation_1(t.setting)) for t in traces},
        "equation 8": {t.setting.window: of_equation_8(t.setting) for t in traces},
    }


def check(traces: Sequence[MigrationTrace]) -> Iterator[Claim]:
    """Claims on the size of the work, and on its growth."""
    of_work = [apart(trace.migration_work, predicted_work(trace.setting)) for trace in traces]
    yield Claim(
        f"the work of moving state is within {TOLERANCE:.0%} of what equation 1 says of the states to be computed",
        all(abs(difference) <= TOLERANCE for difference in of_work),
        ", ".join(
            f"W={trace.setting.window}: {trace.migration_work:,} rows ({difference:+.0%})"
            for trace, difference in zip(traces, of_work, strict=True)
        ),
    )
    first, last = traces[0], traces[-1]
    for nth, streams in enumerate((("B", "C"), ("B", "C", "D"))):
        grown = last.made(*streams) / first.made(*streams)
        model = of_equation_1(last.setting)[nth] / of_equation_1(first.setting)[nth]
        yield Claim(
            f"the rows of {' '.join(streams)} grow with W^{len(streams)}, within {TOLERANCE:.0%}",
            abs(apart(grown, model)) <= TOLERANCE,
            f"{grown:.1f}x from W={first.setting.window} to W={last.setting.window}, {model:.1f}x by the model",
        )
    yield Claim(
        "no batch comes meanwhile: it is done in one step between two batches, in which nothing is answered",
        all(t.length == 0 and [step.answers for step in t.silent_steps] == [0] for t in traces),
        ", ".join(f"{len(trace.silent_steps)} step" for trace in traces),
    )


ZHU_10 = MigrationExperiment(
    "zhu-10",
    "the work of moving state is a polynomial in W: it computes states of W^2 and W^3 rows",
    tuple(with_full_state(f"moving state, W={window}", setting(window), MOVING_STATE) for window in WINDOWS),
    check,
    draws=(Curves("work of the migration, rows", "W, ms", work), Curves("rows computed", "W, ms", rows)),
)
