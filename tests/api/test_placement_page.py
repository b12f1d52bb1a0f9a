"""docs/placement.md tells the truth: its examples are tests, and they pass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch as ab

PAGE = Path(__file__).parents[2] / "docs" / "placement.md"
EXAMPLES: dict[str, Any] = {}
for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
    exec(compile(block, PAGE.name, "exec"), EXAMPLES)
TESTS = [name for name in EXAMPLES if name.startswith("test_")]


def test_the_page_has_examples_and_tells_the_defaults() -> None:
    assert len(TESTS) == 5
    for policy, cost in ((ab.Balance(), ab.CpuTime()), (ab.Degradation(), ab.NetworkOutputRate())):
        given = (policy.cost, policy.difference, policy.operators, policy.processors, policy.state_size)
        assert given == (cost, 0.2, None, None, None)


@pytest.mark.spark
@pytest.mark.parametrize("name", TESTS)
def test_an_example_passes(spark: SparkSession, tmp_path: Path, name: str) -> None:
    EXAMPLES[name](spark, tmp_path)
