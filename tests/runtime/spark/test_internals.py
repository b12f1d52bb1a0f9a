"""What PySpark asks the JVM for again and again is asked once."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.java_gateway import JVMView
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.runtime.spark.internals import ASKED_BY_PYSPARK


@pytest.mark.spark
def test_an_engine_lets_pyspark_find_its_classes_without_asking_the_jvm(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ab.Engine(spark, tmp_path / "checkpoint")
    asked: list[str] = []
    ask = JVMView.__getattr__

    def asking(view: JVMView, name: str) -> object:
        asked.append(name)
        return ask(view, name)

    monkeypatch.setattr(JVMView, "__getattr__", asking)
    rows = spark.range(2).select(F.udf(lambda n: n + 1, "long")(F.col("id")).alias("n"), F.lit(1))
    assert rows.schema.names == ["n", "1"]
    assert not {*asked} & {*ASKED_BY_PYSPARK}
