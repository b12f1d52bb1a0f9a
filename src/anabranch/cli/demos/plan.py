"""`anabranch demo plan`: a plan of several operators as a story, on the traffic example of the D-CAPE thesis.

First the example itself, minute by minute: the readings of the sensors, the rows that the plan keeps, its answers. Then
a town of such crossings, with an aggregate on top of the join, watched live and compared with DuckDB.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table
from rich.text import Text

import anabranch
from anabranch.api.engine import Engine
from anabranch.cli.demos.question import Question, compare
from anabranch.cli.demos.stage import Processors, demo_folder, say_verdict
from anabranch.cli.demos.traffic import LATENESS, MINUTES, SECOND, Reading, Town, write_minute, write_town
from anabranch.cli.process.embedded import embedded_spark
from anabranch.cli.process.failures import Debug, reported
from anabranch.cli.watch import choose_view, watch
from anabranch.cli.wording import doing, say, show_plan, show_query
from anabranch.observe.numbers import format_seconds
from anabranch.observe.story import Story
from anabranch.observe.terminal import summary_line

MAP = r"""
                    |  r  |
                    |  o  |
                    |  a  |
                    |  d  |
                    |  1  |
                    |  |  |
                    |  v  |
                    | [1] |         [1] [2]  sensors
   =================+     +=================
                          [2]  road 2 -->
   =================+     +=================
                    |     |
