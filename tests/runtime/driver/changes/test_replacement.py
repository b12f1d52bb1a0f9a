"""A running query is replaced by another one that goes on with its state: until then the old one's answers come, and
afterwards exactly the new one's that have a row from after the change."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.errors import ConfigError, ResumeMismatchError
from anabranch.state.failpoints import VARIABLE
from tests.oracle.referee import assert_same_rows, difference, query
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64())])
KINDS = {name: Kind(SCHEMA) for name in "ABCD"}
CHAIN = "SELECT A.v AS x, B.v AS y, C.v + C.j AS z FROM A, B, C WHERE A.k = B.k AND B.j = C.j"
PAIR = "SELECT A.v AS x, B.v AS y, B.j AS z FROM A, B WHERE A.k = B.k"

TIMED_SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
TIMED = {name: Kind(TIMED_SCHEMA, "t", 5_000) for name in "ABC"}

Batch = dict[str, pa.Table]


def rows(chance: random.Random, many: int = 12) -> Batch:
    return {
        name: pa.table([[chance.choice([*range(4), None]) for _ in range(many)] for _ in SCHEMA.names], schema=SCHEMA)
        for name in KINDS
    }


def together(fed: Sequence[Batch], schema: pa.Schema = SCHEMA) -> Batch:
    names = fed[0] if fed else "ABCD"
    return {name: pa.concat_tables([schema.empty_table(), *(batch[name] for batch in fed)]) for name in names}


def with_a_new_row(text: str, before: Sequence[Batch], after: Sequence[Batch]) -> pa.Table:
    """The answers of a query that have a row from after a change: all of them, but those of the rows before."""
    every, old = query(text, together([*before, *after])), query(text, together(before))
    return difference(old, every)[0]


def expected(texts: Sequence[str], phases: Sequence[Sequence[Batch]]) -> pa.Table:
    """What comes if each text is answered for one phase and takes the place of the one before."""
    parts, before = [], []
    for text, fed in zip(texts, phases, strict=True):
        parts.append(with_a_new_row(text, before, fed))
        before += fed
    return pa.concat_tables(parts)


def test_exactly_the_new_answers_come_that_have_a_row_from_after_the_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Conditions over two streams more and less, conditions on streams more, other columns, another order of joins."""
    texts = [
        CHAIN,
        CHAIN + " AND A.v <> C.v",
        CHAIN + " AND A.v <= C.v + B.v",
        CHAIN + " AND B.v >= 2 AND C.v < 3",
        "SELECT B.k AS x, A.v AS y, C.j AS z FROM A, B, C WHERE A.k = B.k AND B.j = C.j AND B.v >= 2 AND C.v < 3",
    ]
    chance = random.Random(1)
    phases: list[list[Batch]] = []
    joined: list[list[str]] = []
    with Steps(spark, tmp_path / "c", CHAIN, KINDS, joins="(A B) C", processors=3) as steps:
        for text in texts:
            if text is not CHAIN:
                joins = "A (B C)" if "x, A.v" in text else "(A B) C"
                asked = steps.public.engine.sql(text, joins=joins)
                preview = steps.public.change("query", asked)
                assert preview.is_complete, str(preview)
                joined.append([str(state.fate) for state in preview.states if " " in state.holds])
                steps.check_owners()
            phases.append([rows(chance) for _ in range(2 if len(phases) in (0, 4) else 1)])
            for batch in phases[-1]:
                steps.feed(batch)
        answer, order = steps.answer, steps.order()
    assert order == "A (B C)"
    assert joined == [["kept"], ["kept"], ["computed"], ["computed"]]
    assert_same_rows(answer, expected(texts, phases))


def test_rows_are_selected_although_the_column_of_the_key_is_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    chance, phases = random.Random(2), []
    texts = [PAIR, PAIR + " AND A.v > 1"]
    with Steps(spark, tmp_path / "c", PAIR, KINDS) as steps:
        for text in texts:
            if text is not PAIR:
                steps.public.spill()
                preview = steps.public.change("query", text)
                assert [(state.holds, state.fate) for state in preview.states] == [("A", "selected"), ("B", "kept")]
            phases.append([rows(chance), rows(chance)])
            for batch in phases[-1]:
                steps.feed(batch)
        steps.end()
        answer = steps.answer
    assert_same_rows(answer, expected(texts, phases))


