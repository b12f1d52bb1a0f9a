"""The demo's streams and its comparison with DuckDB; then the whole of it, as a user would start it."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from anabranch.cli.demos import question as demo_query
from anabranch.cli.demos.question import _EXPECTED, compare
from anabranch.cli.demos.shop import LATENESS, Shop, write_streams
from anabranch.cli.demos.traffic import LATENESS as TRAFFIC_LATENESS
from anabranch.cli.demos.traffic import READINGS, SENSORS, Town, write_town
from anabranch.cli.main import app
from anabranch.cli.process import signals
from anabranch.cli.run_files.run_file import load
from anabranch.errors import ConfigError
from tests.cli.command import start
from tests.cli.conftest import Invoke

STREAMS = ("orders", "payments", "shipments")
SMALL = Shop(rows=3_000, batches=6, seed=1)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    write_streams(SMALL, folder)
    return folder


def batches(folder: Path, stream: str) -> list[pa.Table]:
    return [pq.read_table(path) for path in sorted((folder / stream).iterdir())]


def test_the_same_seed_writes_the_same_rows(shop: Path, tmp_path: Path) -> None:
    write_streams(SMALL, tmp_path)

    for stream in STREAMS:
        assert batches(tmp_path, stream) == batches(shop, stream)


def test_rows_are_out_of_order_but_never_late(shop: Path) -> None:
    for stream in STREAMS:
        newest = None
        disorder = 0
        for batch in batches(shop, stream):
            ts = batch["ts"].cast(pa.int64()).to_numpy()
            disorder += int((np.diff(ts) < 0).sum())
            if newest is not None:
                assert ts.min() >= newest - LATENESS
            newest = max(newest or 0, ts.max())
        assert disorder > SMALL.rows / 10


def test_streams_have_the_promised_rows_and_a_few_null_keys(shop: Path) -> None:
    for stream in STREAMS:
        files = batches(shop, stream)
        assert len(files) == SMALL.batches
        assert sum(len(file) for file in files) == SMALL.rows
        assert 0 < sum(file["order_id"].null_count for file in files) < SMALL.rows / 50


def test_files_are_ordered_by_modification_time(shop: Path) -> None:
    times = [path.stat().st_mtime for path in sorted((shop / "orders").iterdir())]

    assert times == sorted(set(times))


def test_too_few_rows_for_the_batches_are_refused() -> None:
    with pytest.raises(ConfigError, match="do not fill 6 batches"):
        Shop(rows=5, batches=6, seed=1)


@pytest.fixture
def answered(shop: Path, tmp_path: Path) -> tuple[Path, pa.Table]:
    """A shop with DuckDB's own answer as its result, to be falsified."""
    for stream in STREAMS:
        (tmp_path / stream).symlink_to(shop / stream)
    files = {stream: str(shop / stream / "*.parquet") for stream in STREAMS}
    statement = f"SELECT * REPLACE (make_timestamp(shipped_at) AS shipped_at) FROM ({_EXPECTED})"
    return tmp_path, duckdb.sql(statement, params=files).to_arrow_table()


def write_results(folder: Path, rows: pa.Table) -> None:
    (folder / "results").mkdir()
    pq.write_table(rows, folder / "results" / "part.parquet")


def test_the_right_answer_is_called_exact(answered: tuple[Path, pa.Table]) -> None:
    folder, rows = answered
    write_results(folder, rows.take(pa.array(np.random.default_rng(1).permutation(len(rows)))))

    verdict = compare(folder)

    assert verdict.exact
    assert str(verdict) == f"exact: {len(rows):,} results, the same multiset as DuckDB on the complete input"


def test_a_lost_a_doubled_and_a_changed_result_are_all_found(answered: tuple[Path, pa.Table]) -> None:
    folder, rows = answered
    changed = rows.slice(1, 1).set_column(2, "amount", pa.array([-1.0]))
    write_results(folder, pa.concat_tables([changed, rows.slice(2), rows.slice(5, 1)]))

    verdict = compare(folder)

    assert (verdict.missing, verdict.surplus) == (2, 2)
    assert str(verdict).startswith("WRONG: ")


def test_no_results_at_all_are_wrong(answered: tuple[Path, pa.Table]) -> None:
    folder, rows = answered

    assert compare(folder).missing == len(rows)


