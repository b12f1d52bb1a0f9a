"""The partition groups that the rows with some keys go to.

Spark computes it, by the very expressions that rows are packed with: a value is cast to the type that the key is
compared in, brought into canonical form (NaN is one value, -0.0 is 0.0) and hashed. A value that the cast would change
is refused, since no row has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from anabranch.errors import ConfigError
from anabranch.manager.manual import operator_named
from anabranch.runtime.compile.prepared import PreparedPlan
from anabranch.runtime.driver.step.context import StepContext
from anabranch.runtime.rows.carried import to_carried, type_text
from anabranch.runtime.rows.keys import canonical
from anabranch.state.groups import groups_of

# Columns of the row of literals.
_VALUE, _FITS, _HASH = "value", "fits", "hash"


def groups_of_keys(context: StepContext, operator: str | None, key: Any) -> list[int]:
    """The partition groups, ascending, that rows with a key go to at an operator.

    A key of several columns is a tuple. A list is several keys.
    """
    shape, plan = operator_named(context.shape, operator), context.plan
    keys = key if isinstance(key, list) else [key]
    if not keys:
        raise ConfigError("no key was given")
    columns = _columns(plan, shape.number)
    hashes = [_hash(plan, shape.number, shape.name, columns, each) for each in keys]
    unsigned = np.array(hashes, dtype=np.int64).view(np.uint64)
    return np.unique(groups_of(unsigned, context.shape.groups)).tolist()  # type: ignore[no-any-return]


def _columns(plan: PreparedPlan, n: int) -> list[str]:
    """The names of the columns of an operator's key, as in errors: `L.item = P.item`, or columns of GROUP BY."""
    operator = plan.network.operators[n]
    if operator.grouping is not None:
        return list(operator.grouping.keys)
    return [" = ".join(f"{alias}.{text}" for alias, text in terms).replace("`", "") for terms in operator.terms]


def _hash(plan: PreparedPlan, n: int, name: str, columns: Sequence[str], key: Any) -> int:
    """The hash of the rows with a key."""
    values = key if isinstance(key, tuple) else (key,)
    if len(values) != len(columns):
        expected = "one value" if len(columns) == 1 else f"a tuple of {len(columns)} values"
        raise ConfigError(f"the key of the {name} is {', '.join(columns)}: give {expected}, not {key!r}")
    grouping, row = plan.network.operators[n].grouping, _literals(plan.packed.sparkSession, values)
    parts = []
    for number, data_type in _hashed(plan, n):
        column, value = columns[number], values[number]
        if value is None and grouping is None:
            raise ConfigError(f"{column}: a null joins with nothing, so its rows are in no group")
        _check_fits(row, f"{_VALUE}{number}", data_type, f"the key {column} of the {name}", value)
        parts.append(to_carried(canonical(f"{_VALUE}{number}", data_type), data_type))
    if grouping is not None and n not in plan.columns.in_place and len(parts) > 1:
        parts += [f"({part}) IS NULL" for part in parts]
    return int(_only(row, f"xxhash64({', '.join(parts)}) AS {_HASH}"))


def _hashed(plan: PreparedPlan, n: int) -> list[tuple[int, T.DataType]]:
    """The columns of an operator's key, by number, in the order and the types in which they are hashed.

    An operator that groups by the key of the join below it uses the hash of that join.
    """
    types, in_place = plan.columns.key_types, plan.columns.in_place.get(n)
    if in_place is None:
        return list(enumerate(types[n]))
    below = plan.network.operator_of(plan.network.operators[n].ports[0].node)
    assert below is not None, "what is grouped in place was joined"
    return list(zip(in_place, types[below], strict=True))


def _literals(spark: SparkSession, values: Sequence[Any]) -> DataFrame:
    """One row with the values, in the types that Spark gives them."""
    try:
        return spark.range(1).select(*(F.lit(value).alias(f"{_VALUE}{n}") for n, value in enumerate(values)))
    except (PySparkException, Py4JError, TypeError, ValueError):
        raise ConfigError(f"{values!r} is no key: give numbers, texts, times or dates") from None


def _check_fits(row: DataFrame, column: str, data_type: T.DataType, what: str, value: Any) -> None:
    """Refuse a value that the key cannot have."""
    cast = f"try_cast({column} AS {type_text(data_type)})"
    try:
        fits = value is None or not _only(row, f"{cast} IS NULL AS {_FITS}")
        # 0.1 stands for the FLOAT that is nearest to it.
        fits = fits and (isinstance(data_type, T.FloatType) or _only(row, f"{cast} <=> {column} AS {_FITS}"))
    except AnalysisException:  # there is no such cast
        fits = False
    if not fits:
        raise ConfigError(f"{what} is {data_type.simpleString()}, and {value!r} is none")


def _only(row: DataFrame, text: str) -> Any:
    """The value of an expression on the one row."""
    return row.selectExpr(text).collect()[0][0]
