"""`anabranch bench skew`: what it makes of its input and of what runs have done, without running anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anabranch.bench.inputs.skewed import INPUTS, SECOND
from anabranch.bench.machine import Machine
from anabranch.bench.skew import DIFFUSED, HASHED, SPARK, InputResult, Joined, SkewOptions, SkewResult, table
from anabranch.errors import ConfigError
from tests.oracle.referee import query

OPTIONS = SkewOptions(work=Path("work"), rows=30, batches=4, last=2)
MACHINE = Machine("2026-01-01", 2, 1 << 30, 0.1, "3.11", "4.3")
WAYS = {
    HASHED: Joined((4.0, 4.0, 4.0, 4.0), 77, (3.0, 3.0, 3.1, 2.9), (0, 0, 0, 0)),
    DIFFUSED: Joined((4.0, 3.0, 2.0, 2.0), 77, (3.0, 2.0, 1.2, 1.2), (0, 9, 9, 9), diffused=1),
    SPARK: Joined((9.0, 9.0, 6.0, 6.0), 77),
}
HALF = InputResult("half", 77, 2, WAYS)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("window", [1, 2])
def test_the_number_of_pairs_is_that_of_the_definition(name: str, window: int) -> None:
    skewed = INPUTS[name](200, 3, 5)
    left, right = skewed.streams.values()
    assert left.num_rows > right.num_rows
    near = f"abs(epoch_us(l.ts) - epoch_us(r.ts)) <= {window * SECOND}"
    same = f"l.{skewed.key} = r.{skewed.key}"
    answer = query(f"SELECT count(*) AS n FROM l, r WHERE {same} AND {near}", {"l": left, "r": right})
    assert answer["n"].to_pylist() == [skewed.pairs(window)]


@pytest.mark.parametrize(("name", "share"), [("half", 1 / 2), ("nexmark", 3 / 4)])
def test_one_key_has_most_rows_of_both_streams(name: str, share: float) -> None:
    skewed = INPUTS[name](3_000, 4, 1)
    for stream, rows in skewed.streams.items():
        _, counts = np.unique(rows.column(skewed.key).to_numpy(), return_counts=True)
        assert counts.max() / rows.num_rows == pytest.approx(share, abs=0.05)
        assert sum(skewed.batch(stream, number).num_rows for number in range(4)) == rows.num_rows
    assert sum(rows.num_rows for rows in skewed.streams.values()) == pytest.approx(12_000, rel=0.01)


def test_counts_of_the_last_batches_decide_and_times_are_reported() -> None:
    assert (HALF.busiest(HASHED), HALF.busiest(DIFFUSED)) == pytest.approx((3.0, 1.2))
    assert (HALF.speedup(HASHED), HALF.speedup(SPARK)) == (2.0, 3.0)
    assert HALF.hold
    for broken in (
        replace(HALF, expected=78),
        replace(HALF, variants={**WAYS, DIFFUSED: replace(WAYS[DIFFUSED], busiest=(1.0, 1.0, 1.4, 1.4))}),
        replace(HALF, variants={**WAYS, HASHED: replace(WAYS[HASHED], busiest=(3.0, 3.0, 1.9, 1.9))}),
    ):
        assert not broken.hold
        assert not SkewResult(OPTIONS, MACHINE, (HALF, broken)).hold


def test_the_result_is_a_table_and_a_document() -> None:
    result = SkewResult(OPTIONS, MACHINE, (HALF,))
    shown = table(result)
    assert shown.row_count == 3
    assert "2.00x the throughput of hash partitioning, 3.00x that of Spark's join" in str(shown.caption)
    document = result.document()
    assert isinstance(document["summary"], dict)
    assert document["summary"]["half"]["hold"] is True


@pytest.mark.parametrize("wrong", [{"rows": 1}, {"last": 9}, {"processors": 1}, {"inputs": ("hlaf",)}])
def test_what_cannot_be_run_is_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError, match="bench skew"):
        replace(OPTIONS, **wrong)
