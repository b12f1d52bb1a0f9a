"""A run sets a fused join apart to diffuse it, and lets it join again, while Spark's query goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from tests.faults.driver import Rig
from tests.oracle.feed import written
from tests.oracle.referee import Stream, assert_same_rows, join

pytestmark = pytest.mark.spark

QUERY = "SELECT A.k, A.v, B.v AS w, C.v AS x FROM A, B, C WHERE A.k = B.k AND B.k = C.k"
LOWER, UPPER = "join of A, B", "join of C, A, B"


def test_a_fused_join_is_diffused_and_gathered_while_the_run_goes_on(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = Rig(tmp_path / "rig")
    rig.add(2)
    engine = ab.Engine(spark, rig.checkpoint, processors=3, groups=16)
    for name, feed in rig.feeds.items():
        engine.register(name, feed.stream(spark), time="at", lateness="1 minute")
    writer = engine.sql(QUERY, joins="(A B) C").writeStream.trigger(processingTime="100 milliseconds")
    run = writer.start(rig.output)
    try:
        run.processAllAvailable()
        groups = run.groups_of(UPPER, key=rig.feeds["A"].batches[0]["k"][0].as_py())
        run.diffuse(groups, master="C", over=[0, 1, 2], operator=UPPER)
        rig.add(1)
        run.processAllAvailable()
        [diffused] = run.lastProgress["anabranch"]["diffused"]
        assert (diffused["apartFrom"], diffused["roundSeconds"] > 0) == ([LOWER], True)
        run.explain()
        shown = capsys.readouterr().out
        assert f"for that it runs in a round of its own, apart from the {LOWER}, about " in shown
        assert "in 2 rounds" in shown
        run.undiffuse(groups)
        run.explain()
        assert "in 1 round;" in capsys.readouterr().out
        rig.add(1)
        run.processAllAvailable()
        assert run.lastProgress["anabranch"]["diffused"] == []
        streams = {name: Stream(feed.complete, ["k"], "at", None) for name, feed in rig.feeds.items()}
        assert_same_rows(written(rig.output), join(streams, ["A.k", "A.v", "B.v AS w", "C.v AS x"]))
    finally:
        run.stop()
