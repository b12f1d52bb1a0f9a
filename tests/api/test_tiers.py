"""Clusters of processors through the public API: from `engine.sql(cluster=...)` to what is left when the run has
stopped."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import anabranch as ab
from anabranch.api.stopped_run import clean_up_stopped
from anabranch.checkpoint.existing import existing_checkpoint
from anabranch.cli.main import app
from tests.api.conftest import QUERY, Pair
from tests.oracle.feed import written
from tests.oracle.referee import assert_same_rows


def test_a_query_is_sent_to_another_cluster_while_it_runs(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(pair.directory / "out")
    tier = ab.Tier({"eu": [0, 1], "us": [2, 3]})
    query = pair.engine(processors=None, placement=tier, memory=1_000).sql(QUERY, cluster="us")
    assert "round 1 on processors 2, 3, cluster 'us'" in query.plan
    run = query.writeStream.trigger(processingTime="100 milliseconds").start(out)
    try:
        run.processAllAvailable()
        run.send("query", to="eu")
        assert {entry.cluster for entry in run.distribution()} == {"eu"}
        pair.add(1, 3, 4)
        run.processAllAvailable()
        run.explain()
        assert "round 1 on processors 0, 1, cluster 'eu'" in capsys.readouterr().out
    finally:
        run.stop()
    shown = CliRunner().invoke(app, ["inspect", str(pair.directory / "checkpoint")]).stdout
    assert "join of A, B  0, 1        eu" in shown
    checkpoint, empty = existing_checkpoint(pair.directory / "checkpoint"), pair.directory / "empty"
    empty.mkdir()
    clean_up_stopped(checkpoint, lambda: pair.spark, empty, lambda _: None)
    assert_same_rows(written(out), pair.expected())
