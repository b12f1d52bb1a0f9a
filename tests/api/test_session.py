"""The embedded session keeps to itself."""

from __future__ import annotations

import os

import psutil
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


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
