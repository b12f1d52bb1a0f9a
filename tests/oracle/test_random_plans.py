"""Random plans: joins over different keys in any shape, and what groups them, with restarts, against DuckDB.

Each seed draws two to six streams, or one that is grouped, equalities that connect them on columns of different types,
conditions between them, windows and lateness, a shape of the joins, and perhaps a grouping. The answer has to be that
of DuckDB on the rows that are on time by SPEC section 0, whatever the shape, the number of groups, processors and
batches, wherever operators are placed, and whatever other queries are answered beside it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.manager.snapshot import Policy
from anabranch.plan.network import Network
from anabranch.plan.placement import Placement, even_placement, place
from anabranch.plan.watermark import InputTime, can_be_late
from tests.oracle import referee
from tests.oracle.chance import ChanceMoves, ChanceSpill
from tests.oracle.feed import on_time
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int32()), ("j", pa.int64()), ("s", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
# Columns that may be compared with each other.
ALIKE = {"k": "kj", "j": "kj", "s": "s"}


@dataclass(frozen=True)
class Plan:
    """A query with its streams (windows and lateness in milliseconds), its shape, and batches."""

    names: str
    timed: tuple[bool, ...]
    windows: tuple[int | None, ...]
    lateness: tuple[int | None, ...]
    equalities: tuple[tuple[str, str], ...]
    conditions: tuple[str, ...]
    joins: str
    batches: tuple[dict[str, pa.Table], ...]
    grouping: Grouping | None = None
    united: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        items = [
            self.stream(name) + ("" if window is None else f" [RANGE {window} MILLISECONDS]")
            for name, window in zip(self.names, self.windows, strict=True)
        ]
        if self.grouping is not None:
            return self.grouping.text(", ".join(items), self.where)
        columns = ", ".join(f"{name}.v AS {name}" for name in self.names)
        return f"SELECT {columns} FROM {', '.join(items)} WHERE {self.where}"

    def stream(self, name: str) -> str:
        """A stream in FROM: by name, or as a sub-query over the two halves of its rows."""
        if name not in self.united:
            return name
        halves = f"SELECT k, s, j, t, v FROM {name}1 WHERE v <> 5 UNION ALL SELECT k, s, j, t, v + 1 FROM {name}2"
        return f"(SELECT *, j + 0 AS i FROM ({halves}) h WHERE v IS NOT NULL) AS {name}"

    def fed(self) -> list[dict[str, pa.Table]]:
        """The batches by registered stream."""
        batches = []
        for batch in self.batches:
            fed = {}
            for name, rows in batch.items():
                if name in self.united:
                    fed[f"{name}1"], fed[f"{name}2"] = rows.slice(0, len(rows) // 2), rows.slice(len(rows) // 2)
                else:
                    fed[name] = rows
            batches.append(fed)
        return batches

    @property
    def where(self) -> str:
        return " AND ".join([*(f"{left} = {right}" for left, right in self.equalities), *self.conditions]) or "true"

    @property
    def classes(self) -> list[set[str]]:
        """The columns that are equal in every result."""
        found: list[set[str]] = []
        for pair in self.equalities:
            touched = [terms for terms in found if terms & set(pair)]
            found = [terms for terms in found if terms not in touched] + [set(pair).union(*touched)]
        return found

    def counts(self, i: int) -> pa.Table:
        """The rows of a stream that count: those that satisfy what the equalities ask of it alone, and are on time."""
        name = self.names[i]
        equal = [f"{one} = {other}" for terms in self.classes for one in terms for other in terms]
        here = [text for text in equal if text.startswith(name) and f"= {name}." in text]
        asked = " AND ".join(here) or "true"
        sources = [f"{name} WHERE {asked}"]
        if name in self.united:
            second = f"(SELECT * REPLACE (CAST(v + 1 AS BIGINT) AS v) FROM {name}2)"
            sources = [f"{name}1 AS {name} WHERE v <> 5 AND {asked}", f"{second} AS {name} WHERE {asked}"]
        times = [InputTime(*entry) for entry in zip(self.windows, self.lateness, strict=True)]
        lateness = self.lateness[i]
        counted = []
        for source in sources:
            usable = [referee.query(f"SELECT * FROM {source}", batch) for batch in self.fed()]
            late = lateness is not None and (self.grouping or can_be_late(times, i))
            counted.append(on_time(usable, "t", lateness or 0)[0] if late else pa.concat_tables(usable))
        return pa.concat_tables(counted)

    def expected(self) -> pa.Table:
        streams = {
            name: referee.Stream(self.counts(i), [], "t" if self.timed[i] else None, self.windows[i])
            for i, name in enumerate(self.names)
        }
        if self.grouping is None:
            return referee.join(streams, [f"{name}.v" for name in self.names], where=self.where)
        ends = [f"{name}.t + {w}" for name, w in zip(self.names, self.windows, strict=True) if w is not None]
        joined = referee.join(
            streams,
            [
                *(f"{key} AS g{n}" for n, key in enumerate(self.grouping.keys)),
                f"{self.grouping.argument} AS v",
                f"greatest({', '.join(f'{name}.t' for name in self.names)}) AS t",
                f"least({', '.join(ends) or 0}) AS e",
            ],
            where=self.where,
        )
        return self.grouping.expected(joined)


@dataclass(frozen=True)
class Grouping:
    """What is done with joined rows: aggregates by some keys over windows of time or of so many rows, or DISTINCT."""

    keys: tuple[str, ...]
    argument: str
    rows: int | None = None
    distinct: bool = False

    def text(self, items: str, where: str) -> str:
        keys = ", ".join(f"{key} AS g{n}" for n, key in enumerate(self.keys))
        if self.distinct:
            return f"SELECT DISTINCT {keys} FROM {items} WHERE {where}"
        if self.rows is not None:
            items = f"{items} [PARTITION BY {', '.join(self.keys)} ROWS {self.rows}]"
        calls = ", ".join(f"{name}({self.argument}) AS {name}" for name in ("count", "sum", "min", "max"))
        by = ", ".join(self.keys)
        return f"SELECT {keys}, count(*) AS n, {calls} FROM {items} WHERE {where} GROUP BY {by} HAVING count(*) <> 3"

    def expected(self, joined: pa.Table) -> pa.Table:
        """Of all joined rows with their time t and the time e at which they expire."""
        keys = ", ".join(f"g{n}" for n in range(len(self.keys)))
        same = " AND ".join(f"r.g{n} IS NOT DISTINCT FROM s.g{n}" for n in range(len(self.keys)))
        calls = "count(*) AS n, count(s.v), sum(s.v), min(s.v), max(s.v)"
        order = f"(PARTITION BY {keys} ORDER BY t, v NULLS FIRST)"
        numbered = f"(SELECT *, row_number() OVER () AS i, row_number() OVER {order} AS p FROM j)"
        inside = "s.t <= r.t AND r.t <= s.e"
        if self.rows is not None:
            inside = f"s.p <= r.p AND r.p < s.p + {self.rows}"
        if self.distinct:
            earlier = f"EXISTS (FROM {numbered} s WHERE {same} AND s.p < r.p AND s.e >= r.t)"
            return referee.query(f"SELECT {keys} FROM {numbered} r WHERE NOT {earlier}", {"j": joined})
        shown = ", ".join(f"r.g{n}" for n in range(len(self.keys)))
        text = f"SELECT {shown}, {calls} FROM {numbered} r JOIN {numbered} s ON {same} AND {inside}"
        return referee.query(f"{text} GROUP BY r.i, {shown} HAVING count(*) <> 3", {"j": joined})


def draw_grouped(seed: int) -> Plan:
    """A plan over one to four streams that groups what they give."""
    rng = random.Random(seed)
    plan = draw(seed, rng.choice([1, 1, 2, 3, 4]))
    names = plan.names
    windows = tuple(rng.choice([0, 5, 15, 40]) for _ in names)
    windows = tuple(w if n == 0 or rng.random() < 0.8 else None for n, w in enumerate(windows))
    keys = tuple(rng.sample([f"{rng.choice(names)}.{column}" for column in "kjs"], rng.choice([1, 1, 2])))
    if plan.equalities and rng.random() < 0.4:
        keys = (rng.choice(rng.choice(plan.equalities)),)  # perhaps what they are joined on, too
    grouping = Grouping(keys, f"{rng.choice(names)}.v", distinct=rng.random() < 0.3)
    if len(names) == 1 and rng.random() < 0.5:
        windows, grouping = (None,), replace(grouping, rows=rng.choice([1, 2, 5]), distinct=False)
    lateness = tuple(rng.choice([0, 5, 20]) for _ in names)
    return replace(plan, timed=(True,) * len(names), windows=windows, lateness=lateness, grouping=grouping)


def draw(seed: int, streams: int | None = None) -> Plan:
    rng = random.Random(seed)
    names = "ABCDEF"[: streams or rng.choice([2, 3, 3, 4, 4, 5, 6])]
    windowed = rng.random() < 0.8
    timed = tuple(windowed and rng.random() < 0.9 for _ in names)
    windows = tuple(rng.choice([0, 5, 15, 40, None]) if has else None for has in timed)
    lateness = tuple(rng.choice([0, 5, 20, None]) if has else None for has in timed)
    equalities = []
    for n, name in enumerate(names[1:], start=1):
        for _ in range(rng.choice([1, 1, 2])):
            left = rng.choice("kjs")
            equalities.append((f"{rng.choice(names[:n])}.{left}", f"{name}.{rng.choice(ALIKE[left])}"))
    conditions = [f"{left}.v + {right}.v > {rng.randrange(4)}" for left, right in pairwise(names) if rng.random() < 0.3]
    batches = []
    for batch in range(rng.choice([2, 3, 4])):
        rows = {}
        for name in names:
            count = rng.choice([0, 4, 9, 9])
            rows[name] = pa.table(
                {
                    "k": [None if rng.random() < 0.1 else rng.randrange(3) for _ in range(count)],
                    "j": [None if rng.random() < 0.1 else rng.randrange(3) for _ in range(count)],
                    "s": [rng.choice([None, "a", "b", "c"]) for _ in range(count)],
                    "t": [batch * 10 + rng.randrange(-12, 12) for _ in range(count)],
                    "v": [rng.randrange(6) for _ in range(count)],
                },
                schema=SCHEMA,
            )
        batches.append(rows)
    joins = rng.choice(["auto", "multiway", tree(rng, names, equalities), tree(rng, names, equalities)])
    united = tuple(name for name in names if rng.random() < 0.25)
    return Plan(
        names, timed, windows, lateness, tuple(equalities), tuple(conditions), joins, tuple(batches), united=united
    )


def tree(rng: random.Random, names: str, equalities: list[tuple[str, str]]) -> str:
    """A random binary tree in which only streams that an equality connects meet."""
    parts: list[tuple[str, str]] = [(name, name) for name in names]  # what it holds, and how it is written
    if len(parts) == 1:
        return "auto"
    while len(parts) > 1:
        connected = [
            (one, other)
            for one in parts
            for other in parts
            if one is not other and any(left[0] in one[0] and right[0] in other[0] for left, right in equalities)
        ]
        one, other = rng.choice(connected)
        pair = rng.sample([one, other], 2)
        parts = [part for part in parts if part not in pair]
        parts.append((one[0] + other[0], f"({pair[0][1]} {pair[1][1]})"))
    return parts[0][1]


def placing(rng: random.Random, groups: int, processors: int) -> Callable[[Network], tuple[Placement, ...]]:
    """Operators anywhere: spread, whole on a processor, or scattered group by group."""

    def one() -> Placement:
        scattered = tuple(rng.randrange(processors) for _ in range(groups))
        return rng.choice([even_placement(groups, processors), (rng.randrange(processors),) * groups, scattered])

    if rng.random() < 0.3:
        return lambda network: place("spread", len(network.operators), groups, processors)
    return lambda network: tuple(one() for _ in network.operators)


def answer(
    spark: SparkSession,
    checkpoint: Path,
    plan: Plan,
    rng: random.Random,
    others: dict[str, Plan] | None = None,
    other_answers: dict[str, list[pa.Table]] | None = None,
    policies: tuple[Policy, ...] = (),
) -> pa.Table:
    kinds = {
        stream: Kind(SCHEMA, "t" if timed else None, None if late is None else late * 1000)
        for name, timed, late in zip(plan.names, plan.timed, plan.lateness, strict=True)
        for stream in ((f"{name}1", f"{name}2") if name in plan.united else (name,))
    }
    groups = rng.choice([4, 64, 256])
    remaining, answers = plan.fed(), []
    others, other_answers = others or {}, {} if other_answers is None else other_answers
    while remaining:
        processors = rng.choice([1, 2, 3])
        with Steps(
            spark,
            checkpoint,
            plan.text,
            kinds,
            processors=processors,
            groups=groups,
            answers=answers,
            joins=plan.joins,
            place=placing(rng, groups, processors),
            others={name: other.text for name, other in others.items()},
            other_answers=other_answers,
            settings={"policies": policies},
        ) as steps:
            for _ in range(rng.choice([1, 2])):
                if remaining:
                    steps.feed(remaining.pop(0))
                    steps.check_owners()
                if policies and rng.random() < 0.3:
                    steps.clean_up()
                if ChanceMoves in map(type, policies) and rng.random() < 0.5:
                    steps.runner.manual.rescale(rng.choice([1, 2, 3, 4]))
                    steps.check_owners()
            if not remaining:
                steps.end()
    return pa.concat_tables(answers)


@pytest.mark.parametrize("seed", [8, 18, 27])
def test_a_random_plan_answers_as_duckdb_does(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    plan = draw(seed)
    referee.assert_same_rows(answer(spark, tmp_path / "checkpoint", plan, random.Random(seed)), plan.expected())


@pytest.mark.parametrize("seed", [1, 4, 5, 8])
def test_a_random_plan_with_groups_answers_as_duckdb_does(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    plan = draw_grouped(seed)
    referee.assert_same_rows(answer(spark, tmp_path / "checkpoint", plan, random.Random(seed)), plan.expected())


@pytest.mark.parametrize("seed", [2, 31])
def test_spilling_by_chance_changes_no_answer(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    plan = draw(seed)
    found = answer(spark, tmp_path / "checkpoint", plan, random.Random(seed), policies=(ChanceSpill(seed),))
    referee.assert_same_rows(found, plan.expected())


@pytest.mark.parametrize("seed", [2, 3, 6, 7])
def test_spilling_by_chance_changes_no_groups(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    plan = draw_grouped(seed)
    found = answer(spark, tmp_path / "checkpoint", plan, random.Random(seed), policies=(ChanceSpill(seed),))
    referee.assert_same_rows(found, plan.expected())


@pytest.mark.parametrize("seed", [5, 23])
def test_moving_state_by_chance_changes_no_answer(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    plan = draw(seed)
    policies = (ChanceMoves(seed), ChanceSpill(seed))
    found = answer(spark, tmp_path / "checkpoint", plan, random.Random(seed), policies=policies)
    referee.assert_same_rows(found, plan.expected())


@pytest.mark.parametrize("seed", [9, 12, 14])
def test_moving_state_by_chance_changes_no_groups(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    plan = draw_grouped(seed)
    policies = (ChanceSpill(seed), ChanceMoves(seed))
    found = answer(spark, tmp_path / "checkpoint", plan, random.Random(seed), policies=policies)
    referee.assert_same_rows(found, plan.expected())


def draw_others(seed: int, plan: Plan) -> dict[str, Plan]:
    """Further queries over the streams of a plan: the same, and others that share some of it or nothing."""
    rng = random.Random(seed)
    others = {"same": replace(plan, joins="auto")}
    for n in range(rng.choice([1, 2])):
        count = rng.randrange(2, len(plan.names) + 1)
        other = draw(seed * 100 + n, count)
        windows = tuple(
            window if timed and rng.random() < 0.5 else (drawn if timed else None)
            for window, drawn, timed in zip(plan.windows, other.windows, plan.timed, strict=False)
        )
        others[f"other {n}"] = replace(
            other,
            timed=plan.timed[:count],
            windows=windows,
            lateness=plan.lateness[:count],
            joins="auto",
            batches=tuple({name: batch[name] for name in other.names} for batch in plan.batches),
            united=tuple(name for name in plan.united if name in other.names),
        )
    return others


@pytest.mark.parametrize("seed", [1, 6])
def test_random_plans_in_one_engine_each_answer_as_duckdb_does(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    plan = draw_grouped(seed) if seed % 3 == 0 else draw(seed, 3)
    others = draw_others(seed, plan) if len(plan.names) > 1 else {"same": plan}
    found: dict[str, list[pa.Table]] = {}
    own = answer(spark, tmp_path / "checkpoint", plan, random.Random(seed), others, found)
    referee.assert_same_rows(own, plan.expected())
    for name, other in others.items():
        referee.assert_same_rows(pa.concat_tables(found[name]), other.expected())
