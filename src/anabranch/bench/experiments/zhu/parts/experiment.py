"""Experiments of paper 3: cases, claims about their counts, and the quantities to draw.

They have no repeats and no warm-up, since counts are the same each time. So a case that several experiments of one
command have in common is run once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from anabranch.bench.experiments.rig.experiment import Claim, Findings
from anabranch.bench.experiments.zhu.parts.case import Case, run_case
from anabranch.bench.experiments.zhu.parts.trace import MigrationTrace

if TYPE_CHECKING:
    from anabranch.bench.experiments.rig.draw import Curves, Lines


_RUN: dict[Case, MigrationTrace] = {}


@dataclass(frozen=True, slots=True)
class MigrationExperiment:
    """An experiment: its name, the paper's claim, the cases, the check, and the quantities to draw."""

    name: str
    claim: str
    cases: tuple[Case, ...]
    check: Callable[[Sequence[MigrationTrace]], Iterable[Claim]]
    draws: tuple[Curves | Lines, ...]

    @property
    def workload(self) -> tuple[Case, ...]:
        """The cases."""
        return self.cases

    @property
    def session(self) -> dict[str, str]:
        """The settings of Spark for it: steps are small, and one processor makes them."""
        return {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "1"}

    @property
    def short(self) -> bool:
        """True: nothing is timed, so Spark may compile quickly rather than well."""
        return True

    def run(self, spark: SparkSession, work: Path, tell: Callable[[str], None]) -> Findings:
        """Run all cases and check the claims."""
        for nth, case in enumerate(self.cases):
            if case not in _RUN:
                tell(case.name)
                _RUN[case] = run_case(spark, work / f"case-{nth}", case)
        traces = [_RUN[case] for case in self.cases]
        return Findings(self.name, tuple(traces), tuple(self.check(traces)), self.workload)
