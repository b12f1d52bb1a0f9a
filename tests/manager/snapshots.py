"""Snapshots of made-up numbers: what tests show to policies is built here, and only here.

The parts fit into each other as those of a snapshot do: `snapshot(processor(0, operator({3: 50})))` is a processor with
one operator, of which partition group 3 has 50 bytes. A group's number may be left out: `[50, 60]` is groups 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.manager.snapshot import OperatorView, ProcessorView, Snapshot
from anabranch.state.groups import GroupSet
from anabranch.state.statistics import Statistics

NOW = 1_000_000.0
COUNT = 1_024
STEP = 7

# A number for each group, by the number of the group or in the order of the groups.
PerGroup = Mapping[int, float] | Sequence[float]


def statistics(
    sizes: PerGroup,
    produced: PerGroup | None = None,
    recent: PerGroup | None = None,
    ages: PerGroup | None = None,
    arrived: PerGroup | None = None,
    arrivals: Sequence[PerGroup] = (),
) -> Statistics:
    """Groups of these sizes in bytes; each gave one result, all of them recent, has just got a row, and counts none.

    Rows have `arrived` at one port, or there are `arrivals` at several.
    """
    groups = np.array(sorted(sizes) if isinstance(sizes, Mapping) else range(len(sizes)), dtype=np.int64)
    made = _vector(groups, produced, 1)
    return Statistics(
        groups,
        _vector(groups, sizes, 0).astype(np.int64),
        made.astype(np.int64),
        made if recent is None else _vector(groups, recent, 0),
        NOW - _vector(groups, ages, 0),
        np.stack([_vector(groups, port, 0).astype(np.int64) for port in arrivals or (arrived,)], axis=1),
    )


def operator(
    groups: Statistics | PerGroup,
    produced: PerGroup | None = None,
    *,
    number: int = 0,
    spilled: Sequence[int] = (),
    returned: Sequence[int] = (),
    diffused: Sequence[int] = (),
    **fields: Any,
) -> OperatorView:
    """An operator that is a family of its own. `fields` are further ones of `OperatorView`."""
    known = groups if isinstance(groups, Statistics) else statistics(groups, produced)
    named = {"spilled": spilled, "returned": returned, "diffused": diffused}
    sets = {name: GroupSet.of(COUNT, some) if len(some) else None for name, some in named.items()}
    return OperatorView(number, known, **{"family": number, **sets, **fields})


def processor(number: int, *operators: OperatorView, **fields: Any) -> ProcessorView:
    """A processor that is as large as its operators. `fields` are further ones of `ProcessorView`."""
    active = sum(int(seen.statistics.bytes.sum()) for seen in operators)
    return ProcessorView(number, active, operators, **fields)


def snapshot(
    *processors: ProcessorView, at: float = 0.0, step: int = STEP, seconds: float = 1.0, **fields: Any
) -> Snapshot:
    """The processors so many seconds after `NOW`. `fields` are further ones of `Snapshot`."""
    return Snapshot(step, NOW + at, processors, seconds, **fields)


def _vector(groups: NDArray[np.int64], values: PerGroup | None, default: float) -> NDArray[np.float64]:
    if values is None:
        return np.full(len(groups), default, dtype=np.float64)
    if isinstance(values, Mapping):
        return np.array([values.get(group, default) for group in groups.tolist()], dtype=np.float64)
    assert len(values) == len(groups)
    return np.array(values, dtype=np.float64)