def test_a_stream_that_is_added_begins_empty_and_one_that_is_dropped_is_forgotten(
    spark: SparkSession, tmp_path: Path
) -> None:
    """D begins with the change. What was joined on a column before had one, so rows without one are lacking."""
    chance, before, after, last = random.Random(3), [], [], []
    four = "SELECT A.v AS x, B.v AS y, D.v AS z FROM A, B, C, D WHERE A.k = B.k AND B.j = C.j AND B.j = D.k"
    three = "SELECT A.v AS x, B.v AS y, D.v AS z FROM A, B, D WHERE A.k = B.k AND B.j = D.k"
    with Steps(spark, tmp_path / "c", CHAIN, KINDS) as steps:
        before = [rows(chance), rows(chance)]
        for batch in before:
            steps.feed(batch)
        assert not any("D" in plan.joins for plan in steps.public.plans())
        preview = steps.public.change("query", four)
        assert preview.reads_anew
        assert all("D" in plan.joins for plan in steps.public.plans()), "those of the query that it is now"
        assert not preview.is_complete
        assert {state.holds: str(state.fate) for state in preview.states}["D"] == "begins empty"
        after = [rows(chance)]
        for batch in after:
            steps.feed(batch)
        preview = steps.public.change("query", three)
        assert preview.is_complete, str(preview)
        assert preview.forgotten == ("C",)
        last = [rows(chance)]
        for batch in last:
            steps.feed(batch)
        answer = steps.answer
    empty = [{**batch, "D": SCHEMA.empty_table()} for batch in before]
    parts = [
        query(CHAIN, together(before)),
        with_a_new_row(four, empty, after),
        with_a_new_row(three, [*empty, *after], last),
    ]
    assert_same_rows(answer, pa.concat_tables(parts))


def test_a_condition_less_has_to_be_allowed_and_goes_on_with_the_rows_that_are_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(4)
    narrow, wide = PAIR + " AND A.v > 1 AND B.v < 3", PAIR + " AND B.v < 3"
    with Steps(spark, tmp_path / "c", narrow, KINDS) as steps:
        before, after = [rows(chance), rows(chance)], [rows(chance), rows(chance)]
        for batch in before:
            steps.feed(batch)
        preview = steps.public.preview("query", wide)
        assert preview.is_possible
        lacking = "rows that did not meet `v` > 1 were not kept so far"
        assert str(preview).splitlines() == [
            f"query: {narrow}",
            f"       becomes {wide}",
            "  state of  is    rows",
            f"  A         kept  {kept(before, 'A', 'v > 1'):>4}  {lacking}",
            f"  B         kept  {kept(before, 'B', 'v < 3'):>4}",
            "Spark's query is stopped and started once: it has to read more than it does now.",
            "Rows are lacking that a condition has left out; missing='allow' goes on with what is there.",
        ]
        with pytest.raises(ConfigError, match="would lack rows: of A, rows that did not meet"):
            steps.public.change("query", wide)
        with pytest.raises(ConfigError, match="did you mean 'allow'"):
            steps.public.change("query", wide, missing="alow")
        steps.public.change("query", wide, missing="allow")
        for batch in after:
            steps.feed(batch)
        answer = steps.answer
    there = {**together(before), "A": query("SELECT * FROM A WHERE v > 1", together(before))}
    parts = [query(narrow, together(before)), with_a_new_row(wide, [there], after)]
    assert_same_rows(answer, pa.concat_tables(parts))


def test_a_query_goes_on_with_the_state_of_another_but_not_if_that_lacks_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(9)
    some, few = PAIR + " AND A.v > 1", PAIR + " AND A.v > 1 AND B.v > 1"
    with Steps(spark, tmp_path / "c", some, KINDS, name="some", others={"few": few}) as steps:
        before, after = [rows(chance), rows(chance)], [rows(chance), rows(chance)]
        for batch in before:
            steps.feed(batch)
        assert steps.public.change("few", some).is_complete, "it goes on with the rows of the other one"
        steps.public.change("some", PAIR, missing="allow")
        for batch in after:
            steps.feed(batch)
        assert steps.public.preview("few", PAIR).lacks_rows, "the other one has not got all rows either"
        answer, other = steps.answer, pa.concat_tables(steps.other_answers["few"])
    there = {**together(before), "A": query("SELECT * FROM A WHERE v > 1", together(before))}
    parts = [query(some, together(before)), with_a_new_row(PAIR, [there], after)]
    assert_same_rows(answer, pa.concat_tables(parts))
    assert_same_rows(other, expected((few, some), (before, after)))


