"""Whether Spark compares values of different types exactly, and in which type it compares two of them.

Equal terms of a query form a class, and a class is hashed in one type. Spark itself compares pair by pair, each pair in
a type of its own. Both mean the same only if no cast on the way makes different values equal: 7.3 and 7.4 are both 7
as DECIMAL(38,0), 2^53 and 2^53 + 1 are one DOUBLE, and 02:30 is 03:30 where the clock skips an hour.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from anabranch.runtime.rows.carried import type_text
from anabranch.runtime.spark.internals import spark_class

# Of each kind of whole numbers: bits of a value, and decimal digits.
_WHOLE: dict[type[T.DataType], tuple[int, int]] = {
    T.ByteType: (7, 3),
    T.ShortType: (15, 5),
    T.IntegerType: (31, 10),
    T.LongType: (63, 19),
}
_INTERVALS = (T.YearMonthIntervalType, T.DayTimeIntervalType)
# Bits of a whole number that a floating point number has room for.
_MANTISSA: dict[type[T.DataType], int] = {T.FloatType: 24, T.DoubleType: 53}


def compared_as(spark: SparkSession, left: T.DataType, right: T.DataType) -> T.DataType:
    """The type to which Spark brings both sides of an equality. Spark decides, as settings have a say in it."""
    sides = (f"CAST(NULL AS {type_text(side)})" for side in (left, right))
    analysed = spark.range(0).selectExpr(f"{' = '.join(sides)} AS k")._jdf.queryExecution().analyzed()
    described = analysed.projectList().apply(0).child().left().dataType().json()
    return T._parse_datatype_json_string(described)


def has_fixed_offset(spark: SparkSession) -> bool:
    """Whether the session's time zone never changes its clocks, so that local times and moments correspond."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    return bool(spark_class(spark, "catalyst.util.DateTimeUtils").getZoneId(zone).getRules().isFixedOffset())


def is_exact(source: T.DataType, target: T.DataType, *, fixed_offset: bool) -> bool:
    """Whether a cast keeps every value what it is, so that different ones stay different. If unsure, False."""
    if source == target:
        return True
    match source, target:
        case T.DecimalType(), T.DecimalType():
            whole = source.precision - source.scale
            return source.scale <= target.scale and whole <= target.precision - target.scale
        case T.FloatType(), T.DoubleType():
            return True
        case T.DateType(), T.TimestampNTZType():
            return True
        case ((T.DateType() | T.TimestampNTZType()), T.TimestampType()):
            return fixed_offset
        case T.TimeType(), T.TimeType():
            return source.precision <= target.precision
    if isinstance(source, _INTERVALS) and isinstance(target, _INTERVALS) and type(source) is type(target):
        return target.startField <= source.startField and source.endField <= target.endField
    return type(source) in _WHOLE and _holds_whole_number(*_WHOLE[type(source)], target)


def _holds_whole_number(bits: int, digits: int, target: T.DataType) -> bool:
    if isinstance(target, T.DecimalType):
        return digits <= target.precision - target.scale
    if type(target) in _WHOLE:
        return bits <= _WHOLE[type(target)][0]
    return bits <= _MANTISSA.get(type(target), 0)
