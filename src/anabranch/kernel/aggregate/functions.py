"""Aggregate functions over windows: one value for each row that is answered, all of them at once.

Which rows are in whose window is a `Reach` (`range_sums`): row n counts for a range of the answered rows. An aggregate
is a function of a column and of the reach of its rows.

Nulls are left out, as in SQL: COUNT of none is 0, and everything else of none is null, as is STDDEV of one. Types are
those of Spark SQL: a sum of integers is BIGINT and fails if it does not fit, a sum of DECIMAL(p, s) is
DECIMAL(p + 10, s), its average DECIMAL(p + 4, s + 4), rounded half up; other sums and averages, and STDDEV (of a
sample), are DOUBLE.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch.errors import BadRowError
from anabranch.kernel.aggregate.range_sums import Indices, Reach, Summary, running_sum, spread

MAX_PRECISION = 38
_WORD = 32
_LOW_WORD = (1 << _WORD) - 1


def count(values: pa.Array | None, reach: Reach) -> pa.Array:
    """How many values, or how many rows where no column is given."""
    ones = np.ones(len(reach.start), dtype=np.int64) if values is None else _valid(values).astype(np.int64)
    return pa.array(running_sum(ones, reach))


def total(values: pa.Array, reach: Reach) -> pa.Array:
    """SUM."""
    none = _counts(values, reach) == 0
    if pa.types.is_decimal(values.type):
        kind = pa.decimal128(min(MAX_PRECISION, values.type.precision + 10), values.type.scale)
        return _decimals(_decimal_sums(values, reach), none, kind)
    if pa.types.is_integer(values.type):
        high, low = _integer_sums(_filled(values, np.int64), reach)
        fits = (high >= -(1 << (_WORD - 1))) & (high < 1 << (_WORD - 1))
        if not fits.all():
            worst = np.flatnonzero(~fits)[0]
            exact = (int(high[worst]) << _WORD) + int(low[worst])
            raise BadRowError(f"a SUM is {exact}, which is no BIGINT; CAST its argument to DECIMAL or DOUBLE")
        return pa.array((high << _WORD) | low, mask=none)
    return pa.array(_float_sums(values, reach), mask=none)


def average(values: pa.Array, reach: Reach) -> pa.Array:
    """AVG."""
    counts = _counts(values, reach)
    none = counts == 0
    divisors = np.where(none, 1, counts)
    if pa.types.is_decimal(values.type):
        kind = pa.decimal128(min(MAX_PRECISION, values.type.precision + 4), min(MAX_PRECISION, values.type.scale + 4))
        sums = _decimal_sums(values, reach) * 10 ** (kind.scale - values.type.scale)
        exact = divisors.astype(object)
        rounded = (2 * abs(sums) + exact) // (2 * exact)
        return _decimals(np.where(sums < 0, -rounded, rounded), none, kind)
    if pa.types.is_integer(values.type):
        high, low = _integer_sums(_filled(values, np.int64), reach)
        sums = high.astype(np.float64) * float(1 << _WORD) + low.astype(np.float64)
    else:
        sums = _float_sums(values, reach)
    return pa.array(sums / divisors, mask=none)


def least(values: pa.Array, reach: Reach) -> pa.Array:
    """MIN."""
    return _extreme(values, reach, np.minimum, len(values))


def greatest(values: pa.Array, reach: Reach) -> pa.Array:
    """MAX."""
    return _extreme(values, reach, np.maximum, -1)


def deviation(values: pa.Array, reach: Reach) -> pa.Array:
    """STDDEV of a sample, from counts, means and sums of squared distances, merged as Chan et al. do."""
    valid = _valid(values)
    numbers = _filled(values.cast(pa.float64(), safe=False), np.float64)

    def collect(rows: Indices, nodes: Indices, size: int) -> Summary:
        rows, nodes = rows[valid[rows]], nodes[valid[rows]]
        counts = np.bincount(nodes, minlength=size)
        means = np.bincount(nodes, numbers[rows], size) / np.maximum(counts, 1)
        return counts, means, np.bincount(nodes, (numbers[rows] - means[nodes]) ** 2, size)

    with np.errstate(invalid="ignore", over="ignore"):
        counts, _, squares = spread(reach, collect, _merge_moments)
        none = counts < 2
        return pa.array(np.sqrt(squares / np.where(none, 1, counts - 1)), mask=none)


# By their names in SQL. Only COUNT may have no column.
AGGREGATES: dict[str, Callable[[Any, Reach], pa.Array]] = {
    "count": count,
    "sum": total,
    "avg": average,
    "min": least,
    "max": greatest,
    "stddev": deviation,
}


def _valid(values: pa.Array) -> NDArray[np.bool_]:
    valid: NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _counts(values: pa.Array, reach: Reach) -> Indices:
    return running_sum(_valid(values).astype(np.int64), reach)


def _filled(values: pa.Array, kind: type[np.generic]) -> NDArray[Any]:
    """The values with 0 for null."""
    filled: NDArray[Any] = pc.fill_null(values, pa.scalar(0, values.type)).to_numpy(zero_copy_only=False)
    return filled.astype(kind)


def _integer_sums(numbers: NDArray[np.int64], reach: Reach) -> tuple[Indices, Indices]:
    """Exact sums as pairs of words, high and low: sums of halves cannot overflow."""
    low = running_sum(numbers & _LOW_WORD, reach)
    return running_sum(numbers >> _WORD, reach) + (low >> _WORD), low & _LOW_WORD


def _float_sums(values: pa.Array, reach: Reach) -> NDArray[np.float64]:
    numbers = _filled(values.cast(pa.float64(), safe=False), np.float64)

    def collect(rows: Indices, nodes: Indices, size: int) -> Summary:
        return (np.bincount(nodes, numbers[rows], size),)

    with np.errstate(invalid="ignore", over="ignore"):
        (sums,) = spread(reach, collect, lambda left, right: (left[0] + right[0],))
    return sums


def _decimal_sums(values: pa.Array, reach: Reach) -> NDArray[np.object_]:
    """Exact sums of decimals in units of their last place: word by word, put together as Python's integers."""
    filled = pc.fill_null(values, pa.scalar(0, values.type)).cast(pa.decimal128(MAX_PRECISION, values.type.scale))
    buffer = filled.buffers()[1]
    halves = np.frombuffer(buffer, dtype=np.int64)[2 * filled.offset :][: 2 * len(filled)] if buffer else np.empty(0)
    halves = halves.astype(np.int64)
    words = (
        halves[0::2] & _LOW_WORD,
        (halves[0::2] >> _WORD) & _LOW_WORD,
        halves[1::2] & _LOW_WORD,
        halves[1::2] >> 32,
    )
    sums = [running_sum(word, reach).astype(object) << (_WORD * n) for n, word in enumerate(words)]
    exact: NDArray[np.object_] = sums[0] + sums[1] + sums[2] + sums[3]
    return exact


