"""The Spark session that all tests of one process share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

import anabranch as ab
from tests.oracle.profiles import PROFILE

# Properties without a number of examples of their own have no deadline either, and the same examples every time.
settings.load_profile(PROFILE)

# Tests run many small plans once each: compiling them thoroughly would take longer than running them, and so would
# telling the JVM for every function of PySpark which line of Python it was called from. Without its second compiler the
# JVM keeps little compiled code and would compile again what it has thrown away. Spark's own classes are not verified,
# and that there are many of them is no reason to collect garbage.
FEW_CHECKS = (
    "-XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
QUICK_START = {
    "spark.driver.extraJavaOptions": f"{FEW_CHECKS} -XX:+UseSerialGC -Xmn400m -XX:ReservedCodeCacheSize=256m",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

# For the JVMs of programs that tests start as a user would. They choose their own garbage collector.
os.environ["SPARK_SUBMIT_OPTS"] = FEW_CHECKS

# The engine waits for the disk dozens of times per step. What tests write is not needed once the machine has lost
# power, so it goes to memory if there is enough of it; `--basetemp` has the last word.
IN_MEMORY, ENOUGH = Path("/dev/shm"), 4 << 30
if os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > ENOUGH:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """An embedded Spark with two cores, started when the first test asks for it."""
    session = ab.local_session(cores=2, memory="1500m", conf=QUICK_START)
    yield session
    session.stop()


@pytest.fixture
def other_file_system(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than `tmp_path`."""
    places = [IN_MEMORY, Path(tempfile.gettempdir()), Path(__file__).parent]
    others = [place for place in places if place.is_dir() and place.stat().st_dev != tmp_path.stat().st_dev]
    if not others:
        pytest.skip("there is only one file system")
    folder = Path(tempfile.mkdtemp(dir=others[0]))
    yield folder
    shutil.rmtree(folder)
