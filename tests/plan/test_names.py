"""Names in expressions: which of them are columns, and what becomes of them when columns are replaced."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from anabranch.plan.names import Names
from anabranch.plan.query import quote
from anabranch.plan.texts import substituted
from tests.oracle.profiles import examples

RENAMED = {"`a`": "`1.a`", "`b`": "`2.b`", "`x`": "(`a` + `y`)"}

CASES = {
    # casts, and what else begins with a colon
    "`a`::int": "`1.a`::int",
    "`a` :: int": "`1.a` :: int",
    "`a`/* : */::int": "`1.a`/* : */::int",
    "`a`.`b`::int": "`1.a`.`b`::int",
    "(`a`)::int + `b`": "(`1.a`)::int + `2.b`",
    "`a`:b.c": "`1.a`:b.c",
    "`a` : `b`.`a`": "`1.a` : `b`.`a`",
    "`a`:b[0]::int = `b`": "`1.a`:b[0]::int = `2.b`",
    # fields
    "s.`a`": "s.`a`",
    "`a`.`a`": "`1.a`.`a`",
    "`a` . `a`": "`1.a` . `a`",
    "`a`[`b`].`b`": "`1.a`[`2.b`].`b`",
    "1.5 + `a`": "1.5 + `1.a`",
    # types
    "CAST(`a` AS STRUCT<`a`: INT, `b` :STRING>)": "CAST(`1.a` AS STRUCT<`a`: INT, `b` :STRING>)",
    "CAST(`a` AS struct < `a` INT, `b` ARRAY<INT>>) = `b`": "CAST(`1.a` AS struct < `a` INT, `b` ARRAY<INT>>) = `2.b`",
    "`a`::ARRAY<STRUCT<`a`: MAP<INT, STRUCT<`b`: INT>>>>": "`1.a`::ARRAY<STRUCT<`a`: MAP<INT, STRUCT<`b`: INT>>>>",
    "`s`.array < `a`": "`s`.array < `1.a`",
    "`a` < `b`": "`1.a` < `2.b`",
    # functions and their arguments
    "`a`(`a`)": "`a`(`1.a`)",
    "`a` (`b`)": "`a` (`2.b`)",
    "`b`.`a`(`a`)": "`b`.`a`(`1.a`)",
    "f(`a` => `a`)": "f(`a` => `1.a`)",
    # new names
    "struct(`a` AS `a`, `b` `b`, (`a`) `a`, 1 `a`, `a`[0] `b`)": (
        "struct(`1.a` AS `a`, `2.b` `b`, (`1.a`) `a`, 1 `a`, `1.a`[0] `b`)"
    ),
    "struct(s.f `a`, CASE `a` WHEN `b` THEN `a` END `b`)": "struct(s.f `a`, CASE `1.a` WHEN `2.b` THEN `1.a` END `b`)",
    "`a` COLLATE `b`": "`1.a` COLLATE `b`",
    # lambdas
    "transform(`b`, `a` -> `a` + 1) = `a`": "transform(`2.b`, `a` -> `a` + 1) = `1.a`",
    "f(`a`, `a` -> g(`a`, `b`), `a`)": "f(`1.a`, `a` -> g(`a`, `2.b`), `1.a`)",
    "f((`a`, y) -> `a` + y + `b`, `a`)": "f((`a`, y) -> `a` + y + `2.b`, `1.a`)",
    "f(`b`, A -> `a`, `a`)": "f(`2.b`, A -> `a`, `1.a`)",
    "f(`b`, p -> f(p, `b` -> p + `b`) + `b`)": "f(`2.b`, p -> f(p, `b` -> p + `b`) + `2.b`)",
    "f(p -> CAST(p AS STRUCT<u: INT, v: INT>).u + `a`)": "f(p -> CAST(p AS STRUCT<u: INT, v: INT>).u + `1.a`)",
    "f(y -> y + `x`)": "f(`v0` -> `v0` + (`a` + `y`))",
    "f((y, v0) -> y.y + y(v0) + `x`)": "f((`v1`, v0) -> `v1`.y + y(v0) + (`a` + `y`))",
    "f(y -> y) + `x`": "f(y -> y) + (`a` + `y`)",
    # what is passed over
    "'`a`' || `a`": "'`a`' || `1.a`",
    r"'it\'s `a`' || `a`": r"'it\'s `a`' || `1.a`",
    "'it''s `a`' || `a`": "'it''s `a`' || `1.a`",
    '"`a`" || `a`': '"`a`" || `1.a`',
    "r'\\' || `a` || R\"`a`\"": "r'\\' || `1.a` || R\"`a`\"",
    "X'00' || `a`": "X'00' || `1.a`",
    "`a` -- `a` '\n+ `a`": "`1.a` -- `a` '\n+ `1.a`",
    "`a` -- \\\n `a`\n+ `a`": "`1.a` -- \\\n `a`\n+ `1.a`",
    "/* /* ' */ `a` */ `a`": "/* /* ' */ `a` */ `1.a`",
    "`a``` + `a`": "`a``` + `1.a`",
    "interval '1' day + `a`": "interval '1' day + `1.a`",
    "`a` IS NOT NULL AND NOT `b`": "`1.a` IS NOT NULL AND NOT `2.b`",
    "`a` BETWEEN `b` AND `a` DIV `b`": "`1.a` BETWEEN `2.b` AND `1.a` DIV `2.b`",
    "trim(BOTH `a` FROM `b`)": "trim(BOTH `1.a` FROM `2.b`)",
}


@pytest.mark.parametrize("text", CASES)
def test_columns_are_replaced_and_nothing_else_is(text: str) -> None:
    assert substituted(text, RENAMED) == CASES[text]


@dataclass(frozen=True)
class Made:
    """An expression with the columns that it reads replaced, or not."""

    before: str
    after: str


def joined(template: str, *parts: Made) -> Made:
    return Made(template.format(*(p.before for p in parts)), template.format(*(p.after for p in parts)))


gaps = st.sampled_from(["", " ", "\n", "/* `a` */", "/* /*'*/ `b` */", " -- `a`: '\n"])
columns = st.sampled_from(["a", "b"]).map(lambda name: Made(f"`{name}`", {"a": "`1.a`", "b": "`2.b`"}[name]))
values = st.sampled_from(["'`a`'", r"'\'`a`'", '"`b`"', "r'\\'", "X'0A'", "1", "1.5", "TRUE"]).map(
    lambda text: Made(text, text)
)
types = st.sampled_from(["INT", "ARRAY<STRUCT<`a`: INT, `b` INT>>", "MAP<STRING, STRUCT<`a`:INT>>", "DECIMAL(5, 2)"])


def larger(part: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    bracketed = part.map(lambda p: joined("({})", p))
    return st.one_of(
        st.builds(lambda p, g, t: joined(f"({{}}){g}::{g}{t}", p), part, gaps, types),
        st.builds(lambda p, g, t: joined(f"{{}}{g}::{g}{t}", p), columns, gaps, types),
        st.builds(lambda p, g: joined(f"{{}}{g}.{g}`a`", p), columns, gaps),
        st.builds(lambda p, g: joined(f"{{}}{g}:{g}`a`.b['c']", p), columns, gaps),
        st.builds(lambda p, q, g: joined(f"{{}}{g}[{g}{{}}]", p, q), columns, part, gaps),
        st.builds(lambda p, q, g: joined(f"{{}}{g} + {g}{{}}", p, q), bracketed, part, gaps),
        st.builds(lambda p, q, g: joined(f"{{}}{g} < {g}{{}}", p, q), bracketed, part, gaps),
        st.builds(lambda p, g, t: joined(f"CAST({{}}{g} AS {g}{t})", p), part, gaps, types),
        st.builds(lambda p, q, g: joined(f"`a`{g}({{}},{g}{{}})", p, q), part, part, gaps),
        st.builds(lambda p, q, g: joined(f"f({{}}, z{g}->{g}z + {{}}, {{}})", p, q, p), part, bracketed, gaps),
        st.builds(lambda p, g: joined(f"f({{}}, (`a`{g},{g}`b`){g}->{g}`a` + `b`, {{}})", p, p), part, gaps),
        st.builds(lambda p, g: joined(f"f(`a`{g}=>{g}{{}})", p), part, gaps),
        st.builds(lambda p, g: joined(f"struct({{}}{g} AS `a`,{g}({{}}){g}`b`)", p, p), part, gaps),
    )


expressions = st.recursive(columns | values, larger, max_leaves=8)


@examples(400)
@given(expressions)
def test_columns_of_random_expressions_are_replaced_whatever_stands_around_them(made: Made) -> None:
    assert substituted(made.before, {"`a`": "`1.a`", "`b`": "`2.b`"}) == made.after


@pytest.mark.spark
def test_spark_reads_the_same_columns_of_an_expression(spark: SparkSession) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    ours, spark_s = {}, {}
    for text in (before for before in CASES if "->" not in before):  # there Spark calls all names variables
        names = Names(text)
        ours[text] = Counter(names.tokens[n].called for n in names.columns())
        leaves = parser.parseExpression(text).collectLeaves()
        attributes = [leaves.apply(n) for n in range(leaves.size())]
        read = [
            leaf.nameParts().head() for leaf in attributes if leaf.getClass().getSimpleName() == "UnresolvedAttribute"
        ]
        spark_s[text] = Counter(name for name in read if quote(name) in text)
    assert ours == spark_s
