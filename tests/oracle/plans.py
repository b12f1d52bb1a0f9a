"""Random plans with their data, and what DuckDB says that they answer.

Each seed draws two to six streams, or one that is grouped, equalities that connect them on columns of different types,
conditions between them, windows and lateness, a shape of the joins, and perhaps a grouping. `wild` plans have more
rows, of which some keys have most, floating-point keys with NaN and both zeros, and values that are missing or long.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from anabranch.plan.watermark import InputTime, can_be_late
from tests.oracle import referee
from tests.oracle.feed import on_time

SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("j", pa.int64()),
        ("s", pa.string()),
        ("d", pa.float64()),
        ("t", pa.int64()),
        ("v", pa.int64()),
    ]
)
# Columns that may be compared with each other.
ALIKE = {"k": "kj", "j": "kj", "s": "s", "d": "d"}
KEYS, WILD_KEYS = "kjs", "kjsd"


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
        halves = f"SELECT k, s, j, d, t, v FROM {name}1 WHERE v <> 5 UNION ALL SELECT k, s, j, d, t, v + 1 FROM {name}2"
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
            second = f"(SELECT * REPLACE (CAST(v + 1 AS BIGINT) AS v) FROM {name}2 WHERE v IS NOT NULL)"
            sources = [f"{name}1 AS {name} WHERE v <> 5 AND {asked}", f"{second} AS {name} WHERE {asked}"]
        times = [InputTime(*entry) for entry in zip(self.windows, self.lateness, strict=True)]
        lateness = self.lateness[i]
        counted = []
        for source in sources:
            usable = [referee.query(f"SELECT * FROM {source}", batch) for batch in self.fed()]
            late = lateness is not None and (self.grouping or can_be_late(times, i))
            counted.append(on_time(usable, "t", lateness or 0)[0] if late else pa.concat_tables(usable))
        return pa.concat_tables(counted)

    def thinned(self, most: int) -> Plan:
        """The plan with so few rows that no more than so many combinations of them meet."""
        plan = self
        while len(referee.join(plan._streams(), ["1"], where=plan.where)) > most:
            batches = tuple(
                {name: rows.slice(0, len(rows) // 2) for name, rows in batch.items()} for batch in plan.batches
            )
            plan = replace(plan, batches=batches)
        return plan

    def _streams(self) -> dict[str, referee.Stream]:
        return {
            name: referee.Stream(self.counts(i), [], "t" if self.timed[i] else None, self.windows[i])
            for i, name in enumerate(self.names)
        }

    def expected(self) -> pa.Table:
        """The answer to all batches."""
        streams = self._streams()
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


def draw_grouped(seed: int, *, wild: bool = False, batches: int | None = None) -> Plan:
    """A plan over one to four streams that groups what they give."""
    rng = random.Random(seed)
    plan = draw(seed, rng.choice([1, 1, 2, 3, 4]), wild=wild, batches=batches)
    names = plan.names
    windows = tuple(rng.choice([0, 5, 15, 40]) for _ in names)
    windows = tuple(w if n == 0 or rng.random() < 0.8 else None for n, w in enumerate(windows))
    keys = tuple(
        rng.sample([f"{rng.choice(names)}.{column}" for column in (WILD_KEYS if wild else KEYS)], rng.choice([1, 1, 2]))
    )
    if plan.equalities and rng.random() < 0.4:
        keys = (rng.choice(rng.choice(plan.equalities)),)  # perhaps what they are joined on, too
    grouping = Grouping(keys, f"{rng.choice(names)}.v", distinct=rng.random() < 0.3)
    if len(names) == 1 and rng.random() < 0.5:
        windows, grouping = (None,), replace(grouping, rows=rng.choice([1, 2, 5]), distinct=False)
    lateness = tuple(rng.choice([0, 5, 20]) for _ in names)
    return replace(plan, timed=(True,) * len(names), windows=windows, lateness=lateness, grouping=grouping)


def draw(seed: int, streams: int | None = None, *, wild: bool = False, batches: int | None = None) -> Plan:
    """A plan that joins streams, in so many batches if it is said how many."""
    rng = random.Random(seed)
    names = "ABCDEF"[: streams or rng.choice([2, 3, 3, 4, 4, 5, 6])]
    windowed = rng.random() < 0.8
    timed = tuple(windowed and rng.random() < 0.9 for _ in names)
    windows = tuple(rng.choice([0, 5, 15, 40, None]) if has else None for has in timed)
    lateness = tuple(rng.choice([0, 5, 20, None]) if has else None for has in timed)
    equalities = []
    for n, name in enumerate(names[1:], start=1):
        for _ in range(rng.choice([1, 1, 2])):
            left = rng.choice(WILD_KEYS if wild else KEYS)
            equalities.append((f"{rng.choice(names[:n])}.{left}", f"{name}.{rng.choice(ALIKE[left])}"))
    conditions = [f"{left}.v + {right}.v > {rng.randrange(4)}" for left, right in pairwise(names) if rng.random() < 0.3]
    few = rng.choice([2, 3, 4])
    fed = [
        {name: (_wild_rows if wild else _few_rows)(rng, batch, len(names)) for name in names}
        for batch in range(batches or few)
    ]
    joins = rng.choice(["auto", "multiway", tree(rng, names, equalities), tree(rng, names, equalities)])
    united = tuple(name for name in names if rng.random() < 0.25)
    return Plan(names, timed, windows, lateness, tuple(equalities), tuple(conditions), joins, tuple(fed), united=united)


def draw_others(seed: int, plan: Plan, *, wild: bool = False) -> dict[str, Plan]:
    """Further queries over the streams of a plan: the same, and others that share some of it or nothing."""
    rng = random.Random(seed)
    others = {"same": replace(plan, joins="auto")}
    for n in range(rng.choice([1, 2])):
        count = rng.randrange(2, len(plan.names) + 1)
        other = draw(seed * 100 + n, count, wild=wild)
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


def _few_rows(rng: random.Random, batch: int, streams: int) -> pa.Table:
    count = rng.choice([0, 4, 9, 9])
    columns = {
        "k": [None if rng.random() < 0.1 else rng.randrange(3) for _ in range(count)],
        "j": [None if rng.random() < 0.1 else rng.randrange(3) for _ in range(count)],
        "s": [rng.choice([None, "a", "b", "c"]) for _ in range(count)],
        "d": [None] * count,
        "t": [batch * 10 + rng.randrange(-12, 12) for _ in range(count)],
        "v": [rng.randrange(6) for _ in range(count)],
    }
    return pa.table(columns, schema=SCHEMA)


def _wild_rows(rng: random.Random, batch: int, streams: int) -> pa.Table:
    """Rows of which one key has most; few if many streams multiply them."""
    most = {1: 60, 2: 40, 3: 20, 4: 12}.get(streams, 8)
    count = rng.choice([0, 1, most // 2, most])
    keys = rng.choice([3, 8, 30])
    hot = rng.choice([0.0, 0.2, 0.2]) if streams > 2 else rng.choice([0.0, 0.3, 0.7])
    long = rng.choice([1, 1, 300, 20_000])

    def key() -> int:
        return 0 if rng.random() < hot else rng.randrange(-keys, keys)

    columns = {
        "k": [None if rng.random() < 0.1 else key() for _ in range(count)],
        "j": [None if rng.random() < 0.1 else key() for _ in range(count)],
        "s": [rng.choice([None, "a", "b", "ü", "", long * "c"]) for _ in range(count)],
        "d": [rng.choice([None, float("nan"), 0.0, -0.0, 1.5, float("inf"), float(key())]) for _ in range(count)],
        "t": [batch * 10 + rng.randrange(-30 if rng.random() < 0.1 else -12, 12) for _ in range(count)],
        "v": [
            None if rng.random() < 0.05 else rng.choice([rng.randrange(6), rng.randrange(-(10**12), 10**12)])
            for _ in range(count)
        ],
    }
    return pa.table(columns, schema=SCHEMA)


def orders_of(plan: Plan, count: int = 4) -> tuple[str, ...]:
    """Some orders of a plan's joins, none if it has fewer than three streams."""
    rng = random.Random(plan.text)
    return tuple(tree(rng, plan.names, list(plan.equalities)) for _ in range(count if len(plan.names) > 2 else 0))


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
