"""The streams of paper 1 (section 3.4), row by row: *tuple range* and *range join ratio*.

A stream consists of ranges of `tuple_range` tuples. Within a range every join value occurs r times, r being the range
join ratio, so one range of a three-way join gives r * r results per tuple, two ranges four times as many, and so on:
the same values come again in every range, in another order.

Ratios may differ between classes of partition groups, as in figure 11: with ratios (4, 2, 1) a third of the groups has
values that occur four times per range, and so on. Which group a value belongs to is decided by Spark's xxhash64,
computed here for whole vectors. Classes take turns group by group, so that every processor has all of them, or are
`contiguous` blocks of groups, as processors are: then each of the ratios is that of one processor, as in figure 21.

All classes get the same number of tuples, or as `shares` say: (10, 1) gives the first class ten times as many as the
second. With `shift_every`, classes move on by one every so many ranges, so that groups that were productive are not any
longer, and those that had most of the tuples have few (the alternating load of figures 14 to 16).

Any part of a stream can be computed by itself, and the same seed gives the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.errors import ConfigError
from anabranch.state.groups import DEFAULT_GROUPS, check_groups, groups_of

Keys = NDArray[np.int64]

_SEED = 42  # Spark's
_PRIMES = [np.uint64(p) for p in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63)]
_FIFTH = 0x27D4EB2F165667C5


def hash_longs(values: Keys) -> NDArray[np.uint64]:
    """Spark's xxhash64 of BIGINT values."""
    first, second, third, fourth = _PRIMES
    with np.errstate(over="ignore"):
        hashed = np.full(len(values), np.uint64((_SEED + _FIFTH + 8) % 2**64), dtype=np.uint64)
        hashed ^= _rotate(values.view(np.uint64) * second, 31) * first
        hashed = _rotate(hashed, 27) * first + fourth
        hashed ^= hashed >> np.uint64(33)
        hashed *= second
        hashed ^= hashed >> np.uint64(29)
        hashed *= third
        hashed ^= hashed >> np.uint64(32)
    return hashed


def _rotate(values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


@dataclass(frozen=True, slots=True)
class Synthetic:
    """A stream by its parameters; `stream` tells those of one join apart. Times are `rate` rows per second apart."""

    stream: int = 0
    tuple_range: int = 30_000
    ratios: tuple[int, ...] = (1,)
    rate: float = 1_000.0
    seed: int = 1
    groups: int = DEFAULT_GROUPS
    width: int = 0
    shift_every: int | None = None
    contiguous: bool = False
    shares: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what makes no stream."""
        check_groups(self.groups)
        if not self.ratios or any(not isinstance(ratio, int) or ratio < 1 for ratio in self.ratios):
            raise ConfigError(f"range join ratios must be whole numbers from 1 on, not {self.ratios!r}")
        if len(self.ratios) > self.groups:
            raise ConfigError(f"{len(self.ratios)} classes need as many partition groups, not {self.groups}")
        if self.shares and len(self.shares) != len(self.ratios):
            raise ConfigError(f"{len(self.ratios)} classes need as many shares, not {self.shares!r}")
        if any(not isinstance(share, int) or share < 1 for share in self.shares):
            raise ConfigError(f"shares of the tuples must be whole numbers from 1 on, not {self.shares!r}")
        shares = self.shares or (1,) * len(self.ratios)
        least = -(-max(self.ratios) * sum(shares) // min(shares))
        if self.tuple_range < least:
            raise ConfigError(f"the tuple range must be {least} or more for these ratios, not {self.tuple_range}")
        if self.stream < 0 or self.seed < 0:
            raise ConfigError("stream and seed must not be negative")
        if not self.rate > 0:
            raise ConfigError(f"the rate must be a positive number of rows per second, not {self.rate!r}")
        if self.width < 0 or (self.shift_every is not None and self.shift_every < 1):
            raise ConfigError("width must not be negative, and shift_every 1 or more")

    def rows(self, start: int, stop: int) -> pa.RecordBatch:
        """Rows start to stop: key, number of the row, event time in microseconds, and a text of `width` characters."""
        numbers = np.arange(start, stop, dtype=np.int64)
        columns = {
            "key": pa.array(self.keys(start, stop)),
            "number": pa.array(numbers),
            "ts": pa.array((numbers * (1_000_000 / self.rate)).astype(np.int64), pa.timestamp("us", "UTC")),
        }
        if self.width:
            columns["payload"] = pa.array(np.char.zfill(numbers.astype(str), self.width))
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def keys(self, start: int, stop: int) -> Keys:
        """The join values of rows start to stop."""
        parts = []
        for number in range(start // self.tuple_range, -(-stop // self.tuple_range)):
            first = number * self.tuple_range
            whole = _range_keys(self, number)
            parts.append(whole[max(start - first, 0) : max(stop - first, 0)])
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    @property
    def class_sizes(self) -> tuple[int, ...]:
        """How many tuples of a range each class has; rounding may leave a few out."""
        shares = self.shares or (1,) * len(self.ratios)
        return tuple(self.tuple_range * share // sum(shares) for share in shares)

    def class_of(self, groups: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        """The class of partition groups in a range."""
        shift = 0 if self.shift_every is None else number // self.shift_every
        at_first = groups * len(self.ratios) // self.groups if self.contiguous else groups
        return (at_first + shift) % len(self.ratios)


@lru_cache(maxsize=8)
def _range_keys(stream: Synthetic, number: int) -> Keys:
    """The join values of a range, shuffled."""
    needed = [max(size // ratio, 1) for size, ratio in zip(stream.class_sizes, stream.ratios, strict=True)]
    values, groups = _values(stream.groups, 2 * len(needed) * max(needed) + 64 * stream.groups)
    classes = stream.class_of(groups, number)
    keys = np.concatenate([np.repeat(values[classes == c][:count], stream.ratios[c]) for c, count in enumerate(needed)])
    # Rounding may have left a few tuples out.
    keys = np.concatenate([keys, keys[: stream.tuple_range - len(keys)]])
    return np.random.default_rng([stream.seed, stream.stream, number]).permutation(keys)[: stream.tuple_range]


@lru_cache(maxsize=4)
def _values(groups: int, count: int) -> tuple[Keys, NDArray[np.int64]]:
    """Join values, and the partition group of each."""
    values = np.arange(count, dtype=np.int64)
    return values, groups_of(hash_longs(values), groups)
