"""An embedded Spark session with settings that suit Anabranch on one machine."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

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
    """Start (or get) an embedded Spark that listens on loopback only and starts no UI unless asked.

    `memory` is the JVM's heap; the state of joins does not live there. `conf` overrides anything.

    >>> spark = local_session(cores=2)
    >>> spark.range(3).count()
    3
    """
    # Read by the JVM when it starts; without it Spark's UI would listen on all interfaces.
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    parallelism = (os.cpu_count() or 1) if cores == "*" else int(cores)
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": log_level,
        "spark.sql.shuffle.partitions": str(parallelism),
        **(conf or {}),
    }
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