def kept(fed: Sequence[Batch], name: str, condition: str) -> int:
    """How many rows of a stream have a key and meet a condition."""
    return len(query(f"SELECT * FROM {name} WHERE k IS NOT NULL AND {condition}", together(fed)))


def windowed(a: int, b: int) -> str:
    return f"SELECT A.v AS x, B.v AS y FROM A [RANGE {a} MILLISECONDS], B [RANGE {b} MILLISECONDS] WHERE A.k = B.k"


def timed_rows(chance: random.Random, now: int) -> Batch:
    """Rows of the last five milliseconds before a time, none of them late under a lateness of five."""

    def row() -> tuple[int, ...]:
        return chance.randrange(3), now - chance.randrange(5), chance.randrange(10_000)

    return {
        name: pa.table([list(column) for column in zip(*(row() for _ in range(8)), strict=True)], schema=TIMED_SCHEMA)
        for name in TIMED
    }


def within(a: int, b: int, fed: Sequence[Batch]) -> pa.Table:
    """The pairs in which every row is not older than the newest one by more than its window."""
    text = (
        f"SELECT A.v AS x, B.v AS y FROM A, B WHERE A.k = B.k AND A.t >= greatest(A.t, B.t) - {a} "
        f"AND B.t >= greatest(A.t, B.t) - {b}"
    )
    return query(text, together(fed, TIMED_SCHEMA))


def test_a_tighter_window_is_exact_and_a_wider_one_from_the_time_on_that_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(5)
    windows = [(40, 30), (20, 30), (60, 30)]
    phases: list[list[Batch]] = []
    answers: list[pa.Table] = []
    now = 0
    with Steps(spark, tmp_path / "c", windowed(40, 30), TIMED, answers=answers, processors=2) as steps:
        for a, b in windows:
            if phases:
                preview = steps.public.change("query", windowed(a, b))
                first = len(answers)
            phases.append([])
            for _ in range(5):
                now += 8
                phases[-1].append(timed_rows(chance, now))
                steps.feed(phases[-1][-1])
            if len(phases) == 2:
                assert preview.is_complete, str(preview)
        grouped = windowed(60, 30).replace("A.v AS x, B.v AS y", "A.k, count(*) AS n") + " GROUP BY A.k"
        assert "the new query groups" in str(steps.public.preview("query", grouped))
        last = pa.concat_tables(answers[first:])
        earlier = pa.concat_tables(answers[:first])
    wide, tight = phases[0], phases[1]
    parts = [
        within(40, 30, wide),
        difference(within(20, 30, wide), within(20, 30, [*wide, *tight]))[0],
    ]
    assert_same_rows(earlier, pa.concat_tables(parts))
    before = [*wide, *tight]
    gone = {state.holds: state.gone_before for state in preview.states}
    assert gone["B"] is None
    newest = max(value for batch in before for value in batch["B"]["t"].to_pylist())
    assert gone["A"] == newest * 1000 - 5_000 - 20_000, "the watermark of B, less the window of A until then"
    assert f"rows before 1970-01-01 00:00:00.{gone['A'] // 1000:03d} are gone, all others are there" in str(preview)
    everything = difference(within(60, 30, before), within(60, 30, [*before, *phases[2]]))[0]
    kept = [{**batch, "A": query(f"SELECT * FROM A WHERE t * 1000 >= {gone['A']}", batch)} for batch in before]
    promised = difference(within(60, 30, kept), within(60, 30, [*kept, *phases[2]]))[0]
    assert len(difference(last, promised)[0]) == 0, "all with rows from the time on that is told"
    assert len(difference(last, everything)[1]) == 0, "nothing that the new query does not mean"
    assert len(promised) > len(difference(within(40, 30, before), within(40, 30, [*before, *phases[2]]))[0])


def three(a: int, b: int, c: int) -> str:
    spans = {"A": a, "B": b, "C": c}
    streams = ", ".join(f"{name} [RANGE {span} MILLISECONDS]" for name, span in spans.items())
    return f"SELECT A.v AS x, B.v AS y, C.v AS z FROM {streams} WHERE A.k = B.k AND B.v % 4 = C.k"


def three_within(spans: tuple[int, int, int], fed: Sequence[Batch]) -> pa.Table:
    newest = "greatest(A.t, B.t, C.t)"
    times = " AND ".join(f"{name}.t >= {newest} - {span}" for name, span in zip("ABC", spans, strict=True))
    text = f"SELECT A.v AS x, B.v AS y, C.v AS z FROM A, B, C WHERE A.k = B.k AND B.v % 4 = C.k AND {times}"
    return query(text, together(fed, TIMED_SCHEMA))


