"""A process of its own that runs queries, to be killed by tests: `python -m tests.faults.driver JOB`.

JOB is JSON: `cores` and `conf` of the session, and `runs`, one after the other. A run names its `directory` (of a
`Rig`), its `query`, the number of `processors`, and possibly a failpoint for the `workers`. One line of JSON is printed
per run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.api.writer import Writer
from tests.conftest import QUICK_START
from tests.oracle.chance import ChanceMoves, ChanceWishes
from tests.oracle.feed import Feed, run_to_end
from tests.oracle.referee import Stream, join, query

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.string())])
FROM = "FROM A [RANGE 3 SECONDS], B [RANGE 1 SECOND], C WHERE A.k = B.k AND B.k = C.k"
# Processors write the files of a plain query themselves; those of the other are written by Spark.
QUERIES = {
    "plain": f"SELECT A.k, A.v, B.v AS w, C.v AS x {FROM}",
    "filtered": f"SELECT A.k, A.v, B.v AS w, concat(C.v, '') AS x {FROM} AND A.v <> C.v",
    # Reads a column that the others do not read.
    "another column": f"SELECT A.k, A.v, B.v AS w, C.v AS x {FROM} AND A.at >= 0",
    "rounds": f"SELECT A.k, A.v, B.v AS w, C.v AS x {FROM} AND upper(A.v) <> upper(B.v)",
}
GROUPS = (
    "SELECT A.k, count(*) AS n, min(B.v) AS w, max(A.v) AS v FROM A [RANGE 3 SECONDS], B [RANGE 1 SECOND] "
    "WHERE A.k = B.k GROUP BY A.k"
)
QUERIES["groups"] = GROUPS
# The same with next to no memory: almost everything is pushed to disk after every batch.
SPILLED = "spilled "
MEMORY = 2_000
# The same with groups that move, at once or by and by, and rows that wait, by chance after every batch.
MOVED = "moved "
# The same with operators that go to other processors by chance.
ELSEWHERE = "elsewhere "
# The condition between the two operators is one for Spark, so there is an exchange, and a second round.
JOINS = {"rounds": "(A B) C"}


class Rig:
    """Three feeds, a checkpoint and an output directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.output = directory / "out"
        self.checkpoint = directory / "checkpoint"
        self.feeds = {name: Feed(directory / name, SCHEMA) for name in "ABC"}

    def add(self, batches: int = 1) -> None:
        """More input, the same every time."""
        for _ in range(batches):
            for name, feed in self.feeds.items():
                number = len(feed.batches)
                keys = [(number * 3 + row) % 7 for row in range(10)]
                times = [1000 * number + 37 * row for row in range(10)]
                feed.add(k=keys, at=times, v=[f"{name}{number}.{row}" for row in range(10)])

    def expected(self, kind: str = "plain", first: int = 0) -> pa.Table:
        """The answer to what was added, from one of the batches on."""
        complete = {name: pa.concat_tables(feed.batches[first:]) for name, feed in self.feeds.items()}
        windows = {"A": 3000, "B": 1000, "C": None}
        if kind == "groups":
            pair = {name: Stream(complete[name], ["k"], "at", windows[name]) for name in "AB"}
            times = "greatest(A.at, B.at) AS t, least(A.at + 3000, B.at + 1000) AS e"
            rows = join(pair, ["A.k", "A.v", "B.v AS w", times])
            inside = "r.k = s.k AND s.t <= r.t AND r.t <= s.e"
            text = f"SELECT r.k, count(*), min(s.w), max(s.v) FROM j r JOIN j s ON {inside} GROUP BY r.k, r.v, r.w"
            return query(text, {"j": rows})
        streams = {name: Stream(rows, ["k"], "at", windows[name]) for name, rows in complete.items()}
        return join(streams, ["A.k", "A.v", "B.v AS w", "C.v AS x"])

    def engine(self, session: Any, processors: int = 2, **settings: Any) -> ab.Engine:
        """An engine over the feeds."""
        engine = ab.Engine(session, self.checkpoint, processors=processors, groups=16, **settings)
        for name, feed in self.feeds.items():
            engine.register(name, feed.stream(session), time="at", lateness="1 minute")
        return engine

    def query(self, session: Any, kind: str, processors: int = 2) -> ab.Query:
        """One of the queries over the feeds."""
        settings: dict[str, Any] = {}
        if kind.startswith(SPILLED):
            settings["memory"] = MEMORY
        elif kind.startswith(MOVED):
            settings["policies"] = [ChanceMoves(5)]
        elif kind.startswith(ELSEWHERE):
            settings["policies"] = [ChanceWishes(5)]
        kind = kind.removeprefix(SPILLED).removeprefix(MOVED).removeprefix(ELSEWHERE)
        return self.engine(session, processors, **settings).sql(QUERIES[kind], joins=JOINS.get(kind, "auto"))

    def writer(self, engine: ab.Engine, kind: str) -> Writer:
        """One of the queries on its way to a folder of its own."""
        query = engine.sql(QUERIES[kind], joins=JOINS.get(kind, "auto"))
        return query.writeStream.queryName(kind).option("path", str(self.output / kind))


def spawn(job: dict[str, Any], failpoint: str | None = None) -> subprocess.Popen[str]:
    """Start this module as a process (and leader of a process group) of its own."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment.pop("ANABRANCH_FAILPOINT", None)
    if failpoint is not None:
        environment["ANABRANCH_FAILPOINT"] = failpoint
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.driver", json.dumps(job)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def main(job: dict[str, Any]) -> None:
    """Do the runs of a job."""
    spark = ab.local_session(cores=job.get("cores", 2), memory="1g", conf={**QUICK_START, **job.get("conf", {})})
    for run in job["runs"]:
        if "workers" in run:
            # Spark starts new workers for a new environment.
            spark.sparkContext.environment["ANABRANCH_FAILPOINT"] = run["workers"]
        rig = Rig(Path(run["directory"]))
        done = run_to_end(rig.query(spark, run["query"], run.get("processors", 2)), rig.output)
        executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
        batches = [entry["batchId"] for entry in done.recentProgress if entry["numInputRows"]]
        events = [event.kind for event in done.events_since()]
        print(json.dumps({"batches": batches, "events": events, "executors": executors}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