"""
SCHEMA = "car STRING, type STRING, mph INT, crossing INT, ts TIMESTAMP"
TURNED = """
SELECT R1.car, R1.mph
FROM sensor1 [RANGE 2 MINUTES] AS R1, sensor2 [RANGE 2 MINUTES] AS R2
WHERE R1.car = R2.car AND R1.type = 'Car' AND R1.ts < R2.ts
"""
PER_CROSSING = """
SELECT R2.crossing, count(*) AS turned, avg(R2.mph) AS mph
FROM sensor1 [RANGE 2 MINUTES] AS R1, sensor2 [RANGE 2 MINUTES] AS R2
WHERE R1.car = R2.car AND R1.type = 'Car' AND R1.ts < R2.ts
GROUP BY R2.crossing
"""
QUESTION = Question(
    streams=("sensor1", "sensor2"),
    expected="""
        WITH turned AS (
            SELECT r2.crossing, r2.mph, epoch_us(r2.ts) AS t, epoch_us(r1.ts) + 120_000_000 AS e, r2.car
            FROM read_parquet($sensor1) r1, read_parquet($sensor2) r2
            WHERE r1.car = r2.car AND r1.type = 'Car' AND r1.ts < r2.ts
              AND epoch_us(r1.ts) >= epoch_us(r2.ts) - 120_000_000
        )
        SELECT r.crossing, count(*) AS turned, avg(s.mph) AS mph
        FROM turned r JOIN turned s ON r.crossing = s.crossing AND s.t <= r.t AND r.t <= s.e
        GROUP BY r.crossing, r.car, r.t
    """,
    actual="SELECT crossing, turned, mph FROM read_parquet($results)",
)


@reported
def plan(
    cars: Annotated[int, typer.Option(help="Cars that pass in the town of the second part.", min=10)] = 60_000,
    processors: Processors = 2,
    debug: Debug = False,
) -> None:
    """A query plan as a story: cars that turn within two minutes, on two roads and then in a whole town.

    Shows what sensors read, minute by minute, what the plan keeps of it and what it answers; then the same for many
    crossings at once, with an aggregate per crossing, compared with DuckDB on the complete input.
    """
    started = time.monotonic()
    console = Console()
    say(console, f"Anabranch {anabranch.__version__}: two roads, two sensors, and the cars that turn\n", "bold")
    with demo_folder() as folder:
        with ExitStack() as stack:
            with doing(console, "starting Spark"):
                spark = stack.enter_context(embedded_spark(debug=debug, short=True))
            _two_roads(console, spark, folder / "roads", processors)
            answered = _town(console, spark, folder / "town", processors, Town(cars))
        with doing(console, "asking DuckDB the same question"):
            verdict = compare(folder / "town", QUESTION)
    say_verdict(console, verdict)
    say(console, f"{answered}; {format_seconds(time.monotonic() - started)} in all, Spark's start included", "dim")
    if not verdict.exact:
        raise typer.Exit(1)


def _two_roads(console: Console, spark: SparkSession, folder: Path, processors: int) -> None:
    """The example of the thesis: a minute of readings at a time."""
    console.print(Text(MAP.strip("\n")))
    say(
        console,
        "\nWhich cars came along road 1 and turned onto road 2 within two minutes, and how fast were they before?\n",
    )
    show_query(console, TURNED)
    console.print()
    for sensor in ("sensor1", "sensor2"):
        (folder / sensor).mkdir(parents=True)
    query = _engine(spark, folder, processors, lateness="0 seconds").sql(TURNED)
    show_plan(console, query)
    say(console, "\nOf road 1 only cars are kept: the selection is below the join.\n")
    answers: list[Any] = []

    def take(results: DataFrame, batch_id: int) -> None:
        answers.extend(results.collect())

    table = Table("minute", "road 1 reads", "road 2 reads", "kept", "turned")
    with ExitStack() as stack:
        stack.enter_context(doing(console, "five minutes of readings, one after the other"))
        run = query.writeStream.foreachBatch(take).trigger(processingTime="0 seconds").start()
        stack.callback(run.stop)
        for minute in range(MINUTES):
            arrived = write_minute(folder, minute)
            run.processAllAvailable()
            processors_after = run.batches_since()[-1].step.processors
            table.add_row(
                str(minute),
                *(_named(arrived, sensor) for sensor in ("sensor1", "sensor2")),
                str(sum(entry.active_rows for entry in processors_after)),
                "\n".join(f"{row.car}, {row.mph} mph" for row in answers) or "-",
            )
            answers.clear()
    console.print(table)
    say(
        console,
        "SOXFAN4 passes sensor 1 in minute 1 and sensor 2 in minute 2. So does UMASS1 in minutes 1 and 3, but it is no "
        "car, so its reading on road 1 never gets to the join.\n",
    )


def _town(console: Console, spark: SparkSession, folder: Path, processors: int, town: Town) -> str:
    """Many crossings, and an aggregate over the join."""
    say(
        console,
        f"Now a town: {town.crossings} crossings, {town.cars:,} cars in ten minutes. At every turn, how many "
        "cars turned there in the last two minutes, and how fast?\n",
        "bold",
    )
    show_query(console, PER_CROSSING)
    console.print()
    with doing(console, f"generating {town.cars:,} cars"):
        write_town(town, folder)
        query = _engine(spark, folder, processors, lateness=f"{LATENESS // SECOND} seconds").sql(PER_CROSSING)
    show_plan(console, query)
    say(
        console,
        "\nThe join works by car, the aggregate by crossing: two rounds, with an exchange between them. "
        "Readings that no window reaches any longer are forgotten, so state stops growing.\n",
    )
    story = Story()
    run = query.writeStream.trigger(availableNow=True).start(folder / "results")
    seconds = watch(run, story, choose_view(story, "cars that turn, per crossing"))
    return summary_line(story, seconds)


def _engine(spark: SparkSession, folder: Path, processors: int, lateness: str) -> Engine:
    engine = Engine(spark, checkpoint=folder / "checkpoint", processors=processors)
    for sensor in ("sensor1", "sensor2"):
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        engine.register(sensor, reader.parquet(str(folder / sensor)), time="ts", lateness=lateness)
    return engine


def _named(arrived: list[Reading], sensor: str) -> str:
    lines = [f"{reading.car} ({reading.type}, {reading.mph})" for reading in arrived if reading.sensor == sensor]
    return "\n".join(lines) or "-"
