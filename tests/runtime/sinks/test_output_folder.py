"""Output folders: links, other file systems, what readers see of them and when, and what survives a power cut."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import ConfigError
from anabranch.runtime.sinks import formats as sinks
from anabranch.runtime.sinks import output_folder
from anabranch.runtime.sinks.formats import FileSink, SinkOptions, batch_prefix
from anabranch.runtime.sinks.output_folder import check_folder, move_file, remove_batch, visible_files
from anabranch.state import store
from tests.oracle import referee

ROWS = pa.table({"x": [1]})


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(ROWS, path)
    return path


def seen_by_duckdb(folder: Path) -> set[str]:
    found = referee.query(f"SELECT file FROM glob('{folder}/**/*.parquet')", {}).column("file").to_pylist()
    return {os.path.relpath(path, folder) for path in found}


class SparkWriter:
    """Writes as Spark's writer does: committed files, and those of an attempt that goes on though it was given up."""

    def __init__(self, *committed: str) -> None:
        self.committed = committed

    write = property(lambda self: self)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self

    def save(self, uri: str) -> None:
        staging = Path(uri.removeprefix("file://"))
        for name in self.committed:
            write(staging / name)
            write(staging / "_temporary" / "0" / "_temporary" / "attempt_2" / name)
        (staging / "_SUCCESS").touch()


def file_sink(output: Path, scratch: Path, *partitions: str) -> FileSink:
    return FileSink(SinkOptions("parquet", {"path": str(output)}, partitions), "abcdef01", "UTC", scratch)


@pytest.mark.parametrize("column", ["k", "_k", ".k"])
def test_only_files_that_spark_committed_are_published(tmp_path: Path, column: str) -> None:
    output = tmp_path / "out"
    written = SparkWriter(f"{column}=1/part-0.parquet", f"{column}=2/part-1.parquet")
    file_sink(output, tmp_path / "scratch", column)(written, 3)
    expected = {f"{column}={n + 1}/abcdef01-0000000003-part-{n}.parquet" for n in range(2)}
    assert seen_by_duckdb(output) == expected
    assert sorted(os.listdir(tmp_path)) == ["out", "scratch"]
    assert os.listdir(tmp_path / "scratch") == []


def test_output_may_be_a_link_to_another_file_system_and_so_may_its_partitions(
    tmp_path: Path, other_file_system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, disk = tmp_path / "out", tmp_path / "disk"
    output.symlink_to(other_file_system)
    disk.mkdir()
    (other_file_system / "k=1").symlink_to(disk)
    before = set(os.listdir(tmp_path))
    sink = file_sink(output, tmp_path / "scratch", "k")
    sink(SparkWriter("k=1/part-0.parquet", "k=2/part-1.parquet"), 0)
    sink(SparkWriter("k=1/part-2.parquet"), 1)

    plain = file_sink(output, tmp_path / "scratch")
    staging = plain.stage(2)
    staged = write(staging / "0000-5a38c338-0.parquet.part")
    assert not any("5a38c338" in name for name in seen_by_duckdb(output)), "read before it is published"
    plain.publish(staging, [staged], 2)

    assert set(os.listdir(tmp_path)) - before == {"scratch"}
    assert {path.relative_to(output).as_posix() for path in visible_files(output)} == {
        "k=1/abcdef01-0000000000-part-0.parquet",
        "k=2/abcdef01-0000000000-part-1.parquet",
        "k=1/abcdef01-0000000001-part-2.parquet",
        "abcdef01-0000000002-0000-5a38c338-0.parquet",
    }
    remove_batch(output, batch_prefix("abcdef01", 0))
    assert os.listdir(disk) == ["abcdef01-0000000001-part-2.parquet"]

    def interrupted(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        output_folder.shutil, "copyfile", lambda source, target: (target.touch(), interrupted(source, target))
    )
    source = write(tmp_path / "source.parquet")
    with pytest.raises(KeyboardInterrupt):
        move_file(source, other_file_system / f"{batch_prefix('abcdef01', 5)}a.parquet")
    assert source.exists()
    assert not any("-0000000005-" in name for name in seen_by_duckdb(other_file_system)), "read before it is complete"
    remove_batch(output, batch_prefix("abcdef01", 5))
    assert not [name for name in os.listdir(other_file_system) if "-0000000005-" in name]


def test_links_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    (tmp_path / "again").symlink_to(tmp_path)
    assert [path.name for path in visible_files(tmp_path)] == ["a.parquet"]


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"out is a link to .*missing, which is not there"):
        check_folder(tmp_path / "out" / "below", "the parquet sink")


def test_every_folder_that_a_batch_has_made_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the middle level of two partition columns, and what is above a new output folder."""
    flushed: list[Path] = []

    def sync(path: Path) -> None:
        flushed.append(path.relative_to(tmp_path))

    for module in (store, sinks, output_folder):
        monkeypatch.setattr(module, "sync", sync)
    output = tmp_path / "new" / "out"
    file_sink(output, tmp_path / "scratch", "k", "j")(SparkWriter("k=1/j=2/part-0.parquet"), 0)
    inside = {"new/out", "new/out/k=1", "new/out/k=1/j=2"}
    assert inside | {".", "new"} <= {path.as_posix() for path in flushed}
