"""The settings of a session that decide what a query means (`checkpoint/settings`): reading them, and putting them in
force."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.checkpoint.settings import NAMES, Settings


def settings_in_force(spark: SparkSession) -> dict[str, str | None]:
    """The settings of a session, defaults included; without those that this version of Spark does not have."""
    found: dict[str, str | None] = {}
    for name in NAMES:
        try:
            found[name] = spark.conf.get(name)
        except PySparkException:
            continue
    return found


def put_in_force(session: SparkSession, settings: Settings) -> None:
    """Give a session settings that are on record."""
    now = settings_in_force(session)
    for name, value in settings.items():
        if name not in now or now[name] == value:
            continue
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)


def session_like(spark: SparkSession) -> SparkSession:
    """A session of its own that has the settings, views and functions that a session has now."""
    return SparkSession(spark.sparkContext, jsparkSession=spark._jsparkSession.cloneSession())
