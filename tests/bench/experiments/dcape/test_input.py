"""The input of the thesis's plans: joins of selectivity 2, counted without running anything."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.bench.experiments.dcape.input import Input
from tests.oracle.profiles import examples

ROWS = 64


def selectivities(joined: np.ndarray, rows: int) -> list[float]:
    """Rows that each join makes, per row that it takes."""
    return [made / (below + rows) for made, below in zip(joined, [rows, *joined], strict=False)]


@pytest.mark.parametrize("life", [1, 8])
def test_every_join_gives_twice_what_it_takes_once_windows_are_full(life: int) -> None:
    joined = Input(6, ROWS, life).joined(life + 3)
    assert selectivities(joined[-1], ROWS) == pytest.approx([2] * 5, rel=0.02)
    assert (joined[life - 1 :] == joined[-1]).all(), "from then on every batch is like the one before"
    if life > 1:
        assert joined[0, -1] < joined[life - 1, -1] / 100, "before, there is less to join"


@examples(30)
@given(st.integers(2, 5), st.integers(4, 40), st.integers(1, 5), st.integers(1, 7))
def test_what_is_counted_is_what_a_join_of_the_rows_gives(streams: int, rows: int, life: int, batches: int) -> None:
    given = Input(streams, rows, life)
    answer, joined = given.answer(batches), given.joined(batches)
    assert joined.shape == (batches, streams - 1)
    assert joined[:, -1].sum() == answer.num_rows
    assert pa.table(answer).group_by(answer.column_names).aggregate([]).num_rows == answer.num_rows, "each row once"


def test_every_row_of_a_cohort_comes_in_one_batch() -> None:
    given = Input(3, ROWS, 4)
    fed = pa.concat_tables(given.batch(number, 2) for number in range(10))
    assert len(set(fed["v"].to_pylist())) == fed.num_rows
    assert given.batch(9, 2).num_rows == ROWS, "as many as a cohort has, once cohorts of all ages are there"
