"""A query is replaced by others at random, and what comes is what a model of its state says.

The model is small: of each stream there are the rows that came while the stream was in the query, as long as they met
all conditions that single streams had since: those in WHERE, and that there is a value to join on. The answers after a
change are those of the new query over these rows and the new ones, without those of the old rows alone. DuckDB computes
both.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.errors import ConfigError
from anabranch.plan.sharing.query_change import ChangePreview
from tests.oracle.referee import assert_same_rows, difference, query
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64())])
KINDS = {name: Kind(SCHEMA) for name in "ABCD"}


@dataclass(frozen=True)
class Asked:
    """A join of some streams in a row, and for each of them the conditions that its rows have to meet."""

    text: str
    conditions: dict[str, list[str]]


def asked(chance: random.Random, thrift: float = 0.2) -> Asked:
    """A query drawn at random; what it does not select is not always kept, and cannot be selected later."""
    names = chance.sample("ABCD", chance.choice([2, 3, 3, 4]))
    conditions: dict[str, list[str]] = {name: [] for name in names}
    parts = []
    for n, name in enumerate(names[1:], start=1):
        other = chance.choice(names[:n])
        pair = (other, chance.choice("kj")), (name, chance.choice("kkj"))
        parts.append(" = ".join(f"{alias}.{column}" for alias, column in pair))
        for alias, column in pair:
            conditions[alias].append(f"{column} IS NOT NULL")
    for name in names:
        if chance.random() < 0.3:
            conditions[name].append(chance.choice(["v > 0", "v < 4", "v <> 2"]))
            parts.append(f"{name}.{conditions[name][-1]}")
    if chance.random() < 0.4:
        parts.append(f"{names[0]}.v <= {names[-1]}.v")
    kept = "{0}.v" if chance.random() < thrift else "{0}.v + {0}.k + {0}.j"
    columns = [f"{kept.format(name)} AS c{n}" for n, name in enumerate((names * 2)[:4])]
    text = f"SELECT {', '.join(columns)} FROM {', '.join(sorted(names))} WHERE {' AND '.join(parts)}"
    return Asked(text, conditions)


def rows(chance: random.Random, name: str) -> pa.Table:
    values = [*range(5), None]
    return pa.table([[chance.choice(values) for _ in range(9)] for _ in SCHEMA.names], schema=SCHEMA)


def meeting(table: pa.Table, conditions: list[str]) -> pa.Table:
    return query(f"SELECT * FROM rows WHERE {' AND '.join(conditions)}", {"rows": table})


@pytest.mark.parametrize("seed", range(2))
def test_whatever_a_query_becomes_its_answers_are_those_of_the_rows_that_it_has(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance, answers, expected = random.Random(seed), [], []
    now = asked(chance, thrift=0)
    there = {name: SCHEMA.empty_table() for name in now.conditions}
    fates, told = set(), []
    with Steps(spark, tmp_path / "c", now.text, KINDS, processors=2, answers=answers) as steps:
        for turn in range(6):
            wanted = [asked(chance) for _ in range(5)] if turn else []
            for other in wanted:
                preview = steps.public.preview("query", other.text)
                if preview.is_possible:
                    steps.public.change("query", other.text, missing="allow")
                    steps.check_owners()
                    fates |= {str(state.fate) for state in preview.states}
                    told.append(str(preview))
                    now = other
                    break
            there = {
                name: meeting(there.get(name, SCHEMA.empty_table()), conditions)
                for name, conditions in now.conditions.items()
            }
            if turn and chance.random() < 0.3:
                with suppress(ConfigError):  # some are on their way
                    steps.public.spill()
            if turn and chance.random() < 0.3:
                with suppress(ConfigError):  # they are there, or on their way
                    steps.public.relocate(range(turn, 16, 3), to=turn % 2, pace=1)
            old = query(now.text, there)
            batch = {name: rows(chance, name) for name in KINDS}
            steps.feed(batch)
            there = {
                name: pa.concat_tables([there[name], meeting(batch[name], conditions)])
                for name, conditions in now.conditions.items()
            }
            expected.append(difference(old, query(now.text, there))[0])
        steps.end()
        answer = steps.answer
    assert told, "changes that can be made"
    assert len(fates) > 1
    try:
        assert_same_rows(answer, pa.concat_tables(expected))
    except AssertionError as error:
        raise AssertionError(f"{error}\n" + "\n\n".join(told)) from None


TIMED_SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
# Rows of a stream are never more than so many milliseconds behind its newest one, so none is late.
SPREAD = 12
ORDERS = ["moving-state", "background", "parallel-track", "auto"]
# Why a migration is not possible just now, or not at all for this query.
REFUSED = ["never ends here", "in this order already"]


@dataclass(frozen=True)
class Timed:
    """A chain of streams, each with a window in milliseconds or none, and with conditions on it alone.

    `residual` is a condition on joined rows, or true.
    """

    windows: dict[str, int | None]
    keys: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...]
    residual: str
    columns: tuple[str, ...]

    @property
    def names(self) -> str:
        return "".join(self.windows)

    @property
    def pairs(self) -> list[tuple[str, str, str]]:
        """The streams that follow each other, and the columns in which they are equal."""
        return list(zip(self.names, self.names[1:], self.keys, strict=False))

    @property
    def where(self) -> str:
        terms = [f"{one}.{left} = {other}.{right}" for one, other, (left, right) in self.pairs]
        return " AND ".join([*terms, *(f"{name}.{text}" for name, text in self.conditions), self.residual])

    @property
    def text(self) -> str:
        spans = {name: "" if w is None else f" [RANGE {w} MILLISECONDS]" for name, w in self.windows.items()}
        items = ", ".join(name + span for name, span in spans.items())
        return f"SELECT {', '.join(self.columns)} FROM {items} WHERE {self.where}"

    def answer(self, there: dict[str, pa.Table]) -> pa.Table:
        newest = f"greatest({', '.join(f'{name}.t' for name in self.names)})"
        times = [f"{name}.t >= {newest} - {w}" for name, w in self.windows.items() if w is not None]
        where = " AND ".join([self.where, *times])
        return query(f"SELECT {', '.join(self.columns)} FROM {', '.join(self.names)} WHERE {where}", there)

    def asks(self, name: str) -> list[str]:
        """The conditions that rows of a stream have to meet, that they have a value to join on among them."""
        keys = [left for one, _, (left, _) in self.pairs if one == name]
        keys += [right for _, other, (_, right) in self.pairs if other == name]
        return [f"{key} IS NOT NULL" for key in keys] + [text for other, text in self.conditions if other == name]

    def joins(self, chance: random.Random) -> str:
        """Any binary tree over the chain."""

        def tree(names: str) -> str:
            if len(names) == 1:
                return names
            cut = chance.randrange(1, len(names))
            return f"({tree(names[:cut])} {tree(names[cut:])})"

        return tree(self.names)


def timed(chance: random.Random, like: Timed | None = None) -> Timed:
    """A query drawn at random; or one that differs a little from another."""
    names = chance.choice(["AB", "ABC", "BC", "ABCD", "ABC"])
    new = Timed(
        {name: chance.choice([0, 10, 25, 60, None] if name == "B" else [0, 10, 25, 60]) for name in names},
        tuple(chance.choice(["kk", "kj", "jj"]) for _ in names[1:]),
        tuple((name, f"v <> {chance.randrange(3)}") for name in names if chance.random() < 0.2),
        chance.choice(["true", "true", f"{names[0]}.v <= {names[-1]}.v"]),
        tuple(f"{chance.choice(names)}.{column} AS c{n}" for n, column in enumerate("vvtt")),
    )
    if like is None or chance.random() < 0.2:
        return new
    if chance.random() < 0.7:
        spans = {name: new.windows.get(name, w) if chance.random() < 0.6 else w for name, w in like.windows.items()}
        return replace(like, windows=spans)
    kept = tuple(condition for condition in like.conditions if chance.random() < 0.6)
    return replace(like, conditions=kept + tuple((name, "v < 4") for name in like.names if chance.random() < 0.2))


def timed_rows(chance: random.Random, newest: int) -> pa.Table:
    """Rows that are at most so far behind the newest that they are not late."""
    many = chance.choice([0, 5, 9])
    values = [chance.choices([*range(3), None], [3, 3, 3, 1], k=many) for _ in "kj"]
    times = [newest - chance.randrange(SPREAD) for _ in range(many)]
    return pa.table([*values, times, [chance.randrange(6) for _ in times]], schema=TIMED_SCHEMA)


class Remembered:
    """The rows of each stream that a query may still have (`there`), and those of them that it must have (`sure`)."""

    def __init__(self) -> None:
        self.there = {name: TIMED_SCHEMA.empty_table() for name in "ABCD"}
        self.sure = dict(self.there)

    def change(self, preview: ChangePreview, asked: Timed) -> None:
        """Forget what a preview says is gone, and the streams that are not read any more."""
        gone = {state.holds: state.gone_before for state in preview.states}
        for name in "ABCD":
            if name not in asked.names:
                self.there[name] = self.sure[name] = TIMED_SCHEMA.empty_table()
            elif gone[name] is not None:
                self.sure[name] = query(f"SELECT * FROM rows WHERE t * 1000 >= {gone[name]}", {"rows": self.sure[name]})

    def bounds(self, asked: Timed, batch: dict[str, pa.Table]) -> tuple[pa.Table, pa.Table]:
        """The least and the greatest answer to a batch; its rows are there from now on."""
        answers = []
        for rows in (self.sure, self.there):
            kept = {name: meeting(rows[name], asked.asks(name)) for name in asked.names}
            rows |= {name: pa.concat_tables([kept[name], meeting(batch[name], asked.asks(name))]) for name in kept}
            answers.append(difference(asked.answer(kept), asked.answer(rows))[0])
        return answers[0], answers[1]


@pytest.mark.parametrize("seed", range(1))
def test_windows_and_orders_change_by_chance_and_what_is_promised_comes(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Windows become tighter and wider, streams come and go, are far apart, and orders migrate in between."""
    chance, answers = random.Random(f"windows {seed}"), []
    now, memory, told = timed(chance), Remembered(), []
    kinds = {name: Kind(TIMED_SCHEMA, "t", chance.choice([SPREAD, 40]) * 1000) for name in "ABCD"}
    times = dict.fromkeys("ABCD", 100)
    least, most = [], []
    with Steps(spark, tmp_path / "c", now.text, kinds, processors=2, answers=answers) as steps:
        for turn in range(12):
            if turn and chance.random() < 0.5:
                migrated(steps, now, chance, told)
            for other in [timed(chance, now) for _ in range(3)] if turn and chance.random() < 0.6 else ():
                under_way = steps.public._run.migrator.current
                if under_way is not None:
                    under_way.cancel()
                preview = steps.public.preview("query", other.text)
                if preview.is_possible:
                    steps.public.change("query", other.text, missing="allow")
                    told.append(str(preview))
                    memory.change(preview, other)
                    now = other
                    break
            if turn and chance.random() < 0.3:
                steps.public.spill()
            for name in times:
                times[name] += chance.choice([0, 5, 5, 10, 60])
            batch = {name: timed_rows(chance, times[name]) for name in kinds}
            steps.feed(batch)
            steps.check_owners()
            for bound, part in zip((least, most), memory.bounds(now, batch), strict=True):
                bound.append(part)
        steps.end()
        answer = steps.answer
    missing, surplus = difference(answer, pa.concat_tables(least))[0], difference(answer, pa.concat_tables(most))[1]
    assert not len(missing), f"{missing.slice(0, 3).to_pylist()}\n" + "\n\n".join(told)
    assert not len(surplus), f"{surplus.slice(0, 3).to_pylist()}\n" + "\n\n".join(told)


def migrated(steps: Steps, asked: Timed, chance: random.Random, told: list[str]) -> None:
    """Go on in another order by any strategy, in place of a migration under way; or be refused with a reason."""
    order, strategy = asked.joins(chance), chance.choice(ORDERS)
    try:
        steps.public.migrate(order, strategy, pace=chance.choice([1, 5, 100]), meanwhile="replace")
        told.append(f"{strategy} {order}")
    except ConfigError as error:
        if not any(reason in str(error) for reason in REFUSED):
            raise
