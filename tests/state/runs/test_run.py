"""Runs: what is written is read back, whatever its type, and no damage goes unnoticed."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
import weakref
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CorruptStateError
from anabranch.state.runs import run as run_module
from anabranch.state.runs.run import FileCuts, RunCache, RunFile, Segment, map_run, write_run
from tests.oracle.profiles import examples
from tests.state.segments import segment

NAN = float("nan")
MOMENT = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)
PAYLOADS = {
    "boolean": pa.array([True, None, False]),
    "byte": pa.array([-128, None, 127], pa.int8()),
    "integer": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
    "long": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
    "float": pa.array([-0.0, None, float("inf")], pa.float32()),
    "string": pa.array(["", None, "Größe\0日本"]),
    "binary": pa.array([b"", None, b"\0\xff"]),
    "date": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "timestamp": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.array([MOMENT, None, MOMENT], pa.timestamp("us")),
    "interval": pa.array([dt.timedelta(microseconds=-1), None, dt.timedelta(1)], pa.duration("us")),
    "decimal": pa.array([Decimal("-" + "9" * 36 + ".99"), None, Decimal("0.01")], pa.decimal128(38, 2)),
    "null": pa.array([None, None, None], pa.null()),
    "array": pa.array([[1, None], None, []], pa.list_(pa.int64())),
    "struct": pa.array([{"a": 1, "b": None}, None, {"a": None, "b": "x"}]),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "nested": pa.array(
        [[{"m": [("k", [Decimal("1.5")])]}], None, [None]],
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.decimal128(4, 1))))])),
    ),
    "array of arrays of strings": pa.array([[["a"], []], None, [None]]),
}


@pytest.mark.parametrize("kind", PAYLOADS)
def test_a_payload_of_any_type_comes_back_as_it_was(tmp_path: Path, kind: str) -> None:
    written = segment([3, 1, 2], [30, 10, 20], payload=PAYLOADS[kind])
    file = write_run(tmp_path, "run.arrow", written)
    back = map_run(tmp_path, file)
    assert back.rows.equals(written.rows)
    assert back.rows.schema.types == written.rows.schema.types
    back.rows.validate(full=True)


def test_nan_and_minus_zero_keep_their_bits(tmp_path: Path) -> None:
    values = np.array([NAN, -0.0, 0.0])
    back = map_run(tmp_path, write_run(tmp_path, "run.arrow", segment([1, 2, 3], payload=values)))
    assert back.rows.column("payload").to_numpy().tobytes() == values.tobytes()


@examples(40)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1),
            st.integers(-(2**60), 2**60),
            st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
            st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
        ),
        max_size=20,
    ),
    timed=st.booleans(),
    cut=st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_a_slice_of_any_rows_comes_back_as_it_was(
    rows: list, timed: bool, cut: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = segment(
        [row[0] for row in rows],
        [row[1] for row in rows] if timed else None,
        text=pa.array([row[2] for row in rows], pa.string()),
        numbers=pa.array([row[3] for row in rows], pa.list_(pa.int64())),
    )
    start, stop = (min(edge, len(rows)) for edge in sorted(cut))
    written = whole.slice(start, stop)
    directory = tmp_path_factory.getbasetemp()
    file = write_run(directory, "run.arrow", written)
    back = map_run(directory, file)
    assert back.rows.equals(written.rows)
    assert back.hashes.tolist() == written.hashes.tolist()
    assert (back.ts is None) == (not timed)
    assert file.rows == len(back) == stop - start
    if timed and len(back):
        assert (file.min_ts, file.max_ts) == (min(back.ts), max(back.ts))
    else:
        assert (file.min_ts, file.max_ts) == (None, None)
    assert RunFile.from_json(file.name, file.to_json()) == file


def test_a_run_with_no_payload_and_one_with_no_rows_are_fine(tmp_path: Path) -> None:
    assert map_run(tmp_path, write_run(tmp_path, "a", segment([2, 1]))).hashes.tolist() == [1, 2]
    assert len(map_run(tmp_path, write_run(tmp_path, "b", segment([], [])))) == 0


def test_the_file_says_how_many_rows_and_which_times_it_holds(tmp_path: Path) -> None:
    write_run(tmp_path, "run.arrow", segment([1, 2], [5, -7]))
    with pa.ipc.open_file(tmp_path / "run.arrow") as reader:
        assert reader.schema.metadata == {b"rows": b"2", b"min_ts": b"-7", b"max_ts": b"5"}


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, RunFile]:
    return tmp_path, write_run(tmp_path, "run.arrow", segment([1, 2], [5, 6], text=["a", None]))


def test_any_flipped_bit_anywhere_in_the_file_is_found(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    path = directory / file.name
    data = path.read_bytes()
    with open(path, "r+b", buffering=0) as handle:
        for position, byte in enumerate(data):
            os.pwrite(handle.fileno(), bytes([byte ^ 1 << (position * 5 % 8)]), position)
            with pytest.raises(CorruptStateError, match=r"run.arrow is damaged"):
                map_run(directory, file)
            os.pwrite(handle.fileno(), bytes([byte]), position)
    assert len(map_run(directory, file)) == 2


def test_a_file_cut_short_or_grown_is_found(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    path = directory / file.name
    data = path.read_bytes()
    for length in range(1, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(CorruptStateError, match=f"run.arrow is {length} bytes long instead of {len(data)}"):
            map_run(directory, file)
    path.write_bytes(data + b"\0")
    with pytest.raises(CorruptStateError, match="bytes long instead of"):
        map_run(directory, file)


def test_an_emptied_file_and_a_missing_file_are_named(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    (directory / file.name).write_bytes(b"")
    with pytest.raises(CorruptStateError, match=r"run.arrow is empty"):
        map_run(directory, file)
    (directory / file.name).unlink()
    with pytest.raises(CorruptStateError, match=r"run.arrow is missing"):
        map_run(directory, file)


def test_another_file_of_the_same_size_under_the_name_is_found(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    other = write_run(directory, file.name, segment([1, 2], [5, 6], text=["b", None]))
    assert other.bytes == file.bytes
    with pytest.raises(CorruptStateError, match="damaged"):
        map_run(directory, file)


class Reads:
    """Counts how often files are read and verified."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        monkeypatch.setattr(run_module, "map_run", self)

    def __call__(self, directory: Path, file: RunFile) -> Segment:
        self.names.append(file.name)
        return map_run(directory, file)


