"""Searches that tests make with a few seeds each, made with others; and kills of the driver at any moment."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.checkpoint.folder.directory import Checkpoint
from tests.faults.driver import Rig, spawn
from tests.faults.test_diffusion import test_crashes_while_groups_are_spread_switched_and_gathered_change_no_answer
from tests.faults.test_kill import assert_clean
from tests.oracle.feed import run_to_end, written
from tests.oracle.referee import assert_same_rows
from tests.oracle.test_random_changes import (
    test_whatever_a_query_becomes_its_answers_are_those_of_the_rows_that_it_has,
    test_windows_and_orders_change_by_chance_and_what_is_promised_comes,
)
from tests.oracle.test_random_queries import test_a_random_query_answers_as_duckdb_does
from tests.runtime.rows.test_exactness import test_equalities_of_random_types_join_as_in_spark_or_are_refused

SEEDED: list[Callable[[SparkSession, Path, int], None]] = [
    test_a_random_query_answers_as_duckdb_does,
    test_equalities_of_random_types_join_as_in_spark_or_are_refused,
    test_whatever_a_query_becomes_its_answers_are_those_of_the_rows_that_it_has,
    test_windows_and_orders_change_by_chance_and_what_is_promised_comes,
    test_crashes_while_groups_are_spread_switched_and_gathered_change_no_answer,
]
QUERIES = ["plain", "filtered", "rounds", "spilled plain", "moved plain", "elsewhere rounds", "elsewhere plain"]


def do_seeded(spark: SparkSession, directory: Path, seed: int) -> str:
    """A test that draws what it does from a seed, with this one."""
    test = random.Random(f"seeded {seed}").choice(SEEDED)
    test(spark, directory, seed)
    return test.__name__


def do_kill(spark: SparkSession, directory: Path, seed: int) -> str:
    """kill -9 of a driver at some moment after its first commit; another one makes the answer complete and exact."""
    rng = random.Random(f"kill {seed}")
    rig, query, delay = Rig(directory / "rig"), rng.choice(QUERIES), rng.random() * 3
    rig.add(4)
    child = spawn({"runs": [{"directory": str(rig.directory), "query": query}]})
    try:
        _wait_for_a_commit(child, rig)
        time.sleep(delay)
    finally:
        child.kill()
        child.communicate()
    rig.add(1)
    run_to_end(rig.query(spark, query, processors=rng.choice([1, 2, 3])), rig.output)
    assert_same_rows(written(rig.output), rig.expected())
    assert_clean(rig)
    return f"{query}, killed {delay:.2f} s after a commit"


def _wait_for_a_commit(child: subprocess.Popen[str], rig: Rig) -> None:
    deadline = time.monotonic() + 200
    while not Checkpoint(rig.checkpoint).steps() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
