"""Stopping and starting again on the same checkpoint: what continues, what is refused and why."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import CorruptStateError, ResumeMismatchError
from tests.oracle.feed import Feed, run_to_end, written
from tests.oracle.referee import Stream, assert_same_rows, join

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.int64())])
QUERY = "SELECT A.k, A.v, B.v AS w FROM A [RANGE 5 SECONDS], B [RANGE 1 SECOND] WHERE A.k = B.k"


@dataclass
class Setting:
    """Two streams and a checkpoint, with everything that a resumed run may have changed."""

    spark: SparkSession
    directory: Path
    a: Feed
    b: Feed

    def query(
        self,
        text: str = QUERY,
        lateness: str = "1 minute",
        a_type: str = "bigint",
        time: str = "at",
        **settings: object,
    ) -> ab.Query:
        engine = ab.Engine(self.spark, self.directory / "checkpoint", **{"processors": 2, "groups": 16, **settings})
        stream = self.a.stream(self.spark).selectExpr("k", "at", f"CAST(v AS {a_type}) AS v", "at AS other")
        engine.register("A", stream, time=time, lateness=lateness)
        engine.register("B", self.b.stream(self.spark), time="at", lateness="1 minute")
        return engine.sql(text)

    def add(self, batch: int) -> None:
        keys = list(range(batch % 3, batch % 3 + 8))
        self.a.add(k=keys, at=[1000 * batch + key for key in keys], v=[batch] * len(keys))
        self.b.add(k=keys, at=[1000 * batch - key for key in keys], v=[-batch] * len(keys))

    def expected(self) -> pa.Table:
        streams = {
            "A": Stream(self.a.complete, ["k"], "at", 5000),
            "B": Stream(self.b.complete, ["k"], "at", 1000),
        }
        return join(streams, ["A.k", "A.v", "B.v AS w"])


@pytest.fixture
def setting(spark: SparkSession, tmp_path: Path) -> Setting:
    made = Setting(spark, tmp_path, Feed(tmp_path / "A", SCHEMA), Feed(tmp_path / "B", SCHEMA))
    made.add(0)
    return made


def test_other_numbers_of_processors_continue_with_the_same_answer(setting: Setting, tmp_path: Path) -> None:
    run_to_end(setting.query(), tmp_path / "out")
    for batch, processors in ((1, 3), (2, 1), (3, 16)):
        already = len(written(tmp_path / "out"))
        setting.add(batch)
        run = run_to_end(setting.query(processors=processors), tmp_path / "out")
        assert [entry["batchId"] for entry in run.recentProgress if entry["numInputRows"]] == [batch]
        assert len(run.recentProgress[-1]["anabranch"]["processors"]) == processors
        assert {"resume", "rescale"} <= {event.kind for event in run.events_since()}
        assert_same_rows(written(tmp_path / "out"), setting.expected())
        assert len(written(tmp_path / "out")) > already
    nothing_new = run_to_end(setting.query(processors=2), tmp_path / "out")
    assert nothing_new.exception() is None
    assert_same_rows(written(tmp_path / "out"), setting.expected())


def test_anything_else_that_differs_is_refused_and_named(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_to_end(setting.query(), tmp_path / "out")
    steps = sorted((tmp_path / "checkpoint" / "steps").iterdir())

    def refusal(query: ab.Query) -> str:
        with pytest.raises(ResumeMismatchError) as caught:
            query.writeStream.start(tmp_path / "out")
        return str(caught.value)

    assert "groups was 16 and is now 32" in refusal(setting.query(groups=32))
    assert "lateness was 60 s and is now 1 s" in refusal(setting.query(lateness="1 second"))
    assert "A, time column was 'at' and is now 'other'" in refusal(setting.query(time="other"))
    assert "A, columns, v was 'bigint' and is now 'double'" in refusal(setting.query(a_type="double"))
    windowed = refusal(setting.query(QUERY.replace("5 SEC", "6 SEC")))
    assert "inputs, A, window was 5 s and is now 6 s" in windowed
    assert windowed.count("is now 6 s") == 1
    assert "replace it by run.change(name, query)" in windowed
    changed = refusal(setting.query(QUERY + " AND A.v > 0"))
    assert "A, predicate was absent and is now '`v` > 0'" in changed
    assert f"checkpoint {tmp_path / 'checkpoint'} cannot be resumed" in changed
    assert "new checkpoint directory" in changed
    assert "residual predicate was absent" in refusal(setting.query(QUERY + " AND A.v > B.v"))
    assert "`B.v` + 1 AS w" in refusal(setting.query(QUERY.replace("B.v AS w", "B.v + 1 AS w")))
    renamed = QUERY.replace("B.", "C.").replace("WHERE", "AS C WHERE")
    assert "inputs, C was absent" in refusal(setting.query(renamed))
    now = ".".join(ab.__version__.split(".")[:2])
    with monkeypatch.context() as patched:
        patched.setattr(ab, "__version__", "9.9.0")
        assert f"engine version was '{now}' and is now '9.9'" in refusal(setting.query())
    zone = setting.spark.conf.get("spark.sql.session.timeZone")
    setting.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert "session time zone was" in refusal(setting.query())
    finally:
        setting.spark.conf.set("spark.sql.session.timeZone", zone)

    # Nothing was touched, and the same query in other words goes on.
    assert sorted((tmp_path / "checkpoint" / "steps").iterdir()) == steps
    setting.add(1)
    run_to_end(setting.query(QUERY.replace("SELECT", "select").replace(", B [", ",\n  B [")), tmp_path / "out")
    assert_same_rows(written(tmp_path / "out"), setting.expected())


def test_events_go_on_in_a_run_that_is_started_again(setting: Setting, tmp_path: Path) -> None:
    first = run_to_end(setting.query(), tmp_path / "out")
    setting.add(1)
    second = run_to_end(setting.query(processors=3), tmp_path / "out")
    with pytest.raises(ResumeMismatchError):
        setting.query(groups=32).writeStream.start(tmp_path / "out")
    third = run_to_end(setting.query(processors=3), tmp_path / "out")

    assert first.events == []
    assert [event.kind for event in second.events] == ["resume", "rescale"]
    assert [event.kind for event in third.events_since()] == ["resume"], "what was refused has not resumed"
    assert third.events == [*second.events, *third.events_since()]
    assert [event.number for event in third.events] == [1, 2, 3]
    assert third.events_since(1) == third.events[1:]


@pytest.mark.parametrize("batches", [1, 2])
def test_a_checkpoint_without_sparks_log_is_refused(setting: Setting, tmp_path: Path, batches: int) -> None:
    """Else Spark would begin again at batch 0, which is done (and not to be skipped: it may hold other rows)."""
    for batch in range(1, batches):
        setting.add(batch)
    run_to_end(setting.query(), tmp_path / "out")
    before = written(tmp_path / "out")
    shutil.rmtree(tmp_path / "checkpoint" / "spark" / "000001" / "offsets")
    setting.add(batches)
    with pytest.raises(CorruptStateError, match="[Ss]park"):
        run_to_end(setting.query(), tmp_path / "out")
    assert_same_rows(written(tmp_path / "out"), before)


def test_a_checkpoint_without_our_steps_is_refused(setting: Setting, tmp_path: Path) -> None:
    setting.add(1)
    run_to_end(setting.query(), tmp_path / "out")
    before = written(tmp_path / "out")
    for step in (tmp_path / "checkpoint" / "steps").iterdir():
        step.unlink()
    setting.add(2)
    with pytest.raises(CorruptStateError):
        run_to_end(setting.query(), tmp_path / "out")
    assert_same_rows(written(tmp_path / "out"), before)


def test_a_batch_that_spark_repeats_is_skipped(setting: Setting, tmp_path: Path) -> None:
    """As after a crash between our commit and Spark's."""
    setting.add(1)
    run_to_end(setting.query(), tmp_path / "out")
    commits = tmp_path / "checkpoint" / "spark" / "000001" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink()
    setting.add(2)
    run = run_to_end(setting.query(), tmp_path / "out")
    assert "skip" in {event.kind for event in run.events_since()}
    assert_same_rows(written(tmp_path / "out"), setting.expected())


def test_a_checkpoint_holds_documents_and_arrow_files_only(setting: Setting, tmp_path: Path) -> None:
    for batch in (1, 2):
        setting.add(batch)
        run_to_end(setting.query(), tmp_path / "out")
    checkpoint = tmp_path / "checkpoint"
    files = [path.relative_to(checkpoint) for path in checkpoint.rglob("*") if path.is_file()]
    ours = [path for path in files if path.parts[0] != "spark"]
    assert {path.suffix for path in ours if path.name != "lock"} == {".json", ".jsonl", ".arrow"}
    for path in files:
        content = (checkpoint / path).read_bytes()
        # Every pickle since protocol 2 begins with the byte 0x80 and ends with a full stop.
        assert not (content.startswith(b"\x80") and content.endswith(b".")), f"{path} looks like a pickle"
        assert not content.startswith(b"\xac\xed\x00\x05"), f"{path} looks like serialised Java"
