"""Counters of a run since it was started: steps, rows and time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from anabranch.plan.explain import Measured
from anabranch.state.manifest import Manifest
from anabranch.state.report import Report


class Counters:
    """Counts of all steps so far: rows by source, results by operator."""

    def __init__(self, sources: int, operators: int) -> None:
        """Nothing has been done yet."""
        self.steps = 0
        self._batches = 0
        self._seconds = 0.0
        self._received = [0] * sources
        self._produced = [0] * operators
        self._last = time.monotonic()

    def add(self, reports: Sequence[Report], *, has_batch: bool) -> None:
        """Count a step that was committed."""
        for report in reports:
            self._received = [a + b for a, b in zip(self._received, report.received, strict=True)]
            self._produced = [a + b for a, b in zip(self._produced, report.produced, strict=True)]
        self.steps += 1
        self._batches += has_batch

    def took(self, seconds: float) -> None:
        """Note how long the last step took."""
        self._seconds += seconds
        self._last = time.monotonic()

    @property
    def idle(self) -> float:
        """The seconds since the last step ended."""
        return time.monotonic() - self._last

    @property
    def usual_rows(self) -> float:
        """The rows of an average batch; 0 before the first."""
        return sum(self._received) / self._batches if self._batches else 0.0

    def measured(self, manifests: Sequence[Manifest]) -> Measured | None:
        """Rows, results and time so far, operator by operator; None before the first step."""
        if not self.steps:
            return None
        spines = zip(*(manifest.spines for manifest in manifests), strict=True)
        state = tuple((sum(s.rows for s in port), sum(s.bytes for s in port)) for port in spines)
        return Measured(self._seconds, tuple(self._received), tuple(self._produced), state)
