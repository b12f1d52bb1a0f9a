"""The question of the demo, the same question for DuckDB, and the comparison of both answers.

The first is a run file, so the demo runs exactly what `anabranch run` would. The second follows the words of the
semantics: all combinations with equal keys in which every row is at most its window older than the newest. It reads the
complete input at once: no batches, no state, no windows that move.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb

RUN_FILE = '''\
# A three-way join of streams, as `anabranch run` reads it. Paths are relative to this file.
#
#   anabranch demo --keep shop       generates the streams, runs this query and leaves everything in ./shop
#   anabranch run shop/orders.toml   runs it again from there: new files in the streams' folders are joined with
#                                    what came before, and nothing else is computed

query = """
SELECT o.order_id, o.customer, o.amount, p.method, s.carrier, s.ts AS shipped_at
FROM orders    [RANGE 3 MINUTES] AS o,
     payments  [RANGE 2 MINUTES] AS p,
     shipments [RANGE 2 MINUTES] AS s
WHERE o.order_id = p.order_id AND o.order_id = s.order_id AND p.status = 'paid'
"""
checkpoint = "checkpoint"
processors = 3
initial_placement = [8, 1, 1]      # most partition groups begin on processor 0: a start that calls for adaptation
memory = "9m"                      # of each processor

# Groups move to processors that have room; what fits nowhere is pushed to disk, and what that postpones comes later.
[policies.lazy-disk]
span = "1 second"                  # from one relocation to the next, at least

[streams.orders]
format = "parquet"
path = "orders"
schema = "order_id BIGINT, ts TIMESTAMP, customer BIGINT, amount DOUBLE"
time = "ts"
lateness = "10 seconds"
options = { maxFilesPerTrigger = 1 }

[streams.payments]
format = "parquet"
path = "payments"
schema = "order_id BIGINT, ts TIMESTAMP, method STRING, status STRING"
time = "ts"
lateness = "10 seconds"
options = { maxFilesPerTrigger = 1 }

[streams.shipments]
format = "parquet"
path = "shipments"
schema = "order_id BIGINT, ts TIMESTAMP, carrier STRING"
time = "ts"
lateness = "10 seconds"
options = { maxFilesPerTrigger = 1 }

[sink]
format = "parquet"
path = "results"

[trigger]
available_now = true
'''

PROCESSORS = 3


def run_file(processors: int) -> str:
    """The run file for a number of processors; most partition groups begin on the first of them."""
    shares = ", ".join(["8"] + ["1"] * (processors - 1))
    text = RUN_FILE.replace(f"processors = {PROCESSORS}\n", f"processors = {processors}\n")
    return text.replace("initial_placement = [8, 1, 1]", f"initial_placement = [{shares}]")


_EXPECTED = """
SELECT o.order_id, o.customer, o.amount, p.method, s.carrier, epoch_us(s.ts) AS shipped_at
FROM read_parquet($orders) o, read_parquet($payments) p, read_parquet($shipments) s
WHERE o.order_id = p.order_id AND o.order_id = s.order_id AND p.status = 'paid'
  AND epoch_us(o.ts) >= greatest(epoch_us(o.ts), epoch_us(p.ts), epoch_us(s.ts)) - 180_000_000
  AND epoch_us(p.ts) >= greatest(epoch_us(o.ts), epoch_us(p.ts), epoch_us(s.ts)) - 120_000_000
  AND epoch_us(s.ts) >= greatest(epoch_us(o.ts), epoch_us(p.ts), epoch_us(s.ts)) - 120_000_000
"""

_ACTUAL = """
SELECT order_id, customer, amount, method, carrier, epoch_us(shipped_at) AS shipped_at FROM read_parquet($results)
"""

# Two multisets are equal if every row that counts +1 in one and -1 in the other sums up to zero.
_DIFFERENCE = """
WITH both_sides AS (SELECT *, 1 AS "+-" FROM ({expected}) UNION ALL SELECT *, -1 AS "+-" FROM ({actual})),
     off AS (
       SELECT COLUMNS(* EXCLUDE "+-"), sum("+-") AS n FROM both_sides GROUP BY ALL HAVING sum("+-") <> 0
     )
SELECT coalesce(sum(n) FILTER (n > 0), 0), coalesce(-sum(n) FILTER (n < 0), 0) FROM off
"""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to DuckDB: the expected answer as SQL over the complete `streams`, and SQL that reads the actual
    one."""

    streams: tuple[str, ...]
    expected: str
    actual: str


ORDERS = Question(("orders", "payments", "shipments"), _EXPECTED, _ACTUAL)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of DuckDB: the number of expected results, and how many are missing or too many."""

    results: int
    missing: int
    surplus: int

    @property
    def exact(self) -> bool:
        """Whether both multisets are the same."""
        return self.missing == 0 and self.surplus == 0

    def __str__(self) -> str:
        """The verdict in one line."""
        if self.exact:
            return f"exact: {self.results:,} results, the same multiset as DuckDB on the complete input"
        return (
            f"WRONG: {self.results:,} results; compared with DuckDB on the complete input, {self.missing:,} are "
            f"missing and {self.surplus:,} are too many"
        )


def compare(folder: Path, question: Question = ORDERS) -> Verdict:
    """Compare the results below `folder` with DuckDB's answer from the streams below it.

    DuckDB works in a thread, because it does not let a signal through to the thread that waits for it.
    """
    with duckdb.connect() as database, ThreadPoolExecutor(1) as background:
        answer = background.submit(_compare, database, folder, question)
        try:
            return answer.result()
        except BaseException:
            database.interrupt()
            raise


def _compare(database: duckdb.DuckDBPyConnection, folder: Path, question: Question) -> Verdict:
    written = sorted((folder / "results").rglob("*.parquet"))
    files = {name: str(folder / name / "*.parquet") for name in question.streams}
    if not written:
        missing = _one(database, f"SELECT count(*) FROM ({question.expected})", files)[0]
        return Verdict(0, missing, 0)
    results = {"results": str(folder / "results" / "**" / "*.parquet")}
    count = _one(database, "SELECT count(*) FROM read_parquet($results)", results)[0]
    difference = _DIFFERENCE.format(expected=question.expected, actual=question.actual)
    missing, surplus = _one(database, difference, files | results)
    return Verdict(count, missing, surplus)


def _one(database: duckdb.DuckDBPyConnection, statement: str, files: dict[str, str]) -> tuple[int, ...]:
    row = database.execute(statement, files).fetchone()
    return tuple(int(value) for value in row or ())
