"""A query is replaced by others at random, and what comes is what a model of its state says.

The model is small: of each stream there are the rows that came while the stream was in the query, as long as they met
all conditions that single streams had since: those in WHERE, and that there is a value to join on. The answers after a
change are those of the new query over these rows and the new ones, without those of the old rows alone. DuckDB computes
both.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.errors import ConfigError
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
    assert len(told) >= 3, "changes that can be made"
    assert len(fates) > 1
    try:
        assert_same_rows(answer, pa.concat_tables(expected))
    except AssertionError as error:
        raise AssertionError(f"{error}\n" + "\n\n".join(told)) from None
