"""The merge budget: how many rows the merges of a spine may move in a step. It depends on how many rows arrive and how
wide they are, never on how many there are.

A merge of FAN_IN runs of r rows has to be done before FAN_IN more have arrived, so each merge under way has to move at
least as many rows per batch as the batch brings; half as many again leaves room for uneven batches.

Rows are looked up in all parts of a merge under way, so it had better be done soon: however few rows arrive, it moves
4 MiB of rows, but at least 32,768 and at most 131,072 rows (131,072 narrow ones take 15 ms, writing included).
"""

from __future__ import annotations

from anabranch.state.runs.spine import Spine

MERGE_FACTOR = 1.5
MERGE_BYTES = 4 << 20
LEAST_MERGED = 32_768, 131_072


def merge_rows(arrived: int, spine: Spine) -> int:
    """How many rows each merge of a spine may move in a step in which `arrived` rows have come."""
    fewest, most = LEAST_MERGED
    quickly_done = MERGE_BYTES * spine.rows // max(spine.bytes, 1)
    return max(int(MERGE_FACTOR * arrived), min(max(quickly_done, fewest), most))
