"""Damaged and missing checkpoint files are named, and nothing of them is served.

Every case works on a copy of one checkpoint. Copies lie in places of their own, so no worker knows their files yet.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.errors import CorruptStateError
from tests.oracle.steps import Kind, Steps

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
KINDS = {"A": Kind(SCHEMA), "B": Kind(SCHEMA)}
ROWS = pa.table({"k": list(range(20)), "v": [f"value {n}" for n in range(20)]}, schema=SCHEMA)


def steps(spark: SparkSession, checkpoint: Path, processors: int = 1) -> Steps:
    text = "SELECT A.k, A.v, B.v AS w FROM A, B WHERE A.k = B.k"
    return Steps(spark, checkpoint, text, KINDS, processors=processors)


@pytest.fixture(scope="module")
def sound(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after two steps."""
    checkpoint = tmp_path_factory.mktemp("sound") / "checkpoint"
    with steps(spark, checkpoint) as run:
        run.feed({"A": ROWS})
        run.feed({"B": ROWS.slice(0, 10)})
    return checkpoint


@pytest.fixture
def copied(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def flip(path: Path, where: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * where)] ^= 0x01
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@dataclass(frozen=True)
class Damage:
    """What is done to which file, and what the message must say of it."""

    name: str
    pattern: str
    act: Callable[[Path], None]
    says: str


# Of state files the oldest is damaged: it is the one that the next batch has to read.
STATE = [
    Damage("flipped", "*.arrow", flip, "damaged"),
    Damage("flipped at its end", "*.arrow", lambda path: flip(path, 0.999), "damaged"),
    Damage("truncated", "*.arrow", truncate, "bytes long instead of"),
    Damage("emptied", "*.arrow", empty, "empty"),
    Damage("removed", "*.arrow", Path.unlink, "missing"),
]
DOCUMENTS = [
    Damage("report flipped", "reports/*/*.json", flip, "damaged"),
    Damage("report truncated", "reports/*/*.json", truncate, "damaged"),
    Damage("report removed", "reports/*/*.json", Path.unlink, "missing"),
    Damage("step flipped", "steps/*.json", flip, "damaged"),
    Damage("step emptied", "steps/*.json", empty, "damaged"),
    Damage("identity flipped", "anabranch.json", flip, "damaged"),
]


@pytest.mark.parametrize("damage", STATE, ids=lambda damage: damage.name)
def test_a_damaged_state_file_is_named_and_not_used(spark: SparkSession, copied: Path, damage: Damage) -> None:
    path = sorted((copied / "state").glob(damage.pattern))[0]
    damage.act(path)
    with steps(spark, copied) as run:
        with pytest.raises(Exception):  # noqa: B017, PT011 Spark's account of it; ours is below
            run.feed({"B": ROWS})
        failure = run.runner.failure
        assert isinstance(failure, CorruptStateError)
        assert str(path) in str(failure)
        assert damage.says in str(failure)
        assert run.answers == []
    # Listing the state on other processors reads it too.
    with pytest.raises(CorruptStateError, match=path.name), steps(spark, copied, processors=2):
        pass


@pytest.mark.parametrize("damage", DOCUMENTS, ids=lambda damage: damage.name)
def test_a_damaged_document_is_named_before_anything_starts(spark: SparkSession, copied: Path, damage: Damage) -> None:
    path = sorted(copied.glob(damage.pattern))[-1]
    damage.act(path)
    with pytest.raises(CorruptStateError) as caught, steps(spark, copied):
        pass
    assert str(path) in str(caught.value)
    assert damage.says in str(caught.value)


def test_a_state_file_that_changes_between_two_runs_of_one_session_is_found(spark: SparkSession, copied: Path) -> None:
    """The workers that mapped the file live on, and must not trust what they mapped."""
    with steps(spark, copied) as run:
        run.feed({"B": ROWS.slice(10)})
    path = sorted((copied / "state").glob("*.arrow"))[0]
    flip(path)
    with steps(spark, copied) as run:
        with pytest.raises(Exception):  # noqa: B017, PT011
            run.feed({"B": ROWS})
        assert isinstance(run.runner.failure, CorruptStateError)
        assert str(path) in str(run.runner.failure)


def test_a_sound_copy_goes_on(spark: SparkSession, copied: Path) -> None:
    with steps(spark, copied) as run:
        run.feed({"B": ROWS.slice(10)})
        assert sorted(run.answer.column("k").to_pylist()) == list(range(10, 20))