def test_joined_rows_are_computed_for_tighter_windows_in_another_order_of_joins(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, now, before, expected = random.Random(8), 0, [], []
    windows = [(40, 40, 30), (40, 30, 10), (25, 30, 10)]
    with Steps(spark, tmp_path / "c", three(*windows[0]), TIMED, joins="(A B) C", processors=2) as steps:
        for spans in windows:
            if before:
                order = "A (B C)" if spans[0] == 25 else "(A B) C"
                preview = steps.public.change("query", steps.public.engine.sql(three(*spans), joins=order))
                assert preview.is_complete, str(preview)
                assert "computed" in {str(state.fate) for state in preview.states}
            fed = []
            for _ in range(4):
                now += 9
                fed.append(timed_rows(chance, now))
                steps.feed(fed[-1])
            expected.append(difference(three_within(spans, before), three_within(spans, [*before, *fed]))[0])
            before += fed
        answer = steps.answer
    assert_same_rows(answer, pa.concat_tables(expected))


PLACES = ["begun", "replayed", "settled", "adopted", "ended"]


@pytest.mark.parametrize("place", PLACES)
def test_after_a_crash_the_old_query_is_in_force_or_the_new_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A stream is added, so that the rows that are read change, too."""
    chance, answers = random.Random(6), []
    old = CHAIN
    new = "SELECT A.v AS x, B.v AS y, D.v AS z FROM A, B, C, D WHERE A.k = B.k AND B.j = C.j AND B.j = D.k"
    before, after = [rows(chance)], [rows(chance)]
    with Steps(spark, tmp_path / "c", old, KINDS, answers=answers) as steps:
        steps.feed(before[0])
        monkeypatch.setenv(VARIABLE, f"migration.{place}=raise@once:{tmp_path / 'marker'}")
        with pytest.raises(Exception, match=f"failpoint migration.{place}"):
            steps.public.change("query", new)
    done = place == "ended"
    refused = "run.change.*Start it as it is now: SELECT A.v" if done else "cannot be resumed: query"
    with (
        pytest.raises(ResumeMismatchError, match=refused),
        Steps(spark, tmp_path / "c", old if done else new, KINDS, answers=answers),
    ):
        pass
    with Steps(spark, tmp_path / "c", new if done else old, KINDS, answers=answers) as steps:
        steps.feed(after[0])
    empty = [{**batch, "D": SCHEMA.empty_table()} for batch in before]
    came = with_a_new_row(new, empty, after) if done else with_a_new_row(old, before, after)
    assert_same_rows(pa.concat_tables(answers), pa.concat_tables([query(old, together(before)), came]))


def test_what_cannot_be_done_is_said_before_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    chance, fed = random.Random(7), []
    with Steps(spark, tmp_path / "c", PAIR, KINDS, processors=2) as steps:
        with pytest.raises(ConfigError, match="has not seen a batch yet"):
            steps.public.preview("query", PAIR + " AND A.v > 1")
        fed.append(rows(chance))
        steps.feed(fed[-1])
        plan = steps.taken.plan_number
        for text, reason in [
            (PAIR, "this is the query that is answered already"),
            ("SELECT A.v AS x, B.v AS y, A.j AS z FROM A, B WHERE A.k = B.k", "of A the new query reads j, but its"),
            (PAIR + " AND A.v + 1 > 2", r"`v` \+ 1 > 2 can fail on a row of A"),
            (f"{PAIR} UNION ALL {PAIR}", "the new query is a UNION ALL"),
            ("SELECT A.v AS x, s.v AS y FROM A, (SELECT k, v FROM B) s WHERE A.k = s.k", "has a sub-query in FROM"),
        ]:
            preview = steps.public.preview("query", text)
            assert not preview.is_possible
            with pytest.raises(ConfigError, match=f"the query 'query' cannot be changed: .*{reason}"):
                steps.public.change("query", text)
        with pytest.raises(ConfigError, match="there is no query 'qery' in this run; did you mean 'query'"):
            steps.public.preview("qery", PAIR)
        assert steps.taken.plan_number == plan
        fed.append(rows(chance))
        steps.feed(fed[-1])
        answer = steps.answer
    assert_same_rows(answer, query(PAIR, together(fed)))
