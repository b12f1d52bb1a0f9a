"""`Run.plans`: what other orders of joins would cost, in a run that goes on, and of one that has ended."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import ConfigError
from tests.oracle.feed import Feed

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64())])
CHAIN = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"


def test_a_run_lists_its_orders_and_measures_them_by_itself_for_a_policy(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = ab.Engine(spark, tmp_path / "checkpoint", 2, groups=16, policies=[ab.AutoMigrate(gain=100)])
    for name in "ABC":
        feed = Feed(tmp_path / name, SCHEMA)
        feed.add(k=list(range(40)), j=[n % 2 for n in range(40)], v=list(range(40)))
        engine.register(name, feed.stream(spark))
    query = engine.sql(CHAIN, joins="A (B C)")
    run = query.writeStream.option("path", str(tmp_path / "out")).start()
    try:
        run.processAllAvailable()
        until = time.monotonic() + 60
        while not (tmp_path / "checkpoint" / "orders.json").exists() and time.monotonic() < until:
            time.sleep(0.1)
        assert (tmp_path / "checkpoint" / "orders.json").exists(), "nobody has asked but the policy"
        plans = run.plans()
        assert plans[0].joins == "(A B) C"
        assert [plan.joins for plan in plans if plan.in_force] == ["A (B C)"]
        assert [plan.state_rows for plan in plans if plan.in_force] == [800], "20 times 20 for each of two keys"
        assert plans[0].state_rows == 40
        with pytest.raises(ConfigError, match="there is no query 'other'"):
            run.plans("other")
        run.explain()
    finally:
        run.stop()
    shown = capsys.readouterr().out
    assert "orders of the joins of query, least work first:" in shown
    best, other = (line.split() for line in shown.splitlines()[-2:])
    assert best[:3] == ["(A", "B)", "C"]
    assert other[:3] == ["A", "(B", "C)"]
    assert other[-2:] == ["in", "force"]
    assert run.plans() == plans
