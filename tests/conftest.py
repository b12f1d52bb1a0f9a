"""The Spark session that all tests of one process share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import anabranch as ab

# Tests run many small plans once each: compiling them thoroughly would take longer than running them, and so would
# telling the JVM for every function of PySpark which line of Python it was called from. Without its second compiler the
# JVM keeps little compiled code and would compile again what it has thrown away. Spark's own classes are not verified.
QUICK_START = {
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m "
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    ),
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

# For the JVMs of programs that tests start as a user would. They choose their own garbage collector.
os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """An embedded Spark with two cores, started when the first test asks for it."""
    session = ab.local_session(cores=2, memory="1500m", conf=QUICK_START)
    yield session
    session.stop()
