"""Actions take the numbers that snapshots have, and refuse what is no number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anabranch.errors import ConfigError
from anabranch.manager.actions import HoldGroups, RelocateGroups, SpillGroups


def test_numbers_of_numpy_become_numbers_of_python() -> None:
    groups = np.array([3, 4])
    move = RelocateGroups(np.int64(0), groups, groups[0], groups[1], groups.sum(), "why", np.int32(9))  # type: ignore[arg-type]
    assert move == RelocateGroups(0, (3, 4), 3, 4, 7, "why", 9)
    assert {type(number) for number in (*move.groups, move.sender, move.bytes, move.pace)} == {int}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: RelocateGroups(0, (1,), False, True, 10, "why"), "RelocateGroups: sender must be whole numbers"),
        (lambda: RelocateGroups(0, (1,), 0, 1, 10, "why", "1m"), "pace must be whole numbers, not '1m'"),
        (lambda: SpillGroups(0, 0, (1.5,), 10, "why"), "SpillGroups: groups must be whole numbers, not 1.5"),
        (lambda: SpillGroups(0, 0, (1,), None, "why"), "bytes must be whole numbers, not None"),
        (lambda: HoldGroups(0, 0, "all", "why"), "groups must be a list of whole numbers, not 'all'"),
        (lambda: HoldGroups(0, 0, 7, "why"), "groups must be a list of whole numbers, not 7"),
    ],
)
def test_what_is_no_number_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()
