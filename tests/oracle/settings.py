"""Settings of a session that no answer may depend on, unless the query itself does, drawn by chance."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

# The usual value first, the oddest last.
ODD = {
    "spark.sql.ansi.enabled": ("true", "false"),
    "spark.sql.ansi.enforceReservedKeywords": ("false", "true"),
    "spark.sql.caseSensitive": ("false", "true"),
    "spark.sql.execution.arrow.useLargeVarTypes": ("false", "true"),
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": ("false", "true"),
    "spark.sql.mapKeyDedupPolicy": ("EXCEPTION", "LAST_WIN"),
    "spark.sql.parser.escapedStringLiterals": ("false", "true"),
    "spark.sql.preserveCharVarcharTypeInfo": ("false", "true"),
    "spark.sql.session.timeZone": ("UTC", "Asia/Kolkata", "Europe/Berlin"),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"),
}


@contextmanager
def odd_settings(spark: SparkSession, rng: random.Random | None = None) -> Iterator[None]:
    """Inside, the session has settings that hardly anybody has together: some by chance, or all of them."""
    chosen = {name: values[-1] if rng is None else rng.choice(values) for name, values in ODD.items()}
    before = {name: spark.conf.get(name) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            spark.conf.set(name, str(earlier))
