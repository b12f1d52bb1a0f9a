"""The embedded session keeps to itself."""

from __future__ import annotations

import os

import psutil
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.api.session import threads
from anabranch.errors import ConfigError
from anabranch.runtime.spark.jit import diagnostic_command, spare_compiler

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.mark.spark
def test_nothing_listens_beyond_loopback_and_there_is_no_ui(spark: SparkSession) -> None:
    assert spark.range(4).rdd.map(lambda row: os.getpid()).count() == 4  # so that Python workers exist
    driver = psutil.Process()
    listening = {
        (process.name(), connection.laddr.ip, connection.laddr.port)
        for process in (driver, *driver.children(recursive=True))
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert {name for name, _, _ in listening} >= {"java"}
    assert {ip for _, ip, _ in listening} <= LOOPBACK, listening
    assert spark.sparkContext.uiWebUrl is None
    assert not any(4040 <= port < 4060 for _, _, port in listening)


@pytest.mark.parametrize(
    ("cores", "expected"), [(2, 2), ("3", 3), ("2,4", 2), ("2, 4", 2), ("*", os.cpu_count()), ("*,4", os.cpu_count())]
)
def test_cores_may_be_a_number_or_all_with_or_without_attempts(cores: int | str, expected: int) -> None:
    assert threads(cores) == expected


@pytest.mark.parametrize("cores", [0, -1, "", "two", "2,", "2,0", "2,4,6", "2.5", True])
def test_cores_that_spark_cannot_read_are_refused_before_it_starts(cores: int | str) -> None:
    with pytest.raises(ConfigError, match="cores must be a number"):
        ab.local_session(cores)


@pytest.mark.spark
def test_the_jvm_is_told_once_which_code_is_seldom_hot(spark: SparkSession) -> None:
    for _ in range(2):
        assert spare_compiler(spark)
    answer = diagnostic_command(spark, "compilerDirectivesPrint")
    assert answer.count("java/io/ObjectOutputStream*.*") == 1
    assert "Exclude:true" in answer
