"""The Spark session that all tests of one process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import anabranch as ab


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """An embedded Spark with two cores, started when the first test asks for it."""
    session = ab.local_session(cores=2, memory="1500m")
    yield session
    session.stop()