def test_the_comparison_can_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(database: duckdb.DuckDBPyConnection, *_: object) -> None:
        database.execute("SELECT count(*) FROM range(1_000_000_000_000) WHERE range % 7 = 3").fetchall()

    monkeypatch.setattr(demo_query, "_compare", endless)
    with signals.raised_as_exceptions():
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(signals.Interrupted):
            compare(tmp_path)


def test_a_folder_in_use_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()

    shown = CliRunner().invoke(app, ["demo", "--keep", str(tmp_path)])

    assert shown.exit_code == 2
    assert "name a folder that is new or empty" in shown.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(("processors", "shares"), [(1, (8,)), (2, (8, 1)), (5, (8, 1, 1, 1, 1))])
def test_most_state_begins_on_one_processor_of_any_number(
    tmp_path: Path, processors: int, shares: tuple[int, ...]
) -> None:
    (tmp_path / "orders.toml").write_text(demo_query.run_file(processors))
    described = load(tmp_path / "orders.toml")

    assert (described.processors, described.initial_placement) == (processors, shares)


@pytest.mark.spark
def test_the_demo_is_exact_and_what_it_keeps_can_be_inspected_and_leaves_nothing_else(tmp_path: Path) -> None:
    temporary, kept = tmp_path / "tmp", tmp_path / "shop"
    temporary.mkdir()
    before = set(psutil.Process().children(recursive=True))
    process = start("demo", "--rows", "3000", "--batches", "3", "--keep", str(kept), temporary=temporary)

    out, err = process.communicate(timeout=280)

    assert process.returncode == 0, err
    assert err == ""
    assert "exact: " in out
    assert "batch 2: 3,000 rows in" in out
    assert "80% of the state on one of 3 processors" in out
    assert " relocate: join of o, p, s: " in out
    assert set(psutil.Process().children(recursive=True)) <= before
    assert list(temporary.iterdir()) == []
    found = json.loads(CliRunner().invoke(app, ["inspect", "--json", str(kept / "checkpoint")]).stdout)
    assert found["damage"] == []
    assert found["steps"][-1]["batch"] == 2


@pytest.mark.spark
def test_the_story_of_a_plan_finds_the_car_that_turned_and_is_exact_in_town(tmp_path: Path, invoke: Invoke) -> None:
    out = invoke("demo", "plan", "--cars", "3000", temporary=tmp_path)
    minutes = [line for line in out.splitlines() if line.startswith(("│", "|"))]
    assert [line for line in minutes if "mph" in line] == [line for line in minutes if "SOXFAN4, 50 mph" in line]
    assert "Which cars came along road 1 and turned onto road 2" in out
    for car in {reading.car for reading in READINGS if reading.sensor == "sensor2"}:
        first = [reading.minute for reading in READINGS if (reading.car, reading.sensor) == (car, "sensor1")]
        second = [reading.minute for reading in READINGS if (reading.car, reading.sensor) == (car, "sensor2")]
        assert all(before < after for before in first for after in second), "as the question has it"
    assert "exchanged by key hash in 2 rounds" in out
    assert "exact: " in out
    assert list(tmp_path.iterdir()) == []


def test_readings_of_the_town_are_out_of_order_but_never_late(tmp_path: Path) -> None:
    write_town(Town(cars=2_000), tmp_path)
    for sensor in SENSORS:
        newest, disorder = 0, 0
        for batch in batches(tmp_path, sensor):
            ts = batch["ts"].cast(pa.int64()).to_numpy()
            disorder += int((np.diff(ts) < 0).sum())
            assert ts.min() >= newest - TRAFFIC_LATENESS
            newest = max(newest, int(ts.max()))
        assert disorder > 100


def is_alive(process: psutil.Process) -> bool:
    """A process that has ended but was not yet waited for by whoever inherited it is not alive."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.spark
def test_an_interrupted_demo_ends_with_130_and_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    process = start("demo", "--rows", "20000", "--batches", "20", temporary=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("batch 0"):
            break
    family = psutil.Process(process.pid).children(recursive=True)
    assert family

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert err == "anabranch: interrupted; nothing is left running\n"
    assert not any(is_alive(member) for member in family)
    assert set(psutil.Process().children(recursive=True)) <= before
    assert list(tmp_path.iterdir()) == []
