"""How much a step may merge: by what arrives, and by how wide rows are."""

from __future__ import annotations

import pytest

from anabranch.state.runs.merge_budget import merge_rows
from anabranch.state.runs.run import RunFile
from anabranch.state.runs.spine import Spine


def spine(rows: int, width: int) -> Spine:
    return Spine().insert(RunFile("run.arrow", rows, rows * width, 0, None, None))


@pytest.mark.parametrize(
    ("width", "expected"), [(8, 131_072), (32, 131_072), (64, 65_536), (128, 32_768), (1_024, 32_768)]
)
def test_a_merge_moves_four_megabytes_but_neither_too_few_nor_too_many_rows(width: int, expected: int) -> None:
    assert merge_rows(0, spine(1_000, width)) == expected


def test_a_merge_of_nothing_has_a_budget() -> None:
    assert merge_rows(0, Spine()) == 32_768


@pytest.mark.parametrize("width", [8, 1_024])
def test_a_merge_keeps_ahead_of_what_arrives(width: int) -> None:
    assert merge_rows(1_000_000, spine(1_000, width)) == 1_500_000
