"""The papers' streams: every value as often per range as its class says, in whatever pieces they are read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.api.synthetic import stream_of
from anabranch.errors import ConfigError
from anabranch.plan.placement import even_placement
from anabranch.sources.synthetic import Synthetic, hash_longs
from anabranch.state.groups import groups_of
from tests.oracle.profiles import examples


@examples(30)
@given(
    ratios=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    number=st.integers(0, 3),
    shift=st.none() | st.integers(1, 2),
    contiguous=st.booleans(),
)
def test_within_a_range_a_value_occurs_as_often_as_the_ratio_of_its_class(
    ratios: tuple[int, ...], number: int, shift: int | None, contiguous: bool
) -> None:
    size = 60 * len(ratios)
    stream = Synthetic(0, size, ratios, groups=16, shift_every=shift, contiguous=contiguous)
    keys = stream.keys(number * size, (number + 1) * size)
    assert len(keys) == size
    values, counts = np.unique(keys, return_counts=True)
    classes = stream.class_of(groups_of(hash_longs(values), 16), number)
    for c, ratio in enumerate(ratios):
        assert np.median(counts[classes == c]) == ratio


def test_contiguous_classes_are_the_blocks_that_processors_have() -> None:
    stream = Synthetic(0, 300, (4, 1, 1), contiguous=True)
    classes = stream.class_of(np.arange(256), 0)
    assert tuple(classes.tolist()) == even_placement(256, 3)


@examples(30)
@given(shares=st.lists(st.integers(1, 10), min_size=1, max_size=4).map(tuple), contiguous=st.booleans())
def test_classes_have_as_many_tuples_as_their_shares_say(shares: tuple[int, ...], contiguous: bool) -> None:
    size = 40 * sum(shares)
    stream = Synthetic(0, size, (2,) * len(shares), groups=16, contiguous=contiguous, shares=shares)
    classes = stream.class_of(groups_of(hash_longs(stream.keys(0, size)), 16), 0)
    assert np.bincount(classes, minlength=len(shares)).tolist() == [40 * share for share in shares]


def test_a_load_of_ten_to_one_alternates_between_two_halves_of_the_groups() -> None:
    stream = Synthetic(0, 110, (1, 1), groups=16, shift_every=2, contiguous=True, shares=(10, 1))
    of_first_half = [
        int((groups_of(hash_longs(stream.keys(110 * number, 110 * (number + 1))), 16) < 8).sum()) for number in range(6)
    ]
    assert of_first_half == [100, 100, 10, 10, 100, 100]


@examples(30)
@given(cuts=st.lists(st.integers(0, 500), max_size=5), width=st.sampled_from([0, 12]))
def test_a_stream_read_in_pieces_is_the_stream(cuts: list[int], width: int) -> None:
    stream = Synthetic(2, 130, (4, 2, 1), groups=16, width=width)
    edges = sorted({0, 500, *cuts})
    pieces = [stream.rows(a, b).to_pylist() for a, b in pairwise(edges)]
    assert [row for piece in pieces for row in piece] == stream.rows(0, 500).to_pylist()


def test_seeds_and_streams_differ_and_are_repeatable() -> None:
    keys = [Synthetic(n, 100, (2,), seed=seed).keys(0, 100).tolist() for n, seed in ((0, 1), (1, 1), (0, 2), (0, 1))]
    assert keys[0] == keys[3]
    assert keys[0] != keys[1] != keys[2]
    assert sorted(keys[0]) == sorted(keys[1])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ratios": "4,x"}, "must be a number"),
        ({"ratios": "0"}, "whole numbers from 1 on"),
        ({"tuple_range": "2", "ratios": "4,2"}, "8 or more"),
        ({"rate": "0"}, "positive"),
        ({"widht": "3"}, "did you mean 'width'"),
        ({"groups": "3"}, "power of two"),
    ],
)
def test_a_stream_that_makes_no_sense_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        stream_of(options)


@pytest.mark.parametrize(
    ("shares", "tuple_range", "says"),
    [((1,), 100, "2 classes need as many shares"), ((1, 0), 100, "from 1 on"), ((10, 1), 43, "44 or more")],
)
def test_shares_that_make_no_sense_are_refused(shares: tuple[int, ...], tuple_range: int, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Synthetic(0, tuple_range, (4, 1), shares=shares)


@pytest.mark.spark
def test_hashes_are_those_of_spark(spark: SparkSession) -> None:
    values = [0, 1, -1, 2**63 - 1, -(2**63), 12345678901]
    rows = spark.createDataFrame([(value,) for value in values], "k BIGINT").selectExpr("xxhash64(k) AS h").collect()
    assert hash_longs(np.array(values, dtype=np.int64)).view(np.int64).tolist() == [row.h for row in rows]


@pytest.mark.spark
def test_spark_reads_a_synthetic_stream_in_batches(spark: SparkSession, tmp_path: Path) -> None:
    ab.register_sources(spark)
    reader = spark.readStream.format("anabranch-synthetic").option("stream", 1).option("tuple_range", 50)
    stream = reader.option("rows", 130).option("rows_per_batch", 60).option("paced", "false").load()
    sizes = []
    query = stream.writeStream.foreachBatch(lambda rows, _: sizes.append(rows.count()))
    query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert sizes == [60, 60, 10]
