"""The README's example runs when it is pasted, and its answer is right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.spark
def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    example, *_ = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(example.splitlines()) < 26
    shown = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert "'received': {'A': 3000, 'B': 3000, 'C': 3000}" in shown.stdout
    assert "only showing top 5 rows" in shown.stdout
    found = duckdb.sql(f"SELECT k, v, bv, cv FROM '{tmp_path}/out/**/*.parquet' ORDER BY ALL").fetchall()
    expected = duckdb.sql(f"""
        SELECT a.k, a.v, b.v AS bv, c.v AS cv
        FROM '{tmp_path}/in/A/*.parquet' a JOIN '{tmp_path}/in/B/*.parquet' b USING (k)
             JOIN '{tmp_path}/in/C/*.parquet' c USING (k)
        WHERE a.v < c.v AND a.ts >= greatest(a.ts, b.ts, c.ts) - INTERVAL 10 SECONDS
          AND b.ts >= greatest(a.ts, b.ts, c.ts) - INTERVAL 10 SECONDS
          AND c.ts >= greatest(a.ts, b.ts, c.ts) - INTERVAL 1 MINUTE
        ORDER BY ALL""").fetchall()
    assert found == expected != []
