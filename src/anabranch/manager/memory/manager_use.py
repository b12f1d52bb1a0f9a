"""What the manager itself takes for a step: CPU time, bytes of reports, memory (paper 5, figures 4.8 to 4.10).

Its CPU time is that of the driver from reading the reports to the last decision. In memory it has, about, what reports
say of partition groups, and where these begin in files. Neither grows with the rows of a batch or of the state: there
are a few numbers per operator and group, and a number per file and group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.state.manifest import Manifest


@dataclass(frozen=True, slots=True)
class ManagerUse:
    """What a step has taken, and what is in memory after it."""

    cpu_seconds: float = 0.0
    report_bytes: int = 0
    memory_bytes: int = 0


def known_bytes(manifests: Iterable[Manifest]) -> int:
    """About how many bytes the manager has in memory of what manifests say of partition groups."""
    return sum(state.statistics.nbytes for manifest in manifests for state in manifest.operators)
