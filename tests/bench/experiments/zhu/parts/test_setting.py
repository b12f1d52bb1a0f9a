"""The input of paper 3's experiments: rates, selectivities, and how many answers there must be."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.bench.experiments.zhu.parts.setting import KEYS, STREAMS, Setting, expected_answers

SETTING = Setting(300, (100, 50, 20, 100), (0.5, 0.5, 0.2), scale=2, batch=100, lateness=50)


def test_a_stream_has_as_many_rows_as_its_interval_and_the_scale_say() -> None:
    streams = SETTING.streams(1_000)

    assert {name: len(stream.ts) for name, stream in streams.items()} == {"A": 20, "B": 40, "C": 100, "D": 20}
    assert [SETTING.rate(name) for name in STREAMS] == [20, 40, 100, 20]


def test_batches_share_out_the_rows_of_a_stream() -> None:
    stream = SETTING.streams(1_000)["C"]
    tables = [stream.between(start, start + 250) for start in range(0, 1_000, 250)]

    assert [table.num_rows for table in tables] == [25] * 4
    assert [n for table in tables for n in table["n"].to_pylist()] == list(range(100))


def test_the_rows_of_a_stream_do_not_depend_on_how_long_it_lasts() -> None:
    short, long = (SETTING.streams(length)["B"].between(0, 500) for length in (500, 1_000))

    assert short.column_names == long.column_names
    assert short["ts"] == long["ts"]


@given(st.integers(0, 5), st.integers(50, 400), st.integers(100, 500))
def test_the_number_of_answers_is_that_of_trying_all_combinations(seed: int, window: int, stop: int) -> None:
    streams = replace(SETTING, intervals=(100, 90, 80, 110), scale=1, seed=seed).streams(500)
    rows = [
        [
            (int(ts), {key: int(values[n]) for key, values in streams[name].keys.items()})
            for n, ts in enumerate(streams[name].ts)
            if ts < stop * 1_000
        ]
        for name in STREAMS
    ]
    answers = 0
    for combination in product(*rows):
        times = [ts for ts, _ in combination]
        agree = all(combination[n][1][key] == combination[n + 1][1][key] for n, key in enumerate(("ab", "bc", "cd")))
        answers += agree and max(times) - min(times) <= window * 1_000

    assert expected_answers(streams, window, stop) == answers


@pytest.mark.parametrize("key", ["ab", "bc", "cd"])
def test_neighbours_share_a_key_with_as_many_values_as_its_selectivity_says(key: str) -> None:
    streams = SETTING.streams(10_000)
    values = {value for name in STREAMS if key in KEYS[name] for value in streams[name].keys[key].tolist()}

    assert values == set(range(round(1 / SETTING.selectivity(key))))


def test_a_row_is_kept_for_the_window_the_lateness_and_a_batch() -> None:
    assert SETTING.kept == 0.45
