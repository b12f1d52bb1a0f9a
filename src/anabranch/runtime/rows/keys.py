"""Join keys as Spark types: what they are compared as, and whether their hash says it all.

Two equal terms are compared in the type in which Spark compares that very pair. More of them, a class, need one type in
which each pair is equal exactly when it is for Spark (`exactness`); a class without one is refused. Keys are made
canonical: NaN is one value and -0.0 is 0.0, as in Spark's own joins.

The hash of a single key column of a fixed-width type is injective (XXH64 of one 4- or 8-byte word is built from
invertible steps only), so equal hashes are equal keys and the key itself need not be stored. Otherwise canonical key
columns are stored and compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from anabranch.errors import QueryError, UnsupportedError
from anabranch.plan.network import Column
from anabranch.runtime.rows.carried import type_text
from anabranch.runtime.rows.exactness import compared_as, has_fixed_offset, is_exact

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
    name = type_text(data_type)
    value = f"CAST({key} AS {name})"
    if isinstance(data_type, T.FloatType | T.DoubleType):
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
    """The common type of the terms of a class, in which each pair is compared as by Spark; frames are by alias."""
    types = _types_of(terms, frames)
    for data_type in types:
        if not is_hashable(data_type):
            described = _described(terms, types)
            raise UnsupportedError(f"a join key of type {data_type.simpleString()} is not supported ({described})")
    return _common_type(spark, terms, types)


def check_class(spark: SparkSession, terms: Sequence[Column], frames: Mapping[str, DataFrame]) -> None:
    """Refuse equal terms that are no key, but may be checked in other pairs than were written, if that matters."""
    _common_type(spark, terms, _types_of(terms, frames))


def _types_of(terms: Sequence[Column], frames: Mapping[str, DataFrame]) -> list[T.DataType]:
    return [frames[alias].selectExpr(f"{text} AS k").schema["k"].dataType for alias, text in terms]


def _described(terms: Sequence[Column], types: Sequence[T.DataType]) -> str:
    pairs = zip(terms, types, strict=True)
    return ", ".join(f"{alias}: {text} is {data_type.simpleString()}" for (alias, text), data_type in pairs)


def _common_type(spark: SparkSession, terms: Sequence[Column], types: Sequence[T.DataType]) -> T.DataType:
    if len(set(types)) == 1:
        return types[0]
    described = _described(terms, types)
    if not any(all(isinstance(data_type, family) for data_type in types) for family in _FAMILIES):
        raise QueryError(f"the join key has different types ({described}); CAST them to one type in the query")
    if len(types) == 2:
        return compared_as(spark, *types)
    common = widest(spark, types)
    for pair in dict.fromkeys(combinations(types, 2)):
        if not _means_the_same(spark, pair, common):
            values = " and ".join(dict.fromkeys(data_type.simpleString() for data_type in pair))
            raise QueryError(
                f"the join key mixes types that Spark compares in different ways ({described}): values of {values} "
                f"that differ can be equal as {common.simpleString()}; CAST all to one type in the query"
            )
    return common


def _means_the_same(spark: SparkSession, pair: tuple[T.DataType, T.DataType], common: T.DataType) -> bool:
    """Whether values of the two types are equal for Spark exactly if they are equal in a common type."""
    own = pair[0] if pair[0] == pair[1] else compared_as(spark, *pair)
    if own == common:
        return True
    fixed = has_fixed_offset(spark)
    return all(is_exact(side, target, fixed_offset=fixed) for side in pair for target in (own, common))


def widest(spark: SparkSession, types: Sequence[T.DataType]) -> T.DataType:
    """The type that values of all these types can be brought to."""
    nulls = ", ".join(f"CAST(NULL AS {type_text(data_type)})" for data_type in types)
    return spark.range(0).selectExpr(f"coalesce({nulls}) AS k").schema["k"].dataType
