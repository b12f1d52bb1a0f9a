"""An operator at work in a step on one processor: the one value that the functions of its step take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.errors import InconsistentStepError
from anabranch.kernel.operator import Counted
from anabranch.processor.context import Attempt
from anabranch.processor.deltas import Deltas
from anabranch.processor.operators.answering import Answering
from anabranch.processor.tasks import OperatorPlan
from anabranch.state.runs.expiry import Spared


@dataclass(frozen=True, slots=True)
class OperatorAtWork:
    """An operator, the rows that come to its ports, what it answers, and the rows that it must keep for spilled state.

    `produced` counts results by partition group, in place, while the operator works.
    """

    attempt: Attempt
    operator: OperatorPlan
    deltas: Deltas
    answering: Answering
    spared: Spared | None
    produced: NDArray[np.int64]

    @property
    def ports(self) -> tuple[int, ...]:
        """The numbers of the operator's ports."""
        return self.operator.ports

    def count(self, counted: Iterator[Counted]) -> Iterator[pa.RecordBatch]:
        """Pass results on, and count them by group."""
        produced = self.produced
        for results, counts in counted:
            if len(results) != counts.sum():
                raise InconsistentStepError(f"{counts.sum():,} results of an operator came as {len(results):,} rows")
            produced += counts
            yield results