def _decimals(units: NDArray[np.object_], none: NDArray[np.bool_], kind: pa.Decimal128Type) -> pa.Array:
    limit = 10**kind.precision
    worst = next((unit for unit in units[~none] if abs(unit) >= limit), None)
    if worst is not None:
        raise BadRowError(f"a SUM or AVG does not fit into {kind}; CAST its argument to DOUBLE")
    with localcontext(prec=MAX_PRECISION + 2):
        values = [None if empty else Decimal(int(n)).scaleb(-kind.scale) for n, empty in zip(units, none, strict=True)]
    return pa.array(values, kind)


def _extreme(values: pa.Array, reach: Reach, choose: np.ufunc, nothing: int) -> pa.Array:
    """The value with the least or greatest rank among those that count: any type that has an order will do."""
    order = pc.array_sort_indices(values, null_placement="at_end").to_numpy()
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.arange(len(values))
    ranks[~_valid(values)] = nothing

    def collect(rows: Indices, nodes: Indices, size: int) -> Summary:
        best = np.full(size, nothing, dtype=np.int64)
        choose.at(best, nodes, ranks[rows])
        return (best,)

    (best,) = spread(reach, collect, lambda left, right: (choose(left[0], right[0]),))
    none = best == nothing
    return values.take(pa.array(order[np.where(none, 0, best)], mask=none)) if len(values) else values


def _merge_moments(left: Summary, right: Summary) -> Summary:
    counts = left[0] + right[0]
    distance = right[1] - left[1]
    means = np.where(
        right[0] == 0,
        left[1],
        np.where(left[0] == 0, right[1], left[1] + distance * (right[0] / np.maximum(counts, 1))),
    )
    both = (left[0] > 0) & (right[0] > 0)
    between = np.where(both, distance * distance * left[0] * (right[0] / np.maximum(counts, 1)), 0.0)
    return counts, means, left[2] + right[2] + between
