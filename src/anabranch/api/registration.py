"""Registration of streams and of operators of one's own: checks, and the schemas under which queries see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.errors import ConfigError, QueryError, did_you_mean
from anabranch.kernel.operator import StatefulOperator
from anabranch.language import parse_duration
from anabranch.plan.query import RESERVED, Application, AppliedOperator, StreamSchema

_TIME_TYPES = (T.TimestampType, T.TimestampNTZType, T.LongType)


def stream_schema(
    name: str,
    stream: DataFrame,
    time: str | None,
    lateness: str | timedelta | None,
    registered: Mapping[str, StreamSchema],
) -> StreamSchema:
    """Check a stream that is to be registered beside others; its schema."""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a stream's name must be a non-empty string, not {name!r}")
    if name.lower() in (other.lower() for other in registered):
        raise ConfigError(f"a stream named {name!r} is registered already; choose another name")
    if not isinstance(stream, DataFrame):
        raise ConfigError(f"stream {name!r} must be a Spark DataFrame, not {type(stream).__name__}")
    for column in stream.columns:
        if column.startswith(RESERVED):
            advice = f"rename it: names that begin with {RESERVED!r} are reserved"
            raise ConfigError(f"stream {name!r} has a column {column!r}; {advice}")
    time = _time_column(name, stream, time)
    if lateness is not None and time is None:
        raise ConfigError(f"stream {name!r} has a lateness but no time column; give it time=...")
    try:
        allowed = None if lateness is None else parse_duration(lateness)
    except QueryError as error:
        raise ConfigError(f"the lateness of stream {name!r}: {error}") from None
    return StreamSchema(name, tuple(stream.columns), time, allowed)


def operator_schema(
    spark: SparkSession,
    applied: AppliedOperator,
    over: str,
    key: str | Sequence[str],
    retention: str | timedelta | None,
    registered: Mapping[str, StreamSchema],
) -> StreamSchema:
    """Check an operator of one's own that is to be applied to a registered stream; the schema of its results."""
    name, operator = applied.name, applied.operator
    if not isinstance(name, str) or not name or name.lower() in (other.lower() for other in registered):
        raise ConfigError(f"the operator's name {name!r} is empty or taken; choose another")
    stream = registered.get(over) if isinstance(over, str) else None
    if stream is None:
        raise ConfigError(f"operator {name!r}: unknown stream {over!r}; {did_you_mean(str(over), list(registered))}")
    if stream.application is not None and retention is not None:
        raise ConfigError(
            f"operator {name!r}: retention={retention!r} is of event time, which rows of the operator {over!r} do not "
            "have; leave it out"
        )
    for column in applied.columns:
        if column not in stream.columns:
            hint = did_you_mean(column, stream.columns)
            raise ConfigError(f"operator {name!r}: stream {over!r} has no column {column!r}; {hint}")
    missing = [part for part in ("process", "keep", "waits") if not hasattr(operator, part)]
    if missing:
        raise ConfigError(f"operator {name!r}: {type(operator).__name__} has no {missing[0]}; see docs/operators.md")
    keys = _texts(name, "key", (key,) if isinstance(key, str) else key)
    if not keys:
        raise ConfigError(
            f"operator {name!r} has no key; give an expression over {over!r}, as in key={stream.columns[0]!r}"
        )
    try:
        results = spark.createDataFrame([], applied.result_ddl).schema.names
        kept_for = None if retention is None else parse_duration(retention)
    except (PySparkException, QueryError) as error:
        raise ConfigError(f"operator {name!r}: {error}") from None
    _texts(name, "gives", results)
    return StreamSchema(name, tuple(results), application=Application(over, keys, kept_for, applied))


def applied_operator(name: str, operator: StatefulOperator, columns: Sequence[str], gives: str) -> AppliedOperator:
    """An operator of a user's own with the columns that it sees and gives, if these are texts."""
    if not isinstance(gives, str) or not gives.strip():
        raise ConfigError(f"operator {name!r}: gives is a schema such as 'user STRING, clicks BIGINT', not {gives!r}")
    return AppliedOperator(name, operator, _texts(name, "columns", columns), gives)


def _texts(name: str, what: str, given: object) -> tuple[str, ...]:
    """An argument of an operator that is a list of texts; refused if it is none, or has one twice."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(text, str) for text in given):
        raise ConfigError(f"operator {name!r}: {what} must be a list of texts, not {given!r}")
    twice = next((text for n, text in enumerate(given) if text in given[:n]), None)
    if twice is not None:
        raise ConfigError(f"operator {name!r}: {what} has {twice!r} twice; leave one out")
    return tuple(given)


def _time_column(name: str, stream: DataFrame, time: str | None) -> str | None:
    """The event-time column of a stream as the stream spells it, if it has one."""
    if time is None:
        return None
    spelled = {column.lower(): column for column in stream.columns}
    if time not in stream.columns and time.lower() not in spelled:
        raise ConfigError(f"stream {name!r} has no column {time!r}; {did_you_mean(time, stream.columns)}")
    column = time if time in stream.columns else spelled[time.lower()]
    data_type = stream.schema[column].dataType
    if not isinstance(data_type, _TIME_TYPES):
        raise ConfigError(
            f"the time column {column!r} of stream {name!r} is {data_type.simpleString()}; it must be TIMESTAMP, "
            "TIMESTAMP_NTZ or BIGINT milliseconds"
        )
    return column
