"""`anabranch demo migration`: when it changes the order of joins and what it says of it, then the whole of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from anabranch.cli.demos.bots import LATENESS, BotShop, write_bot_shop
from anabranch.cli.demos.turn import BATCHES_IN_A_ROW, FIRST_BATCHES, parts_of_run, reason_to_migrate
from anabranch.errors import ConfigError
from anabranch.observe.progress import OperatorProgress
from anabranch.observe.story import BatchSummary, ProcessorSummary
from tests.cli.conftest import Invoke

SMALL = BotShop(rows=8_000, batches=8, turn=4, seed=1)
OLD = ("join of a, b", "join of a, b, c")
NEW = ("join of b, c", "join of a, b, c")


def batch(number: int, intermediate: int, answers: int = 10, operators: tuple[str, ...] = OLD) -> BatchSummary:
    """A batch whose first operator makes rows for the second one; others, of a shadow, make none."""
    made = dict.fromkeys(operators, 0) | {operators[0]: intermediate, operators[1]: answers}
    return BatchSummary(
        number,
        rows=100,
        results=answers,
        late=0,
        rejected=0,
        started=float(number),
        seconds=intermediate / 100,
        processors=(ProcessorSummary(0, 0, 0, answers, 0.0),),
        operators=tuple(OperatorProgress(name, 0, results, 0.0) for name, results in made.items()),
    )


def run_of(*intermediate: int) -> list[BatchSummary]:
    return [batch(number, rows) for number, rows in enumerate(intermediate)]


def test_there_is_a_reason_once_a_join_has_made_many_more_rows_for_several_batches() -> None:
    quiet, loud = [20] * FIRST_BATCHES, [900] * BATCHES_IN_A_ROW

    assert reason_to_migrate(run_of(*quiet, *loud[1:])) is None
    assert reason_to_migrate(run_of(*quiet, *loud)) == (
        "the join of a, b makes 900 rows per batch, 45 times as many as at first, for 10 answers per batch"
    )


@pytest.mark.parametrize("rows", [[20] * 20, [20] * 6 + [900, 900, 20, 900, 900], [], [900] * 20])
def test_bursts_and_what_was_always_so_are_no_reason(rows: list[int]) -> None:
    assert reason_to_migrate(run_of(*rows)) is None


def test_more_rows_for_as_many_more_answers_are_no_reason() -> None:
    batches = [batch(number, 20 if number < 6 else 900, 20 if number < 6 else 900) for number in range(12)]

    assert reason_to_migrate(batches) is None


def test_a_run_falls_into_parts_by_the_operators_at_work() -> None:
    beside = (*OLD, "join of :b, :c", "join of :a, :b, :c")
    run = [
        *(batch(number, 20) for number in range(3)),
        *(batch(number, 900) for number in range(3, 6)),
        batch(6, 1000, operators=beside),
        *(batch(number, 40, operators=NEW) for number in range(7, 9)),
    ]

    parts = parts_of_run(run, turn=3)

    assert [(part.name, part.batches, part.intermediate) for part in parts] == [
        ("before the turn", 3, 20),
        ("after the turn", 3, 900),
        ("while it migrates", 1, 1000),
        ("after the migration", 2, 40),
    ]
    assert parts[3].seconds == 0.4


def test_a_run_that_does_not_migrate_has_no_medians_for_it() -> None:
    assert [part.intermediate for part in parts_of_run(run_of(20, 20), turn=5)] == [20, None, None, None]
    assert [part.batches for part in parts_of_run([], turn=5)] == [0, 0, 0, 0]


def test_bots_come_with_their_batch_and_rows_are_never_late(tmp_path: Path) -> None:
    write_bot_shop(SMALL, tmp_path)

    for stream in ("visits", "clicks", "orders", "payments"):
        batches = [pq.read_table(path) for path in sorted((tmp_path / stream).iterdir())]
        assert [len(rows) for rows in batches] == [1_000] * SMALL.batches
        newest = 0
        for rows in batches:
            ts = rows["ts"].cast(pa.int64())
            assert pc.min(ts).as_py() >= newest - LATENESS
            newest = max(newest, pc.max(ts).as_py())
        if "visitor" in rows.column_names:
            bots = [pc.sum(pc.less(rows["visitor"], 0)).as_py() for rows in batches]
            assert max(bots[: SMALL.turn - 1]) == 0
            assert min(bots[SMALL.turn + 1 :]) > 200


def test_too_few_rows_to_see_anything_in_are_refused() -> None:
    with pytest.raises(ConfigError, match="too few for 8 batches; ask for 8,000 or more"):
        BotShop(rows=7_999, batches=8, turn=4, seed=1)


@pytest.mark.spark
def test_the_demo_changes_the_order_says_why_and_is_exact(tmp_path: Path, invoke: Invoke) -> None:
    temporary, kept = tmp_path / "tmp", tmp_path / "bots"
    temporary.mkdir()

    out = invoke("demo", "migration", "--rows", "22000", "--keep", str(kept), temporary=temporary)

    told = out.splitlines()
    decided, began, ended = (
        next(number for number, line in enumerate(told) if phrase in line)
        for phrase in (
            "The demo decides: the join of c, v makes ",
            " migrating: query: joins go from ((v c) o) p to ((c o) p) v by background",
            " migrate: query: joins are ((c o) p) v now",
        )
    )
    assert decided < began < ended
    assert "The plan in the end, ((c o) p) v:" in told
    rows = {line.split("│")[1].strip(): line.split("│")[3].strip() for line in told if line.startswith("│")}
    before, turned, after = (
        int(rows[part].replace(",", "")) for part in ("before the turn", "after the turn", "after the migration")
    )
    assert turned > 5 * before
    assert turned > 5 * after
    assert "exact: " in out
    assert list(temporary.iterdir()) == []
    assert {"bots.toml", "checkpoint", "results", "visits"} <= {path.name for path in kept.iterdir()}