def test_the_cache_verifies_a_file_once(small: tuple[Path, RunFile], monkeypatch: pytest.MonkeyPatch) -> None:
    directory, file = small
    reads, cache = Reads(monkeypatch), RunCache()
    first = cache.open(directory, file)
    cache.start_task(directory)
    assert cache.open(directory, file) is first
    assert reads.names == ["run.arrow"]


def test_the_cache_serves_nothing_that_was_not_verified(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    cache = RunCache()
    cache.open(directory, file)
    for _ in range(2):
        with pytest.raises(CorruptStateError):
            cache.open(directory, replace(file, crc=file.crc ^ 1))
    with pytest.raises(CorruptStateError, match="missing"):
        cache.open(directory / "elsewhere", file)


def test_the_cache_forgets_what_is_not_asked_for(small: tuple[Path, RunFile], monkeypatch: pytest.MonkeyPatch) -> None:
    directory, file = small
    other = write_run(directory, "other.arrow", segment([9]))
    monkeypatch.setattr(run_module, "UNUSED_TASKS", 3)
    reads, cache = Reads(monkeypatch), RunCache()
    for tasks, expected in ((3, 1), (4, 2)):
        cache.open(directory, other)
        for _ in range(tasks):
            cache.start_task(directory)
            cache.open(directory, file)
        cache.open(directory, other)
        assert reads.names.count("other.arrow") == expected
    assert reads.names.count("run.arrow") == 1
    cache.close()
    cache.open(directory, file)
    assert reads.names[-1] == "run.arrow"


def test_the_cache_keeps_what_a_processor_of_another_run_uses(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    cache = RunCache()
    mapped = weakref.ref(cache.open(directory, file, 1).rows)
    cache.start_task(directory / "elsewhere", 1, active=())
    cache.start_task(directory, 0, active=())
    assert mapped() is not None
    cache.start_task(directory, 1, active=())
    assert mapped() is None


def test_the_cache_lets_go_of_a_file_that_was_deleted(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    cache = RunCache()
    mapped = weakref.ref(cache.open(directory, file).rows)
    cache.start_task(directory)
    assert mapped() is not None
    (directory / file.name).unlink()
    cache.start_task(directory)
    assert mapped() is None


def test_the_cache_lets_go_of_files_whose_directory_was_deleted(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    cache = RunCache()
    mapped = weakref.ref(cache.open(directory, file).rows)
    shutil.rmtree(directory)
    cache.start_task(directory)
    assert mapped() is None


def test_a_mapped_run_outlives_its_file_and_its_cache(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    cache = RunCache()
    mapped = cache.open(directory, file)
    cache.close()
    (directory / file.name).unlink()
    assert mapped.rows.column("text").to_pylist() == ["a", None]


MANY_FILES = """
import resource, sys
from pathlib import Path
from anabranch.state.runs.run import RunCache, write_run
from tests.state.segments import segment

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
directory, cache = Path(sys.argv[1]), RunCache()
files = [write_run(directory, f"{n}.arrow", segment([n, n + 1])) for n in range(200)]
mapped = [cache.open(directory, file) for file in files]
assert [run.hashes.tolist() for run in mapped] == [[n, n + 1] for n in range(200)]
"""


def test_a_mapped_run_takes_no_file_descriptor(tmp_path: Path) -> None:
    """More runs are open at once than a process may have open files."""
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), str(Path(run_module.__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", MANY_FILES, str(tmp_path)], env={**os.environ, "PYTHONPATH": path}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


def test_the_cache_maps_no_more_files_than_a_process_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "MAPPED_FILES", 8)
    files = [write_run(tmp_path, f"{n}.arrow", segment([n])) for n in range(20)]
    reads, cache = Reads(monkeypatch), RunCache()
    mapped = []
    for file in files:
        cache.start_task(tmp_path)
        mapped.append(weakref.ref(cache.open(tmp_path, file).rows))
        cache.open(tmp_path, files[0])
    assert sum(run() is not None for run in mapped) <= 8
    assert reads.names.count("0.arrow") == 1, "what is used all the time stays"


def test_what_was_verified_is_remembered_within_bounds_by_who_writes_and_by_who_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "REMEMBERED_FILES", 5)
    monkeypatch.setattr(run_module, "_verified", {})
    files = [write_run(tmp_path, f"{n}.arrow", segment([n])) for n in range(12)]
    assert [path.name for path, _ in run_module._verified] == [f"{n}.arrow" for n in range(7, 12)]
    for file in files:
        map_run(tmp_path, file)
    assert len(run_module._verified) == 5


@examples(50)
@given(hashes=st.lists(st.integers(0, 2**64 - 1), max_size=40), groups=st.sampled_from([1, 4, 256]))
def test_who_is_told_where_groups_begin_knows_what_is_found_in_the_file(hashes: list[int], groups: int) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        written = segment(hashes)
        file = write_run(directory, "run.arrow", written)
        writer, found, told = (FileCuts(directory, groups) for _ in range(3))
        writer.learn(file.name, written.hashes)
        told.learn_texts(writer.texts([file.name, "unknown.arrow"]))
        assert found(file).tolist() == writer(file).tolist()
        (directory / file.name).unlink()
        assert told(file).tolist() == found(file).tolist()


def test_cuts_of_files_that_are_not_listed_any_more_are_forgotten(tmp_path: Path) -> None:
    files = [write_run(tmp_path, f"{n}.arrow", segment([n])) for n in range(3)]
    cuts = FileCuts(tmp_path, 4)
    for file in files:
        cuts(file)
    cuts.forget_others(["1.arrow", "2.arrow"])
    assert cuts.texts(file.name for file in files).keys() == {"1.arrow", "2.arrow"}


def test_cuts_of_another_file_under_a_name_are_not_used(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    cuts = FileCuts(directory, 4)
    cuts.learn(file.name, segment([1, 2, 3]).hashes)
    assert cuts(file).tolist()[-1] == file.rows


def test_a_run_gets_its_index_when_somebody_looks_rows_up_in_it(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    cache = RunCache()
    assert cache.open(directory, file, indexed=False).index is None
    assert cache.open(directory, file).index is not None
    assert cache.open(directory, file, indexed=False) is cache.open(directory, file)


def test_with_very_many_groups_nothing_is_told_and_everything_is_found(small: tuple[Path, RunFile]) -> None:
    directory, file = small
    cuts = FileCuts(directory, 65_536)
    assert len(cuts(file)) == 65_537
    assert cuts.texts([file.name]) == {}
