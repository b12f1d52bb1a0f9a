"""Aggregates over windows that end at a row: one value per asked row, all rows at once.

Rows come sorted by group, then by time. The window of a row is a range of the rows of its group: those whose time lies
in [ts - w, ts] (`range_window`), peers with the same time included, or the last k up to itself (`rows_window`). An
aggregate is a function of a column and of these ranges.

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
from anabranch.kernel.fold import Indices, Summary, fold
from anabranch.kernel.probe import narrow

MAX_PRECISION = 38
_INT64 = 1 << 63


def range_window(ts: NDArray[np.int64], group: Indices, asked: Indices, width: int) -> tuple[Indices, Indices]:
    """The range of rows in the window of each asked row. `group[n]` to `group[n + 1]` are the rows of group n."""
    owner = np.searchsorted(group, asked, side="right") - 1
    return narrow(ts, group[owner], group[owner + 1], ts[asked] - width, ts[asked])


def rows_window(group: Indices, asked: Indices, rows: int) -> tuple[Indices, Indices]:
    """The range of the last rows of its group up to each asked row, itself included."""
    owner = np.searchsorted(group, asked, side="right") - 1
    return np.maximum(group[owner], asked + 1 - rows), asked + 1


def count(values: pa.Array | None, start: Indices, stop: Indices) -> pa.Array:
    """How many values, or how many rows where no column is given."""
    return pa.array(stop - start if values is None else _counts(values, start, stop))


def total(values: pa.Array, start: Indices, stop: Indices) -> pa.Array:
    """SUM."""
    none = _counts(values, start, stop) == 0
    if pa.types.is_decimal(values.type):
        kind = pa.decimal128(min(MAX_PRECISION, values.type.precision + 10), values.type.scale)
        return _decimals(_integer_sums(_unscaled(values), start, stop), none, kind)
    if pa.types.is_integer(values.type):
        sums = _integer_sums(_filled(values, np.int64), start, stop)
        worst = next((found for found in sums[~none] if not -_INT64 <= found < _INT64), None)
        if worst is not None:
            raise BadRowError(f"a SUM is {worst}, which is no BIGINT; CAST its argument to DECIMAL or DOUBLE")
        return pa.array(np.where(none, 0, sums).astype(np.int64), mask=none)
    return pa.array(_float_sums(values, start, stop), mask=none)


def average(values: pa.Array, start: Indices, stop: Indices) -> pa.Array:
    """AVG."""
    counts = _counts(values, start, stop)
    none = counts == 0
    if pa.types.is_decimal(values.type):
        kind = pa.decimal128(min(MAX_PRECISION, values.type.precision + 4), min(MAX_PRECISION, values.type.scale + 4))
        sums = _integer_sums(_unscaled(values), start, stop) * 10 ** (kind.scale - values.type.scale)
        divisors = np.where(none, 1, counts).astype(object)
        rounded = (2 * abs(sums) + divisors) // (2 * divisors)
        return _decimals(np.where(sums < 0, -rounded, rounded), none, kind)
    if pa.types.is_integer(values.type):
        sums = _integer_sums(_filled(values, np.int64), start, stop)
    else:
        sums = _float_sums(values, start, stop)
    return pa.array(sums.astype(np.float64) / np.where(none, 1, counts), mask=none)


def least(values: pa.Array, start: Indices, stop: Indices) -> pa.Array:
    """MIN."""
    return _extreme(values, start, stop, np.minimum, len(values))


def greatest(values: pa.Array, start: Indices, stop: Indices) -> pa.Array:
    """MAX."""
    return _extreme(values, start, stop, np.maximum, -1)


def deviation(values: pa.Array, start: Indices, stop: Indices) -> pa.Array:
    """STDDEV of a sample, from counts, means and sums of squared distances, merged as Chan et al. do."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    numbers = _filled(values.cast(pa.float64()), np.float64)
    rows = (valid.astype(np.float64), numbers, np.zeros(len(values)))
    counts, _, squares = fold(rows, start, stop, _merge_moments, (0.0, 0.0, 0.0))
    none = counts < 2
    return pa.array(np.sqrt(squares / np.where(none, 1, counts - 1)), mask=none)


