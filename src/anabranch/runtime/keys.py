"""Join keys as Spark types: what they are compared as, and whether their hash says it all.

Terms of a class are compared in the type that Spark finds for all of them, and made canonical in it: NaN is one value
and -0.0 is 0.0, as in Spark's own joins. The hash of a single key column of a fixed-width type is injective (XXH64 of
one 4- or 8-byte word is built from invertible steps only), so equal hashes are equal keys and the key itself need not
be stored. Otherwise canonical key columns are stored and compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.errors import QueryError, UnsupportedError
from anabranch.plan.network import Column
from anabranch.runtime.carried import type_text

INJECTIVE = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.TimeType,
    T.YearMonthIntervalType,
    T.DayTimeIntervalType,
)
_WORDS = (*INJECTIVE, T.StringType, T.BinaryType, T.DecimalType)
# Types that may be compared with each other, as Spark does it: within one line.
_FAMILIES: tuple[tuple[type[T.DataType], ...], ...] = (
    (T.NumericType,),
    (T.DateType, T.TimestampType, T.TimestampNTZType),
    (T.TimeType,),
    (T.YearMonthIntervalType,),
    (T.DayTimeIntervalType,),
)


def canonical(key: str, data_type: T.DataType) -> str:
    """The expression of a key in its common type and canonical form."""
    value = f"CAST({key} AS {data_type.simpleString()})"
    if isinstance(data_type, T.FloatType | T.DoubleType):
        name = data_type.simpleString()
        return f"(CASE WHEN isnan({value}) THEN {name}('NaN') WHEN {value} = 0 THEN {name}(0) ELSE {value} END)"
    return value


def is_hashable(data_type: T.DataType) -> bool:
    """Whether values of the type can be told apart by a canonical form and its hash."""
    collated = isinstance(data_type, T.StringType) and data_type != T.StringType()
    return isinstance(data_type, _WORDS) and not collated


def must_verify(key_types: Sequence[T.DataType]) -> bool:
    """Whether equal hashes can be different keys, so that the key is stored and compared."""
    if len(key_types) > 1:
        return True
    only = key_types[0]
    return not isinstance(only, INJECTIVE) and not (isinstance(only, T.DecimalType) and only.precision <= 18)


def key_type(spark: SparkSession, terms: Sequence[Column], frames: Mapping[str, DataFrame]) -> T.DataType:
    """The common type of what is compared in a column of a key, as Spark would compare it; frames are by alias."""
    found = [frames[alias].selectExpr(f"{text} AS k").schema["k"].dataType for alias, text in terms]
    return _common_type(spark, terms, found)


def _common_type(spark: SparkSession, terms: Sequence[Column], types: list[T.DataType]) -> T.DataType:
    described = ", ".join(
        f"{alias}: {text} is {data_type.simpleString()}" for (alias, text), data_type in zip(terms, types, strict=True)
    )
    for data_type in types:
        if not is_hashable(data_type):
            raise UnsupportedError(f"a join key of type {data_type.simpleString()} is not supported ({described})")
    if len(set(types)) == 1:
        return types[0]
    if not any(all(isinstance(data_type, family) for data_type in types) for family in _FAMILIES):
        raise QueryError(f"the join key has different types ({described}); CAST them to one type in the query")
    common = widest(spark, types)
    floating = (T.FloatType, T.DoubleType)
    if isinstance(common, floating):
        for pair in combinations(types, 2):
            if not isinstance(widest(spark, pair), floating):
                # 2^53 and 2^53 + 1 differ as BIGINT and are one DOUBLE: "equal" would not be one relation.
                raise QueryError(
                    f"the join key mixes {common.simpleString()} with types that Spark compares exactly "
                    f"with each other ({described}); CAST them to one type in the query"
                )
    return common


def widest(spark: SparkSession, types: Sequence[T.DataType]) -> T.DataType:
    """The type in which Spark compares values of these types."""
    nulls = ", ".join(f"CAST(NULL AS {type_text(data_type)})" for data_type in types)
    return spark.range(0).selectExpr(f"coalesce({nulls}) AS k").schema["k"].dataType
