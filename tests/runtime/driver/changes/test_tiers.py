"""Clusters of processors on Spark: queries stay in their cluster, whatever adapts, and are sent to others while they
run."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import ConfigError
from anabranch.manager.tiers.clusters import checked_clusters
from anabranch.state.failpoints import VARIABLE
from anabranch.testing import Steps
from tests.oracle.referee import assert_same_rows, query

pytestmark = pytest.mark.spark

CLUSTERS = {"eu": [0, 2], "us": [1, 3]}
SCHEMA = "k BIGINT, j BIGINT, v BIGINT, ts BIGINT"
JOIN = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
OTHER = "SELECT A.v AS a, C.v AS c FROM A, C WHERE A.k = C.k"
AGAIN = "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.j = B.j"
PAIRS = "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k"
SAME = "SELECT A.v + 1 AS a, C.v AS c FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
LOWER, UPPER, BESIDE = "join of A, B", "join of C, A, B", "join of A of other, C of other"


def rows(chance: random.Random, count: int = 20) -> list[tuple[int, ...]]:
    return [(chance.randrange(4), chance.randrange(4), n, 1000) for n in range(count)]


def batch(seed: int) -> dict[str, list[tuple[int, ...]]]:
    chance = random.Random(seed)
    return {name: rows(chance) for name in "ABC"}


def opened(spark: SparkSession, checkpoint: Path, **settings: object) -> Steps:
    placement = settings.pop("placement", ab.Tier(CLUSTERS))
    steps = Steps(spark, checkpoint, processors=4, groups=16, placement=placement, **settings)
    for name in "ABC":
        steps.stream(name, SCHEMA, time="ts", lateness="1 hour")
    return steps


def homes(steps: Steps) -> dict[str, str | None]:
    """The cluster of each operator, which has to be in one."""
    clusters = checked_clusters(CLUSTERS)
    table = steps.distribution()
    for operator in table:
        assert operator.cluster == clusters.of_processors(operator.processors) is not None
    return {operator.operator: operator.cluster for operator in table}


def feed(steps: Steps, seed: int, fed: list[dict[str, list[tuple[int, ...]]]]) -> None:
    fed.append(batch(seed))
    steps.feed(fed[-1])


def expected(text: str, fed: list[dict[str, list[tuple[int, ...]]]]) -> pa.Table:
    tables = {name: [row for each in fed for row in each[name]] for name in "ABC"}
    return query(
        text,
        {name: pa.table(list(zip(*rows, strict=True)), names=["k", "j", "v", "ts"]) for name, rows in tables.items()},
    )


def test_queries_are_put_on_clusters_and_sent_to_others_with_their_state(spark: SparkSession, tmp_path: Path) -> None:
    fed: list[dict[str, list[tuple[int, ...]]]] = []
    with opened(spark, tmp_path / "c") as steps:
        steps.query(JOIN, name="join", joins="(A B) C", cluster="us")
        steps.query(OTHER, name="other")
        steps.query(SAME, name="same", joins="(A B) C", cluster="eu")
        feed(steps, 0, fed)
        assert homes(steps) == {LOWER: "us", UPPER: "us", BESIDE: "eu"}, "the first query has what is shared"
        assert steps.distribution()[LOWER].queries == ("join", "same")
        assert "on processors 1, 3, cluster 'us'" in str(steps.distribution())
        with pytest.raises(ConfigError, match=r"join of A, B is shared .* 'same'.*send both: run.send"):
            steps.send("join", to="eu")
        steps.send("other", to="us")
        steps.send("other", to="us")
        steps.send(["join", "same"], to="eu")
        now = {LOWER: "eu", UPPER: "eu", BESIDE: "us"}
        assert homes(steps) == now
        feed(steps, 1, fed)
        told = [event for event in steps.events if event.kind == "reallocate"]
        assert ["went to the cluster 'us'" in event.reason for event in told] == [True, False], "what is there stays"
        assert [event.details["before"] for event in told] == [["on processors 0, 2"], ["on processors 1, 3"] * 2]
        assert all(event.details["bytes"] > 0 for event in told)
        fed.append(batch(2))
        steps.crash_and_resume(fed[-1])
        assert homes(steps) == now, "clusters survive a crash"
        assert_same_rows(steps.answer("same"), expected(SAME, fed))
        steps.remove("same")
        steps.resume()
        assert homes(steps) == now
        steps.migrate("(B C) A", query="join")
        assert homes(steps) == {"join of B, C": "eu", "join of A, B, C": "eu", BESIDE: "us"}
        steps.query(AGAIN, name="again")
        assert homes(steps)["join of A of again, B of again"] == "us", "it has fewer operators there"
        feed(steps, 3, fed)
        assert_same_rows(steps.answer("join"), expected(JOIN, fed))
        assert_same_rows(steps.answer("other"), expected(OTHER, fed))


def test_nothing_done_by_hand_leaves_a_cluster_but_a_query_that_is_sent(spark: SparkSession, tmp_path: Path) -> None:
    fed: list[dict[str, list[tuple[int, ...]]]] = []
    with opened(spark, tmp_path / "c") as steps:
        steps.query(JOIN, name="join", joins="(A B) C", cluster="us")
        steps.query(OTHER, name="other", cluster="eu")
        feed(steps, 0, fed)
        for refused in (
            lambda: steps.reallocate(LOWER, to=2),
            lambda: steps.relocate([0], to=0, operator=UPPER),
            lambda: steps.diffuse([0], master="A of other", over=[1, 2], operator=BESIDE),
        ):
            with pytest.raises(ConfigError, match="run.send"):
                refused()
        with pytest.raises(ConfigError, match="a run with clusters cannot be rescaled"):
            steps.rescale(2)
        with pytest.raises(ConfigError, match="there is no cluster 'u'; did you mean 'us'"):
            steps.send("join", to="u")
        with pytest.raises(ConfigError, match="there is no query 'joins'; did you mean 'join'"):
            steps.send("joins", to="us")
        with pytest.raises(ConfigError, match="give the name of a query, or a list of names, not <Query"):
            steps.send(steps.engine.sql(OTHER), to="us")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="give the name of an operator, or a list of names, not None"):
            steps.reallocate(None, to=1)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="the query 'other' is in cluster 'eu'"):
            steps.change("other", steps.engine.sql(OTHER + " AND A.v > 3", cluster="us"))
        with pytest.raises(ConfigError, match="there is no operator 'join of A, C'; did you mean"):
            steps.distribution()["join of A, C"]
        with pytest.raises(ConfigError, match=r"cost must be a cost model such as ab.CpuTime\(\), not 'cpu'"):
            steps.distribution("cpu")  # type: ignore[arg-type]
        steps.relocate(range(16), to=0)
        assert homes(steps) == {LOWER: "us", UPPER: "us", BESIDE: "eu"}, "groups of what is in that cluster"
        assert steps.distribution()[BESIDE].processors == (0,)
        steps.reallocate([LOWER, UPPER], to=3)
        steps.reallocate(LOWER, to=None)
        assert [steps.distribution()[name].processors for name in (LOWER, UPPER)] == [(1, 3), (3,)]
        feed(steps, 1, fed)
        assert_same_rows(steps.answer("join"), expected(JOIN, fed))
        assert_same_rows(steps.answer("other"), expected(OTHER, fed))


def test_a_run_goes_on_with_clusters_and_without(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[dict[str, list[tuple[int, ...]]]] = []
    answers = []
    for n, placement in enumerate(
        ["round-robin", ab.Tier(CLUSTERS, "grouping"), ab.Tier({"all": [3, 0, 2, 1]}), "spread"]
    ):
        with opened(spark, tmp_path / "c", placement=placement) as steps:
            steps.query(JOIN, joins="(A B) C")
            if n == 1:
                assert {*homes(steps).values()} == {"eu"}
                assert "cluster 'eu'" in steps._run._answered["query"].query.plan
                with pytest.raises(ConfigError, match=r"no operator is in cluster 'us' .*run.send\(query, to='us'\)"):
                    steps.relocate([0], to=1)
                monkeypatch.setenv(VARIABLE, f"reallocation.committed=raise@once:{tmp_path / 'marker'}")
                with pytest.raises(Exception, match="failpoint"):
                    steps.send("query", to="us")
                monkeypatch.delenv(VARIABLE)
                steps.resume()
                assert {*homes(steps).values()} == {"us"}, "the commit decides"
            feed(steps, n, fed)
            answers.append(steps.answer())
    assert_same_rows(pa.concat_tables(answers), expected(JOIN, fed))


def test_clusters_that_do_not_fit_the_engine_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    def engine(processors: int | None = None, placement: object = None, **settings: object) -> ab.Engine:
        where = ab.Tier(CLUSTERS) if placement is None else placement
        return ab.Engine(spark, tmp_path / "c", processors, placement=where, **settings)  # type: ignore[arg-type]

    assert engine().processors == 4, "as many as are listed"
    with pytest.raises(ConfigError, match=r"'us' lists processor 3, .* set processors=4"):
        engine(3)
    with pytest.raises(ConfigError, match="processor 4 is in no cluster"):
        engine(5)
    with pytest.raises(ConfigError, match="initial_placement is for operators that are spread"):
        engine(initial_placement=[1, 1, 1, 1])
    with pytest.raises(ConfigError, match="there is no cluster 'us '"):
        engine().sql(PAIRS, cluster="us ")
    with pytest.raises(ConfigError, match="there are no clusters, so none is called 'eu'"):
        engine(placement="spread").sql(PAIRS, cluster="eu")
    with opened(spark, tmp_path / "d", placement="spread") as steps:
        steps.query(PAIRS)
        with pytest.raises(ConfigError, match="the run has no clusters"):
            steps.send("query", to="eu")
