"""Inputs of benchmarks are deterministic, arrive in order, and know how many results they contain."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from anabranch.bench.contenders.queries import CHAINED
from anabranch.bench.inputs.recipe import ChainRecipe, GroupsRecipe, UniformRecipe, count_results, materialise

RECIPE = UniformRecipe(
    streams=("A", "B", "C"), rows=1000, keys=100, batch_count=7, window=None, window_rows=100, seed=3
)


def test_the_same_recipe_yields_the_same_rows() -> None:
    for first, second in zip(RECIPE.batches(), RECIPE.batches(), strict=True):
        for stream in RECIPE.streams:
            assert np.array_equal(first[stream].k, second[stream].k)
            assert np.array_equal(first[stream].ts, second[stream].ts)
            assert np.array_equal(first[stream].v, second[stream].v)


def test_another_seed_yields_other_keys() -> None:
    other = UniformRecipe(("A", "B", "C"), 1000, 100, 7, None, 100, seed=4)
    assert not np.array_equal(next(RECIPE.batches())["A"].k, next(other.batches())["A"].k)


def test_streams_differ_from_each_other() -> None:
    batch = next(RECIPE.batches())
    assert not np.array_equal(batch["A"].k, batch["B"].k)


def test_rows_are_spread_evenly_over_the_batches() -> None:
    sizes = [len(batch["A"].k) for batch in RECIPE.batches()]
    assert sum(sizes) == 1000
    assert len(sizes) == 7
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("window_rows", [10, 1000, 100_000_000])
def test_every_batch_is_strictly_later_than_the_one_before(window_rows: int) -> None:
    recipe = UniformRecipe(("A", "B"), 1000, 100, 7, 10, window_rows, seed=3)
    latest = 0  # where Spark's watermark starts
    for batch in recipe.batches():
        assert min(int(rows.ts.min()) for rows in batch.values()) > latest
        latest = max(int(rows.ts.max()) for rows in batch.values())


def test_a_window_covers_the_chosen_number_of_rows() -> None:
    recipe = UniformRecipe(("A", "B"), 1000, 100, 10, 5, 200, seed=3)
    ts = np.concatenate([batch["A"].ts for batch in recipe.batches()])
    covered = np.arange(1000) - np.searchsorted(ts, ts - 5000)
    assert covered[500:].tolist() == pytest.approx([200] * 500, abs=2)


def test_files_are_written_once_one_per_stream_and_batch_with_increasing_times(tmp_path: Path) -> None:
    written = materialise(RECIPE, tmp_path)
    files = sorted((written.path / "B").glob("*.parquet"))
    assert (written.rows, written.batches, len(files)) == (3000, 7, 7)
    times = [file.stat().st_mtime for file in files]
    assert times == sorted(set(times))
    inodes = [file.stat().st_ino for file in files]
    assert materialise(RECIPE, tmp_path) == written
    assert [file.stat().st_ino for file in files] == inodes


def test_an_unfinished_input_is_generated_again(tmp_path: Path) -> None:
    written = materialise(RECIPE, tmp_path)
    (written.path / "input.json").unlink()
    (written.path / "A" / "00000.parquet").unlink()
    assert materialise(RECIPE, tmp_path) == written
    assert pq.read_table(written.path / "A" / "00000.parquet").num_rows == 143


@pytest.mark.parametrize("streams", [2, 3, 4])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_the_expected_number_of_results_is_what_duckdb_finds(streams: int, window: int | None) -> None:
    rng = np.random.default_rng([streams, window or 0])
    keys = [rng.integers(-3, 9, 60) for _ in range(streams)]
    times = [rng.integers(0, 100, 60) * 100 for _ in range(streams)]
    with duckdb.connect() as connection:
        for number, (k, ts) in enumerate(zip(keys, times, strict=True)):
            connection.execute(f"CREATE TABLE s{number} (k BIGINT, ts BIGINT)")
            rows = list(zip(k.tolist(), ts.tolist(), strict=True))
            connection.executemany(f"INSERT INTO s{number} VALUES (?, ?)", rows)
        names = [f"s{number}" for number in range(streams)]
        conditions = [f"s0.k = {name}.k" for name in names[1:]]
        if window is not None:
            latest = f"greatest({', '.join(f'{name}.ts' for name in names)})"
            conditions += [f"{name}.ts >= {latest} - {window * 1000}" for name in names]
        query = f"SELECT count(*) FROM {', '.join(names)} WHERE {' AND '.join(conditions)}"
        found = connection.execute(query).fetchone()
    assert found is not None
    assert count_results(keys, times, window) == found[0] > 0


def test_the_chain_knows_how_many_results_it_contains(tmp_path: Path) -> None:
    source = materialise(ChainRecipe(rows=500, keys=100, batch_count=3, seed=2), tmp_path)
    tables = ", ".join(f"read_parquet('{source.path}/{stream}/*.parquet') AS {stream}" for stream in "ABCD")
    counted = duckdb.sql(f"SELECT count(*) FROM {tables} WHERE {CHAINED}").fetchall()
    assert counted == [(source.expected_results,)]
    assert source.expected_results > 1000
    assert source.rows == 2000


def test_every_row_of_the_groups_is_answered_and_batches_follow_each_other(tmp_path: Path) -> None:
    recipe = GroupsRecipe(rows=1000, keys=10, batch_count=4, window=60, window_rows=300, seed=1)
    assert materialise(recipe, tmp_path).expected_results == 1000
    ends = [(int(batch["A"].ts.min()), int(batch["A"].ts.max())) for batch in recipe.batches()]
    assert all(before[1] < after[0] for before, after in pairwise(ends))
