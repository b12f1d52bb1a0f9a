"""docs/testing.md tells the truth: its examples are tests, and they pass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES: dict[str, Any] = {}
for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
    exec(compile(block, PAGE.name, "exec"), EXAMPLES)
TESTS = [name for name in EXAMPLES if name.startswith("test_")]


def test_the_page_has_examples() -> None:
    assert len(TESTS) == 4


@pytest.mark.spark
@pytest.mark.parametrize("name", TESTS)
def test_an_example_passes(spark: SparkSession, tmp_path: Path, name: str) -> None:
    EXAMPLES[name](spark, tmp_path)
