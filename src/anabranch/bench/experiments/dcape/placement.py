"""`dcape-placement`: the thesis's plans of 5 and 20 operators on 1 to 5 processors, by counts (paper 5, chapters 5, 6).

The thesis compares throughput of its machines. Here everything is counted, so the same input gives the same figure
every time: rounds, edges that cross, rows exchanged, state per processor. Only the share of the manager is measured.
The plans are run with each pattern; plan 2 also with redistribution, from a bad start and from a good one, and with an
operator that moves every third batch (figures 6.3 to 6.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.bench.experiments.dcape import claims
from anabranch.bench.experiments.dcape.claims import COMPARED, GROUPING, OURS, ROUND_ROBIN
from anabranch.bench.experiments.dcape.plan import PLANS, TWENTY
from anabranch.bench.experiments.dcape.run import Case, Turn, run_case
from anabranch.bench.experiments.dcape.trace import PlacementTrace, static
from anabranch.bench.experiments.rig.draw import Curves, Line, Lines
from anabranch.bench.experiments.rig.experiment import Claim, Findings

PROCESSORS = range(1, 6)
REDISTRIBUTED_ON = 3  # as in figure 6.4
LIFE, REDISTRIBUTED_FOR = 8, 16
ROOT = 19  # the uppermost join of plan 2
TURNS = tuple(Turn(batch, ROOT, to) for batch, to in ((3, 0), (6, 1), (9, 2)))
MOVED_FOR = 12
MANY_ROWS = 1_600

STATIC = tuple(Case(plan, pattern, p) for plan in PLANS for p in PROCESSORS for pattern in COMPARED)
FROM_STARTS = tuple(
    Case(TWENTY, pattern, REDISTRIBUTED_ON, REDISTRIBUTED_FOR, LIFE, degrades=degrades)
    for pattern in (ROUND_ROBIN, GROUPING)
    for degrades in (False, True)
)
MOVING = tuple(Case(TWENTY, OURS, REDISTRIBUTED_ON, MOVED_FOR, turns=turns) for turns in ((), TURNS[:1], TURNS))
MANAGED = tuple(Case(TWENTY, GROUPING, max(PROCESSORS), 6, rows=rows) for rows in (MANY_ROWS // 25, MANY_ROWS))
CASES = (*STATIC, *FROM_STARTS, *MOVING, *MANAGED)


@dataclass(frozen=True, slots=True)
class PlacementExperiment:
    """The experiment: its name, the thesis's claim, the cases, the check, and the quantities to draw."""

    name: str
    claim: str
    cases: tuple[Case, ...]
    check: Callable[[Mapping[Case, PlacementTrace]], Iterator[Claim]]
    draws: tuple[Curves | Lines, ...]

    @property
    def workload(self) -> tuple[Case, ...]:
        """The cases."""
        return self.cases

    @property
    def session(self) -> dict[str, str]:
        """The settings of Spark for it: those of any run."""
        return {}

    @property
    def short(self) -> bool:
        """True: hardly anything is timed, so Spark may compile quickly rather than well."""
        return True

    def run(self, spark: SparkSession, work: Path, tell: Callable[[str], None]) -> Findings:
        """Run all cases and check the claims."""
        traces = {}
        for nth, case in enumerate(self.cases):
            tell(f"{nth + 1} of {len(self.cases)}: {case.name}")
            traces[case] = run_case(spark, work / f"case-{nth}", case)
        return Findings(self.name, tuple(traces.values()), tuple(self.check(traces)), self.workload)


def check(traces: Mapping[Case, PlacementTrace]) -> Iterator[Claim]:
    """All claims."""
    every = list(traces.values())
    yield from claims.same_answer(every)
    yield from claims.patterns([traces[case] for case in STATIC])
    yield from claims.redistribution([traces[case] for case in FROM_STARTS])
    yield from claims.moving(*(traces[case] for case in MOVING))
    yield from claims.manager(*(traces[case] for case in MANAGED))


def _by_processors(
    of: Callable[[PlacementTrace], float],
) -> Callable[[Sequence[PlacementTrace]], dict[str, dict[int, float]]]:
    def curves(traces: Sequence[PlacementTrace]) -> dict[str, dict[int, float]]:
        short = [trace for trace in traces if len(trace.batches) == STATIC[0].batches]
        return {
            pattern: {p: of(trace) for p, trace in static(short, TWENTY.name, pattern).items()} for pattern in COMPARED
        }

    return curves


def _exchanged(trace: PlacementTrace) -> Iterator[Line]:
    """A line for each run that may be redistributed."""
    if len(trace.batches) == REDISTRIBUTED_FOR:
        yield (
            f"{trace.pattern}, {trace.moved_by or 'nothing moves'}",
            [float(batch.exchanged) for batch in trace.batches],
        )


DCAPE_PLACEMENT = PlacementExperiment(
    "dcape-placement",
    "20 operators: grouping needs fewer rounds than round robin, FewestRounds no more than grouping, and degradation "
    "halves the rows that a bad start exchanges",
    CASES,
    check,
    draws=(
        Curves("rounds, 20 operators", "processors", _by_processors(lambda trace: trace.last.rounds)),
        Curves("edges that cross, 20 operators", "processors", _by_processors(lambda trace: trace.last.costs.crossing)),
        Curves("most state of a processor, fair shares", "processors", _by_processors(lambda trace: trace.busiest)),
        Lines("rows exchanged per batch", _exchanged),
    ),
)
