"""docs/state-format.md tells the truth: its program reads a real checkpoint."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "state-format.md"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
TEXT = "SELECT a.v AS x, b.v AS y, c.v AS z FROM A a, B b, C c WHERE a.k = b.k AND a.v = c.v"


def test_the_program_of_the_page_finds_every_row_of_a_checkpoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Active and spilled state, slices of groups, and joined rows between two operators."""
    kinds = {name: Kind(SCHEMA) for name in "ABC"}
    settings = {"memory": 12_000, "policies": [ab.Spill(push=0.4)]}
    fed: dict[str, list[int]] = {name: [] for name in "ABC"}
    with Steps(spark, tmp_path / "checkpoint", TEXT, kinds, settings=settings, joins="(a b) c") as steps:
        for number in range(3):
            values = [number * 1_000 + n for n in range(300)]
            for name in fed:
                fed[name] += values
            steps.feed(dict.fromkeys("ABC", pa.table({"k": values, "v": values}, schema=SCHEMA)))
        active = steps.active_rows
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    printed: list[tuple[str, str, pa.RecordBatch]] = []
    monkeypatch.chdir(tmp_path)
    exec(compile(program, PAGE.name, "exec"), {"print": lambda *shown: printed.append(shown)})

    assert {role for _, role, _ in printed} == {"active", "spilled"}
    assert sum(len(batch) for _, role, batch in printed if role == "active") == active
    for alias, name in (("a", "A"), ("b", "B"), ("c", "C")):
        stored = [value for holds, _, batch in printed if holds == alias for value in batch.column("col.v").to_pylist()]
        assert sorted(stored) == sorted(fed[name])
    assert any(set(holds) >= {"a", "b"} for holds, _, _ in printed), "joined rows"
