"""An embedded Spark session with settings that suit Anabranch on one machine."""

from __future__ import annotations

import os
import re
import sys

from pyspark.sql import SparkSession

from anabranch.errors import ConfigError
from anabranch.runtime.spark.jit import spare_compiler

LOOPBACK = "127.0.0.1"


def local_session(
    cores: int | str = "*",
    *,
    name: str = "anabranch",
    memory: str = "2g",
    ui: bool = False,
    log_level: str = "ERROR",
    conf: dict[str, str] | None = None,
) -> SparkSession:
    """Start (or get) an embedded Spark that listens on loopback only. It has a UI only with `ui=True`.

    `cores` is a number, or "*" for all of the machine. Either may be followed by the number of attempts per task, as in
    "2,4"; without it Spark never retries a failed task. `memory` is the JVM's heap; the state of joins does not live
    there. `conf` overrides anything. The JVM keeps its optimising compiler for code that touches rows.

    >>> spark = local_session(cores=2)
    >>> spark.range(3).count()
    3
    """
    # Read by the JVM when it starts; without it Spark's UI would listen on all interfaces.
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": log_level,
        "spark.sql.shuffle.partitions": str(threads(cores)),
        **(conf or {}),
    }
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    spare_compiler(session)
    return session


def threads(cores: int | str) -> int:
    """The number of tasks that run at the same time under Spark's `local[cores]`."""
    match = re.fullmatch(r"(\*|[1-9]\d*)(\s*,\s*[1-9]\d*)?", str(cores))
    if match is None:
        raise ConfigError(f"cores must be a number, '*', or either with attempts per task as in '2,4', not {cores!r}")
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1])
