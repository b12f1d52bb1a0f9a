"""A process of its own that changes and stops runs in the middle of batches: `python -m tests.faults.stopping FOLDER`.

What it, its JVM and its workers write to stderr is what somebody sees who asked for nothing unusual.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

import anabranch as ab
from tests.conftest import QUICK_START
from tests.oracle.feed import Feed

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
TEXT = "SELECT A.k, A.v, B.v AS w FROM A, B WHERE A.k = B.k"
SLEEP = "java_method('java.lang.Thread', 'sleep', {}L)"


class SlowSink:
    """A function for `foreachBatch` that takes its time, in Spark's hands, and says when it has begun."""

    def __init__(self, milliseconds: int) -> None:
        self.milliseconds = milliseconds
        self.begun = threading.Event()
        self.batches: list[int] = []

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        rows.collect()
        self.begun.set()
        rows.sparkSession.range(1).selectExpr(SLEEP.format(self.milliseconds)).collect()
        self.batches.append(batch_id)

    def wait_until_inside(self) -> None:
        """Wait until a batch is in the middle of its work."""
        self.begun.clear()
        assert self.begun.wait(60), "no batch has come"
        time.sleep(0.1)


def main(folder: Path) -> None:
    """Add, remove and stop in the middle of batches; stop one that takes too long, and others otherwise.

    Each part says in a line how it has ended, and how many batches it has finished if that is certain.
    """
    spark = ab.local_session(cores=2, memory="1g", conf=QUICK_START)
    feeds = {name: Feed(folder / name, SCHEMA) for name in "AB"}
    for feed in feeds.values():
        for n in range(60):
            feed.add(k=[n], v=["x"])

    def engine(name: str) -> ab.Engine:
        made = ab.Engine(spark, checkpoint=folder / name, processors=2)
        for stream, feed in feeds.items():
            made.register(stream, feed.stream(spark))
        return made

    busy, sink = engine("changed"), SlowSink(700)
    run = busy.sql(TEXT).writeStream.queryName("first").foreachBatch(sink).start()
    sink.wait_until_inside()
    run.add(busy.sql(TEXT).writeStream.queryName("second").format("noop"))
    sink.wait_until_inside()
    run.remove("second")
    sink.wait_until_inside()
    run.stop()
    assert run.exception() is None
    assert sink.batches == list(range(len(sink.batches))), sink.batches
    assert len(sink.batches) >= 3, sink.batches  # a slow machine may finish another one while a query is added
    print("stopped between two batches")

    endless = SlowSink(600_000)
    run = engine("endless").sql(TEXT).writeStream.foreachBatch(endless).start()
    endless.wait_until_inside()
    began = time.monotonic()
    run.stop(grace=0.5)
    assert time.monotonic() - began < 30
    assert run.exception() is None
    print("interrupted after", len(endless.batches))

    endless = SlowSink(600_000)
    run = engine("behind").sql(TEXT).writeStream.foreachBatch(endless).start()
    endless.wait_until_inside()
    for query in spark.streams.active:
        query.stop()
    run.awaitTermination()
    assert run.exception() is None
    print("stopped by Spark after", len(endless.batches))

    endless = SlowSink(600_000)
    run = engine("ctrl-c").sql(TEXT).writeStream.foreachBatch(endless).start()
    threading.Thread(target=lambda: (endless.wait_until_inside(), os.kill(os.getpid(), signal.SIGINT))).start()
    try:
        run.awaitTermination()
    except KeyboardInterrupt:
        run.stop()
    assert run.exception() is None
    print("stopped by Ctrl-C after", len(endless.batches))

    counted: list[int] = []

    def stops_itself(rows: DataFrame, batch_id: int) -> None:
        counted.append(rows.count())
        if batch_id == 1:
            run.stop()

    run = engine("itself").sql(TEXT).writeStream.foreachBatch(stops_itself).start()
    run.awaitTermination()
    assert counted == [1, 1]
    print("stopped by itself after", len(counted))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