AGGREGATES: dict[str, Callable[[pa.Array, Indices, Indices], pa.Array]] = {
    "count": count,
    "sum": total,
    "avg": average,
    "min": least,
    "max": greatest,
    "stddev": deviation,
}


def _counts(values: pa.Array, start: Indices, stop: Indices) -> Indices:
    before = np.concatenate([[0], np.cumsum(values.is_valid().to_numpy(zero_copy_only=False), dtype=np.int64)])
    counted: Indices = before[stop] - before[start]
    return counted


def _filled(values: pa.Array, kind: type[np.generic]) -> NDArray[Any]:
    """The values with 0 for null."""
    filled: NDArray[Any] = pc.fill_null(values, pa.scalar(0, values.type)).to_numpy(zero_copy_only=False)
    return filled.astype(kind)


def _integer_sums(numbers: NDArray[Any], start: Indices, stop: Indices) -> NDArray[np.object_]:
    """Exact sums as Python's integers: running totals of halves, which cannot overflow."""
    if numbers.dtype == object:
        before = np.concatenate([np.zeros(1, dtype=object), np.cumsum(numbers)])
        exact: NDArray[np.object_] = before[stop] - before[start]
        return exact
    upper, lower = (np.cumsum(half, dtype=np.int64) for half in (numbers >> 32, numbers & 0xFFFFFFFF))
    upper, lower = (np.concatenate([[0], running]) for running in (upper, lower))
    high, low = upper[stop] - upper[start], lower[stop] - lower[start]
    small: NDArray[np.object_] = high.astype(object) * (1 << 32) + low.astype(object)
    return small


def _float_sums(values: pa.Array, start: Indices, stop: Indices) -> NDArray[np.float64]:
    numbers = _filled(values.cast(pa.float64()), np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        (sums,) = fold((numbers,), start, stop, lambda left, right: (left[0] + right[0],), (0.0,))
    return sums


def _unscaled(values: pa.Array) -> NDArray[np.object_]:
    """Decimals as integers, in units of their last place."""
    shift = Decimal(10) ** values.type.scale
    with localcontext(prec=MAX_PRECISION + 2):
        units = [0 if value is None else int(value * shift) for value in values.to_pylist()]
    return np.array(units, dtype=object)


def _decimals(units: NDArray[np.object_], none: NDArray[np.bool_], kind: pa.Decimal128Type) -> pa.Array:
    limit = 10**kind.precision
    worst = next((found for found in units[~none] if abs(found) >= limit), None)
    if worst is not None:
        raise BadRowError(f"a SUM or AVG does not fit into {kind}; CAST its argument to DOUBLE")
    with localcontext(prec=MAX_PRECISION + 2):
        values = [None if empty else Decimal(int(n)).scaleb(-kind.scale) for n, empty in zip(units, none, strict=True)]
    return pa.array(values, kind)


def _extreme(
    values: pa.Array, start: Indices, stop: Indices, choose: Callable[..., NDArray[np.int64]], nothing: int
) -> pa.Array:
    """The value with the least or greatest rank among those of a range: any type that has an order will do."""
    order = pc.array_sort_indices(values, null_placement="at_end").to_numpy()
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.arange(len(values))
    ranks[~values.is_valid().to_numpy(zero_copy_only=False)] = nothing
    (found,) = fold((ranks,), start, stop, lambda left, right: (choose(left[0], right[0]),), (nothing,))
    none = found == nothing
    return (
        values.take(pa.array(order[np.where(none, 0, found)], mask=none)) if len(values) else pa.nulls(0, values.type)
    )


def _merge_moments(left: Summary, right: Summary) -> Summary:
    counts = left[0] + right[0]
    divisor = np.where(counts == 0, 1.0, counts)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = right[1] - left[1]
        means = np.where(
            right[0] == 0, left[1], np.where(left[0] == 0, right[1], left[1] + distance * right[0] / divisor)
        )
        squares = (
            left[2]
            + right[2]
            + np.where((left[0] == 0) | (right[0] == 0), 0.0, distance * distance * left[0] * right[0] / divisor)
        )
    return counts, means, squares
