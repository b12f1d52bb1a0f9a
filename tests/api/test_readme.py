"""The README's example runs as it is written, and its answer is right."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "README.md"
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.float64())])


@pytest.mark.spark
def test_the_example_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for n, name in enumerate("abc"):
        (tmp_path / "in" / name).mkdir(parents=True)
        rows = [{"k": k % 7, "ts": datetime(2026, 1, 1, 0, 0, k, tzinfo=UTC), "v": float(k * n)} for k in range(60)]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), tmp_path / "in" / name / "part.parquet")
    example, *_ = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    example = example.replace('"in/', f'"{tmp_path}/in/')  # the JVM keeps the folder that it was started in
    exec(compile(example, "README.md", "exec"), {})
    found = duckdb.sql("SELECT k, v, bv, cv FROM 'out/**/*.parquet' ORDER BY ALL").fetchall()
    expected = duckdb.sql("""
        SELECT a.k, a.v, b.v AS bv, c.v AS cv
        FROM 'in/a/*.parquet' a JOIN 'in/b/*.parquet' b USING (k) JOIN 'in/c/*.parquet' c USING (k)
        WHERE a.v < c.v AND a.ts >= greatest(a.ts, b.ts, c.ts) - INTERVAL 10 SECONDS
          AND b.ts >= greatest(a.ts, b.ts, c.ts) - INTERVAL 10 SECONDS
          AND c.ts >= greatest(a.ts, b.ts, c.ts) - INTERVAL 1 MINUTE
        ORDER BY ALL""").fetchall()
    assert found == expected != []
