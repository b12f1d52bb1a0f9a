"""The settings of the session: those of a run have to be the same as when its queries were made.

A query is analysed when it is made, and once more when it starts. An analysed expression keeps the settings of that
moment (a CAST gives null or fails), so after a change of settings the two analyses would differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from anabranch.checkpoint.settings import DOUBLE_QUOTED_NAMES, PATTERNS_AS_NAMES, Settings, changed_settings
from anabranch.errors import ConfigError
from anabranch.runtime.spark.query_settings import settings_in_force

if TYPE_CHECKING:
    from anabranch.api.engine import Engine
    from anabranch.api.writer import Writer


def settings_for_a_query(engine: Engine) -> Settings:
    """The settings for making a query. Refused if Spark would read its text in another way than we do."""
    settings = settings_in_force(engine.spark)
    if "true" == settings.get(DOUBLE_QUOTED_NAMES) == settings.get("spark.sql.ansi.enabled"):
        raise ConfigError(
            f'queries cannot be made while {DOUBLE_QUOTED_NAMES} is true: "a" is a string in them. Unset it, and write '
            "names in backquotes"
        )
    if settings.get(PATTERNS_AS_NAMES) == "true":
        raise ConfigError(
            f"queries cannot be made while {PATTERNS_AS_NAMES} is true: `a` is the name of a column in them, not a "
            "pattern. Unset it"
        )
    engine._sources.use(settings)
    return settings


def settings_of_a_run(engine: Engine, writers: Sequence[Writer]) -> Settings:
    """The settings for starting a run; refused if one of its queries was made under other ones."""
    settings = settings_in_force(engine.spark)
    for writer in writers:
        changed = changed_settings(writer._query._made_under, settings)
        if changed:
            raise ConfigError(
                f"a query was made under other settings of the session: {'; '.join(changed)}. Set back what it was, or "
                "make the query again with engine.sql()"
            )
    engine._sources.use(settings)
    return settings


def check_unchanged(running: SparkSession, now: SparkSession) -> None:
    """Refuse to change a run while the user's session has other settings than those that it began with."""
    changed = changed_settings(settings_in_force(running), settings_in_force(now))
    if changed:
        raise ConfigError(
            f"the session's settings have changed since the run began: {'; '.join(changed)}. Set back what it was: "
            "a run keeps the settings that it began with"
        )
